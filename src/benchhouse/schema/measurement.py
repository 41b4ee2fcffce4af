"""Measurement: one result row, long form; metrics.json and metrics.csv are exact views of it."""

from typing import Any, Literal

from pydantic import Field

from benchhouse.schema.experiment import Direction, Role
from benchhouse.schema.model import Model, empty_list


class Measurement(Model):
    """One number that a trial produced."""

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
    """histograms.json: every distribution that was counted and not listed value by value."""

    schema_version: Literal[1] = 1
    histograms: list[HistogramEntry]


class Throughput(Model):
    value: float | None
    unit: str | None


class Extras(Model):
    """What the common schema of metrics.json has no place for."""

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


class MetricsFile(Model):
    """metrics.json: the common schema, our extras under one key."""

    trial_id: str
    timestamp: str
    component: str
    service: str
    config: dict[str, Any]
    throughput: Throughput
    latency_ms: dict[str, float | None]
    resource: dict[str, float | None]
    errors: dict[str, float | None]
    notes: str
    benchhouse: Extras
