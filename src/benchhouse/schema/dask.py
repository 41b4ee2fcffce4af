"""Dask: what a scenario and a site may ask of it."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_ADDRESS = re.compile(r"local|(tcp|tls|ws|wss)://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}|/[^\0]*\.json")


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError(
            f"{text!r} is no address of Dask: local, tcp://HOST:8786, tls://HOST:8786 or /shared/scheduler.json"
        )
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is no absolute path: a run may be carried on from another folder")
    return text


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class DaskSite(Model, strict=True):
    """The Dask cluster of a site."""

    address: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Of the scheduler, or the file that it wrote with `--scheduler-file`; "
        "none: $DASK_SCHEDULER_ADDRESS, else a cluster of the run's own, on this machine.",
    )
    security: AbsolutePath | None = Field(
        default=None, description="Of tls://, a file that names the certificates: ca_file, client_cert and client_key."
    )
    patience: Seconds | None = Field(
        default=None,
        gt=0,
        description="How long a run waits for a node that can hold a trial, once none is left; none: 2 minutes. Then "
        "it ends, and can be resumed.",
    )


class DaskSettings(DaskSite):
    """How trials run on Dask; it changes nothing of what they measure, so it is in no digest."""

    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="The workers' own kinds that one trial needs, e.g. {licence: 1}."
    )


class DaskSecurity(Model, strict=True):
    """A security file: what a client of a tls:// scheduler shows, and whom it believes."""

    ca_file: AbsolutePath = Field(description="Certificate of who signed the scheduler's, PEM.")
    client_cert: AbsolutePath = Field(description="Ours, PEM.")
    client_key: AbsolutePath = Field(description="Its key, PEM.")
