"""Telemetry: declarations of sampled quantities, shared by samplers, files, exporters, and dashboards."""

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

from pydantic import Field

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quantities import Seconds

Family = Literal["service", "gpu", "nvlink", "pcie", "network", "node", "process", "energy", "scheduler"]
SourceKind = Literal["node", "trial", "services", "gpu"]
ExporterName = Literal["dcgm", "nvlink", "pci", "ping", "node-problem-detector", "kueue", "slinky"]
EXPORTERS: tuple[ExporterName, ...] = get_args(ExporterName)
WHOLE, WARMUP, STEADY, TEARDOWN = "trial", "warmup", "steady", "teardown"


class Series(Model):
    """A sampled quantity of a source."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name: `cpu_busy`, unit aside.")
    unit: str = Field("1", description="Unit of a value: 1 (a ratio), s, B, W, degC, MHz, ...")
    kind: Literal["gauge", "counter"] = Field("gauge", description="counter: only its growth means something.")
    family: Family = Field(description="Which family of telemetry it belongs to.")
    description: str = Field("", description="What it is, in words.")

    @property
    def summary_unit(self) -> str:
        """The unit in summaries; for a counter, of its growth per second, so CPU seconds become cores."""
        if self.kind == "gauge":
            return self.unit
        return "1" if self.unit == "s" else "1/s" if self.unit == "1" else f"{self.unit}/s"


class SeriesSource(Protocol):
    """A source that a monitor samples at every tick. Reading must not raise: values that cannot be read are NaN.

    A class whose reading may take milliseconds (a network, another program) sets `slow = True` and gets a thread of its
    own, so that the other sources stay on time.
    """

    @property
    def name(self) -> str:
        """The scope of its series: `node`, `service:NAME`, `gpu0`, ..."""

    @property
    def series(self) -> Sequence[Series]: ...

    def sample(self) -> Sequence[float]:
        """Return the values of `series`, in their order."""

    def close(self) -> None: ...


class Scrape(Model, strict=True):
    """A Prometheus endpoint that is read at every tick."""

    url: str = Field(
        pattern=r"^(https?://|\$)",
        description="Where its metrics are: http://127.0.0.1:8000/metrics; a password as http://me:$NAME_PASSWORD@host.",
    )
    exporter: ExporterName | None = Field(
        None,
        description="What answers there: read with its units, one series for each GPU, queue, ...",
    )
    name: str = Field("", description="Scope `service:NAME`; by default the exporter, else host and port.")
    series: list[str] = Field(default_factory=empty_list, description="Patterns of metric names to keep: `vllm:*`.")
    labels: list[str] = Field(
        default_factory=empty_list,
        description="Labels to keep; others are summed over. Of a known exporter those of its GPUs, queues, ...",
    )


class MonitorSettings(Model, strict=True):
    """The sources that are sampled while a trial runs, and the interval."""

    interval: Seconds = Field(1.0, ge=0.1, le=3600, description="Time between samples; at least 0.1s.")
    sources: list[SourceKind] = Field(
        default_factory=lambda: list(get_args(SourceKind)),
        description="node: the machine; trial: all below the worker; services: each server's process tree; gpu.",
    )
    prometheus: list[Scrape] = Field(default_factory=empty_list, description="Prometheus endpoints to read.")
    textfile: str | None = Field(None, description="Folder of node exporter's textfile collector, to export to.")
    labels: dict[Literal["cluster", "region", "node_pool"], str] = Field(
        default_factory=dict, description="Labels of the exported values."
    )


class StandingMonitor(Model):
    """monitor.json: the settings of a free-standing monitor, and when it ends."""

    schema_version: Literal[1] = 1
    monitor_id: str
    started: str = Field(description="Wall-clock time of the start, UTC.")
    host: str
    interval_s: float
    pid: int | None = Field(None, description="Root of a process tree that is sampled beside the node.")
    pid_start: int | None = Field(None, description="When that process started, in clock ticks since boot.")
    for_s: float | None = Field(None, description="Ends by itself after so long; null: when it is stopped.")
    kept: str = Field("", description="Folder of the keeper whose batch job it is; empty: a process of this machine.")


class Phase(Model):
    """A named part of a trial's time, in seconds since its start."""

    name: str
    begin_s: float
    end_s: float
    energy_j: float | None = Field(None, description="Energy of all devices whose power was read; null: n/a.")


