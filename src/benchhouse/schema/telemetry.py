"""Telemetry: what monitors sample, declared once; samplers, files, exporters and dashboards follow from it."""

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import Field

from benchhouse.schema.model import Model

Family = Literal["service", "gpu", "nvlink", "pcie", "network", "node", "process", "energy"]


class Series(Model):
    """One sampled quantity of one source."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name: `cpu_busy`, unit aside.")
    unit: str = Field("1", description="Unit of a value: 1 (a ratio), s, B, W, degC, MHz, ...")
    kind: Literal["gauge", "counter"] = Field("gauge", description="counter: only its growth means something.")
    family: Family = Field(description="Which family of telemetry it belongs to.")
    description: str = Field("", description="What it is, in words.")


class Source(Protocol):
    """What a monitor asks, once a tick. Reading must not raise: what can't be read is NaN."""

    name: str  # `node`, `service:NAME`, `gpu0`, ...: the scope of its series
    series: Sequence[Series]

    def sample(self) -> Sequence[float]:
        """The values of `series`, in their order."""
        ...

    def close(self) -> None: ...
