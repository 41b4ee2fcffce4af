"""Settings for Dask, Ray, and Spark, in scenarios and site profiles."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from benchhouse.schema.kuberay import RayCluster
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.secrets import credential, exposed, is_secret_key

LOCAL = r"local|local\[(?P<cores>\d{1,4}|\*)\]"
LOCAL_CLUSTER = re.compile(r"local-cluster\[(?P<nodes>\d{1,3}),(?P<cores>\d{1,4}),(?P<megabytes>\d{1,7})\]")
STANDALONE = re.compile(r"spark://(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_OUR_PROPERTIES = ("spark.master", "spark.task.", "spark.executor.cores", "spark.executor.memory", "spark.cores.max")
_HOST = r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)"


def _text(kind: str, *patterns: str | re.Pattern[str]) -> Any:
    def check(text: str) -> str:
        if not any(re.fullmatch(pattern, text) for pattern in patterns):
            raise ValueError(f"{text!r} is no {kind}")
        return text

    return AfterValidator(check)


def _spark_properties(conf: dict[str, str]) -> dict[str, str]:
    for key in conf:
        if not re.fullmatch(r"spark\.[A-Za-z0-9_.-]+", key):
            raise ValueError(f"{key!r} is no property of Spark: they are called spark.something")
        if key.startswith(_OUR_PROPERTIES):
            raise ValueError(f"{key} follows from resources: and spark.master, and is not set here")
        if exposed(conf[key]) is not None or (is_secret_key(key) and credential(conf[key]) is None):
            raise ValueError(f"{key} is a secret in plain text: put it into the environment and write $NAME")
    return conf


_DASK = _text(
    "address of Dask: local, tcp://HOST:8786, tls://HOST:8786 or /shared/scheduler.json",
    rf"local|(tcp|tls|ws|wss)://{_HOST}:\d{{1,5}}|/[^\0]*\.json",
)
_RAY = _text(
    "address of Ray: local, auto, HOST:6379, ray://HOST:10001 or http://HOST:8265",
    rf"local|auto|((ray|https?)://)?{_HOST}:\d{{1,5}}/?",
)
_SPARK = _text(
    "master of Spark: local[4], local-cluster[2,1,1024] or spark://HOST:7077", LOCAL, LOCAL_CLUSTER, STANDALONE
)
_PAGE = _text("address of a web page such as http://HOST:8080", r"https?://[A-Za-z0-9._\[\]:-]+/?")
_ABSOLUTE = _text("absolute path: a run may be carried on from another folder", r"(?s)/.*")
AbsolutePath = Annotated[str, _ABSOLUTE]
Amounts = dict[str, Annotated[float, Field(gt=0)]]
Patience = Annotated[
    Seconds | None,
    Field(
        gt=0,
        description="Longest wait for a node that can hold a trial, once none is left; by default 2 minutes. Then the "
        "run ends and can be resumed.",
    ),
]


class DaskSite(Model, strict=True):
    """The Dask cluster of a site."""

    address: Annotated[str, _DASK] | None = Field(
        None,
        description="Address of the scheduler, or its `--scheduler-file`; by default $DASK_SCHEDULER_ADDRESS, else a "
        "cluster of the run's own on this machine.",
    )
    security: AbsolutePath | None = Field(
        None, description="For tls://: file with ca_file, client_cert and client_key."
    )
    patience: Patience = None


class DaskSettings(DaskSite):
    """How trials run on Dask. It does not change what they measure, so it is not part of any digest."""

    resources: Amounts = Field(default_factory=dict, description="Worker resources of one trial: {licence: 1}.")


class DaskSecurity(Model, strict=True):
    """A security file: the certificates of a client of a tls:// scheduler."""

    ca_file: AbsolutePath = Field(description="Certificate of the scheduler's authority, PEM.")
    client_cert: AbsolutePath = Field(description="Certificate of the client, PEM.")
    client_key: AbsolutePath = Field(description="Key of the client, PEM.")


class RaySite(Model, strict=True):
    """The Ray cluster of a site."""

    address: Annotated[str, _RAY] | None = Field(
        None,
        description="HOST:6379 from one of its nodes, ray://HOST:10001 from elsewhere, http://HOST:8265 for `bench "
        "submit`; by default $RAY_ADDRESS, else a cluster of the run's own on this machine.",
    )
    cluster: RayCluster | None = Field(None, description="A cluster that is made for the run, on Kubernetes.")
    patience: Patience = None

    @model_validator(mode="after")
    def _one_place(self) -> "RaySite":
        if self.address and self.cluster:
            raise ValueError("give either address, of a cluster that is there, or cluster, which is made for a run")
        return self


class RaySettings(RaySite):
    """How trials run on Ray. It does not change what they measure, so it is not part of any digest."""

    resources: Amounts = Field(default_factory=dict, description="Custom resources of one trial: {TPU: 4}.")
    runtime_env: dict[str, Any] = Field(
        default_factory=dict, description="Ray's runtime_env; trials run in that Python, with benchhouse."
    )


class SparkSite(Model, strict=True):
    """The Spark cluster of a site."""

    master: Annotated[str, _SPARK] | None = Field(
        None,
        description="spark://HOST:7077, or on this machine local[N] or local-cluster[N,CORES,MB]; by default local "
        "with all cores.",
    )
    ui: Annotated[str, _PAGE] | None = Field(None, description="Web page of the master; by default http://HOST:8080.")
    conf: Annotated[dict[str, str], AfterValidator(_spark_properties)] = Field(
        default_factory=dict, description="Further Spark properties, such as spark.driver.host."
    )
    patience: Patience = None


class SparkSettings(SparkSite):
    """How trials run on Spark. It does not change what they measure, so it is not part of any digest."""
