"""Spark: what a scenario and a site may ask of it."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

LOCAL = re.compile(r"local|local\[(?P<cores>\d{1,4}|\*)\]")
LOCAL_CLUSTER = re.compile(r"local-cluster\[(?P<nodes>\d{1,3}),(?P<cores>\d{1,4}),(?P<megabytes>\d{1,7})\]")
STANDALONE = re.compile(r"spark://(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_KEY = re.compile(r"spark\.[A-Za-z0-9_.-]+")
OURS = ("spark.master", "spark.task.", "spark.executor.cores", "spark.executor.memory", "spark.cores.max")


def _master(text: str) -> str:
    if not any(shape.fullmatch(text) for shape in (LOCAL, LOCAL_CLUSTER, STANDALONE)):
        raise ValueError(f"{text!r} is no master of Spark: local[4], local-cluster[2,1,1024] or spark://HOST:7077")
    return text


def _ui(text: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+/?", text):
        raise ValueError(f"{text!r} is no address of a web page such as http://HOST:8080")
    return text


def _conf(conf: dict[str, str]) -> dict[str, str]:
    for key in conf:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no property of Spark: they are called spark.something")
        if key.startswith(OURS):
            raise ValueError(f"{key} follows from resources: and spark.master, and is not set here")
    return conf


class SparkSite(Model, strict=True):
    """The Spark cluster of a site."""

    master: Annotated[str, AfterValidator(_master)] | None = Field(
        default=None,
        description="spark://HOST:7077 for one that is there; local[N] or local-cluster[N,CORES,MB] on this machine; "
        "none: local with all its cores.",
    )
    ui: Annotated[str, AfterValidator(_ui)] | None = Field(
        default=None, description="The master's web page, which says what its workers have; none: http://HOST:8080."
    )
    conf: Annotated[dict[str, str], AfterValidator(_conf)] = Field(
        default_factory=dict, description="Further properties of Spark, such as spark.driver.host."
    )
    patience: Seconds | None = Field(
        default=None,
        gt=0,
        description="How long a run waits for a worker that can hold a trial, once none is left; none: 2 minutes. Then "
        "it ends, and can be resumed.",
    )


class SparkSettings(SparkSite):
    """How trials run on Spark; it changes nothing of what they measure, so it is in no digest."""
