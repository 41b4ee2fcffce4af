"""Site profiles: small YAML files, one per cluster, with facts about a place that scenario files must not contain."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.clusters import DaskSite, RaySite, SparkSite
from benchhouse.schema.errors import BenchError
from benchhouse.schema.instance_types import InstanceType
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.model import Model
from benchhouse.schema.names import Name
from benchhouse.schema.quantities import Bytes, Seconds
from benchhouse.schema.secrets import exposed, is_secret_variable
from benchhouse.schema.topology import Cluster

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,@/+=-]*")
_FLAG = re.compile(r"--[a-z][a-z-]*(=[A-Za-z0-9._:,@/+=%*\[\]|&()-]+)?")
_OURS = ("--array", "--chdir", "--error", "--job-name", "--output", "--requeue", "--test-only", "--wrap")


def _plain(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError(f"{text!r} is not one plain word: letters, digits and . _ : , @ / + = -")
    return text


def _flag(text: str) -> str:
    if not _FLAG.fullmatch(text):
        raise ValueError(f"{text!r} is not a flag such as --switches=1")
    if (name := text.partition("=")[0]) in _OURS:
        raise ValueError(f"{name} is reserved: a run finds its own tasks by it; leave it out")
    return text


def _without_secrets(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if is_secret_variable(name) or exposed(value) is not None:
            raise ValueError(f"{name} is a secret: leave it out and export it, jobs get it with the environment")
    return variables


Word = Annotated[str, AfterValidator(_plain)]
"""A word without special meaning in a shell or an #SBATCH line."""
Flag = Annotated[str, AfterValidator(_flag)]
Variables = Annotated[dict[Name, str], AfterValidator(_without_secrets)]


class Partition(Model, strict=True):
    """The resources of a partition's nodes, so that a job that does not fit any node is refused instead of pending
    forever.
    """

    nodes: int | None = Field(None, ge=1, description="Nodes in it.")
    cpus: int | None = Field(None, ge=1, description="Cores of a node.")
    memory: Bytes | None = Field(None, description="Memory of a node.")
    gpus: int = Field(0, ge=0, description="GPUs of a node.")
    max_time: Seconds | None = Field(None, gt=0, description="Longest job.")


class Quality(Model, strict=True):
    """The limits of a Slurm quality of service."""

    max_time: Seconds | None = Field(None, gt=0, description="Longest job.")
    max_jobs: int | None = Field(None, ge=1, description="Jobs of one user that run at a time.")


class SlurmSite(Model, strict=True):
    """How jobs are submitted on this cluster; a scenario's own partition, account, and qos take precedence."""

    partition: Word | None = Field(None, description="Default partition.")
    gpu_partition: Word | None = Field(None, description="Default partition of GPU jobs.")
    account: Word | None = Field(None, description="Account to charge.")
    qos: Word | None = Field(None, description="Quality of service.")
    gres: Word = Field("gpu", description="Name of a GPU in --gres, e.g. gpu or gpu:a100.")
    time: Seconds = Field(3600.0, gt=0, description="Time limit of jobs whose trials have none.")
    max_array: int | None = Field(None, ge=1, description="Longest array; by default as Slurm is configured.")
    max_jobs: int | None = Field(None, ge=1, description="Jobs that one user may have in the queue.")
    throttle: int | None = Field(None, ge=1, description="Array tasks at a time, by default.")
    poll: Seconds = Field(15.0, gt=0, description="Longest interval between polls of Slurm.")
    flags: tuple[Flag, ...] = Field((), strict=False, description="Further flags of sbatch.")
    partitions: dict[Word, Partition] = Field(default_factory=dict, description="By name; empty: unknown.")
    qualities: dict[Word, Quality] = Field(default_factory=dict, description="By name; empty: unknown.")
    accounts: tuple[Word, ...] = Field((), strict=False, description="Accounts that can be charged; empty: unknown.")