class Stats(Model):
    """Statistics of one series in one phase: the values of a gauge, or the growth per second of a counter."""

    n: int = Field(description="Values behind the percentiles; of a counter, whole intervals inside the phase.")
    avg: float = Field(description="Mean; of a counter exact over the phase, ends interpolated between samples.")
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    too_few_for: list[str] = Field(default_factory=empty_list, description="Percentiles that `n` values can't carry.")
    growth: float | None = Field(None, description="Of a counter: by how much it grew in the phase.")


class SeriesSummary(Model):
    """One series over all phases."""

    unit: str = Field(description="Unit of the figures: of a counter that of its growth a second.")
    kind: Literal["gauge", "counter"]
    family: Family
    phases: dict[str, Stats] = Field(description="By phase; none where nothing could be read.")


class ScopeSummary(Model):
    """All series of one scope."""

    file: str | None = Field(description="Parquet file beside this one; null where there are but two samples.")
    samples: int
    node: str = Field("", description="Node that it is of; none given: that of the experiment.")
    series: dict[str, SeriesSummary]


class NodeSummary(Model):
    """Another node of the trial: how it was sampled, and the offset of its clock from that of the experiment's node."""

    name: str
    clock_ahead_s: float | None = Field(None, description="Its time of day less that of the experiment's node.")
    clock_uncertainty_s: float | None = Field(None, description="By how much at most that is off: half a round trip.")
    clock_drift_ppm: float = Field(0.0, description="What it gained meanwhile, in millionths; 0: too little to tell.")
    samples: int = 0
    ticks_missed: int = 0
    cores: float | None = Field(None, description="What sampling it used there, as a share of one core.")
    problem: str = Field("", description="Why series of it are missing, or end early.")


class AbnormalNode(Model):
    """A node that differs from its peers in the same trial."""

    node: str
    reason: str = Field(description="Stable word: noisy_neighbour, heat, network_errors, ...")
    scope: str
    series: str
    unit: str
    value: float = Field(description="Median over windows of the trial's time.")
    peers: float = Field(description="Median of the other nodes.")
    distance: float = Field(description="How many spreads of the peers lie between; at most 99.")
    says: str = Field(description="The same in words.")


class OwnCost(Model):
    """The resources that the monitor itself used."""

    samples: int = Field(description="Samples taken, each of all sources.")
    cpu_s: float = Field(description="CPU seconds of all its threads.")
    cpu_us_per_sample: float = Field(description="CPU microseconds a sample.")
    cores: float = Field(description="Share of one core.")


class TelemetrySummary(Model):
    """telemetry/summary.json: the sampled data by scope, series, and phase. Default values are omitted."""

    schema_version: Literal[1]
    started: str = Field(description="Wall-clock time of the start, UTC; all times are seconds since then.")
    duration_s: float
    interval_s: float = Field(description="Time between samples, as asked.")
    ticks_missed: int = Field(description="Samples that were due and could not be taken in time.")
    cost: OwnCost
    energy_j: float | None = Field(description="Energy over all of it; null where no power was read (n/a).")
    energy_of: list[str] = Field(
        default_factory=empty_list, description="Scopes whose energy that is: `gpu0`; `node`, its processors."
    )
    phases: list[Phase]
    scopes: dict[str, ScopeSummary] = Field(description="By name; of another node NODE/NAME: `node02/trial`.")
    nodes: list[NodeSummary] = Field(default_factory=empty_list, description="The other nodes of the trial.")
    abnormal: AbnormalNode | None = Field(None, description="The node that is not as its peers are, if one is.")
    problems: list[str] = Field(default_factory=empty_list, description="Sources that failed, each named once.")

    def stats(self, scope: str, series: str, phase: str) -> Stats | None:
        """Return the statistics of a series in a phase; None if there are none."""
        summary = self.scopes.get(scope)
        row = summary.series.get(series) if summary else None
        return row.phases.get(phase) if row else None
