"""Ray: what a scenario and a site may ask of it."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_ADDRESS = re.compile(r"local|auto|((ray|https?)://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}/?")


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError(f"{text!r} is no address of Ray: local, auto, HOST:6379, ray://HOST:10001 or http://HOST:8265")
    return text


Address = Annotated[str, AfterValidator(_address)]


class RaySite(Model, strict=True):
    """The Ray cluster of a site."""

    address: Address | None = Field(
        default=None,
        description="HOST:6379 from a node of it, ray://HOST:10001 from elsewhere, http://HOST:8265 for `bench "
        "submit`; none: $RAY_ADDRESS, else a cluster of the run's own, on this machine.",
    )
    patience: Seconds | None = Field(
        default=None,
        gt=0,
        description="How long a run waits for a node that can hold a trial, once none is left; none: 2 minutes. Then "
        "it ends, and can be resumed.",
    )


class RaySettings(RaySite):
    """How trials run on Ray; it changes nothing of what they measure, so it is in no digest."""

    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="The cluster's own kinds that one trial needs, e.g. {TPU: 4}."
    )
    runtime_env: dict[str, Any] = Field(
        default_factory=dict,
        description="Of Ray: pip, uv, env_vars, ...; trials then run in the Python that it makes, with benchhouse.",
    )