class Folders(Model, strict=True):
    """Folders of the site. $NAME stands for a variable of the user's environment."""

    work: str = Field("", description="The user's or project's large storage, e.g. $WORK.")
    containers: str = Field("", description="Images (.sif).")
    data: str = Field("", description="Datasets.")
    logs: str = Field("", description="Logs of Slurm jobs, below it one folder a scenario; else in the run's folder.")
    metrics: str = Field("", description="SCENARIO/RUN/summary.json of each run; else none is written.")
    shared: tuple[str, ...] = Field((), strict=False, description="Visible to all nodes; workspaces must be here.")


class Quota(Model, strict=True):
    """The most data that a folder may hold. Existing data is not known, so only impossible requests are refused."""

    size: Bytes | None = Field(None, gt=0, description="Bytes of all files.")
    files: int | None = Field(None, ge=1, description="Number of files and folders.")


class SiteNetwork(Model, strict=True):
    """The network of compute nodes."""

    egress: bool = Field(True, description="Whether compute nodes reach the internet.")
    interface: Word | None = Field(None, description="Device of the fast network between nodes.")
    environment: Variables = Field(default_factory=dict, description="Variables of multi-node jobs.")


class SiteImages(Model, strict=True):
    """Requirements for container images on this site."""

    pinned: Literal["optional", "required"] = Field(
        "optional", description="required: a server whose image has no digest is refused before anything starts."
    )


class Site(Model, strict=True):
    """A site profile."""

    schema_version: int = Field(1, ge=1, le=1, description="Version of this file format.")
    site: Name = Field("local", description="Name of the site.")
    description: str = Field("", description="For people.")
    executor: Name | None = Field(None, description="Default executor.")
    runtime: Name | None = Field(None, description="Default runtime.")
    modules: tuple[Word, ...] = Field((), strict=False, description="Modules to load before containers and jobs.")
    environment: Variables = Field(default_factory=dict, description="Variables of every job; no secrets.")
    # Default sections skip validation: building a validator takes longer than all other work with a profile.
    slurm: SlurmSite = Field(default_factory=SlurmSite.model_construct)
    dask: DaskSite = Field(default_factory=DaskSite.model_construct)
    ray: RaySite = Field(default_factory=RaySite.model_construct)
    spark: SparkSite = Field(default_factory=SparkSite.model_construct)
    kubernetes: KubernetesSite = Field(default_factory=KubernetesSite.model_construct)
    folders: Folders = Field(default_factory=Folders.model_construct)
    quotas: dict[str, Quota] = Field(default_factory=dict, description="By folder, where no command tells.")
    network: SiteNetwork = Field(default_factory=SiteNetwork.model_construct)
    images: SiteImages = Field(default_factory=SiteImages.model_construct)
    cluster: Cluster = Field(default_factory=Cluster, description="Where it is, for tables that compare places.")
    instance_types: dict[Word, InstanceType] = Field(
        default_factory=dict, description="What a type of machine that a descriptor names means here; before our table."
    )
    keep_logs: Seconds | None = Field(None, gt=0, description="Age at which logs may be pruned.")
    to_confirm: tuple[str, ...] = Field((), strict=False, description="Values not yet confirmed on the site.")


def site_folder(site: Site, key: Literal["containers", "logs", "metrics"]) -> Path | None:
    """Return one of the site's `folders`, or None if it is not set. Raise BenchError if a variable in it is not set."""
    folder: str = getattr(site.folders, key)
    path = os.path.expandvars(folder)
    if "$" in path:
        raise BenchError(
            f"the site '{site.site}' keeps {key} in {folder}, and that variable is not set",
            f"export it, or write another path to `folders: {{{key}: ...}}` of the site",
        )
    return Path(path) if path else None


State = Literal["good", "missing", "unknown"]


class SiteFinding(Model):
    """The result of one check of a site."""

    what: str = Field(description="What was looked for.")
    state: State = Field(description="good: there; missing: not there; unknown: nobody told in time.")
    value: str = Field("", description="What was found.")
    note: str = Field("", description="What it means, or what to do.")


class SiteCheck(Model):
    """All results of a site check, and the profile that follows from them."""

    schema_version: Literal[1] = 1
    host: str
    time: str = Field(description="When, UTC.")
    findings: list[SiteFinding]
    profile: Site
