"""Measurements, one row per result; metrics.json and metrics.csv are exact views of them."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from benchhouse.schema.experiment import Direction, Role
from benchhouse.schema.model import Model, empty_list

Amount = Annotated[float, Field(ge=0)] | None
Part = Annotated[float, Field(ge=0, le=1)] | None


class Measurement(Model):
    """A number that a trial produced."""

    metric: str
    stat: str = Field(description="value, mean, stdev, min, p50, p90, p95, p99, p99.9, max, n.")
    value: float
    unit: str
    direction: Direction | None = None
    role: Role | None = None
    n: int = Field(1, description="Samples behind the number.")
    scope: str = "trial"
    window: str = ""
    error_bound: float | None = Field(None, description="How far it can be off, in its unit; null: not known.")
    valid: bool = Field(True, description="Not where that is more than is taken: then no summary takes it.")


class HistogramEntry(Model):
    """The histogram behind one metric of a trial, in one window."""

    metric: str
    window: str = ""
    unit: str = Field(description="Unit of the metric; the histogram itself counts nanoseconds.")
    relative_error: float = Field(description="How far a percentile may be off, as a share of it; the rest is exact.")
    nanoseconds: dict[str, Any] = Field(description="The content, as Histogram.to_json writes it.")


class HistogramsFile(Model):
    """histograms.json: every distribution that was counted rather than listed value by value."""

    schema_version: Literal[1] = 1
    histograms: list[HistogramEntry]


def common_unit(unit: str) -> str:
    """Return a unit as the common schema spells it: `MB_per_s`; `1/s` becomes `items_per_s`."""
    words = re.sub("^1(?=/|$)", "items", unit).replace("/", "_per_")
    return re.sub("[^A-Za-z0-9]+", "_", words).strip("_") or "items"


class Throughput(Model):
    value: float | None
    unit: str | None = Field(pattern="^[A-Za-z0-9]+(_[A-Za-z0-9]+)*$", description="items_per_s, MB_per_s, ...")


class LatencyMs(Model):
    p50: Amount
    p90: Amount
    p99: Amount


class ResourceUse(Model):
    gpu_util: Part = Field(description="Share of the time that GPUs were busy, of all that the trial had.")
    gpu_mem_mb: Amount
    cpu_util: Part = Field(description="Cores used, as a share of those that the trial was allotted.")
    ram_mb: Amount


class ErrorCounts(Model):
    rate: Part = Field(description="Errors, as a share of all operations.")
    timeouts: int | None = Field(ge=0)


class Extras(Model):
    """Data that the common schema of metrics.json does not cover."""

    schema_version: Literal[1] = 1
    run_id: str
    instance_digest: str
    repetition: int
    warmup: bool
    outcome: str
    experiment: str
    version: str
    quantile_definition: str = Field("hyndman-fan-7", description="How percentiles are read from samples.")
    quantile_definitions: dict[str, str] = Field(default_factory=dict, description="Exceptions, by metric.")
    primary: list[str] = Field(default_factory=empty_list, description="Metrics that the experiment declares primary.")
    warnings: list[str] = Field(default_factory=empty_list)
    measurements: list[Measurement]


class CommonMetrics(Model):
    """The part of metrics.json in the common schema of all tools. Quantities that were not measured are null."""

    trial_id: str
    timestamp: str
    component: str
    service: str
    config: dict[str, Any]
    throughput: Throughput
    latency_ms: LatencyMs
    resource: ResourceUse
    errors: ErrorCounts
    notes: str = ""


class MetricsFile(CommonMetrics):
    """metrics.json: the common schema, and the fields of Benchhouse under one key."""

    benchhouse: Extras
