"""What the machine and the servers did while a point was measured: lines over one trial's time, statistics by phase.

They come from the telemetry of one sealed trial of the point, verified against its manifest; each names its file.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from benchhouse.evidence import older
from benchhouse.results.numbers import shaky
from benchhouse.results.trial_files import Row, Sealed, median_trial, open_sealed
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.telemetry import WHOLE, NodeSummary, Phase, TelemetrySummary
from benchhouse.schema.trial import outcome_words
from benchhouse.warehouse.grouping import grouped

MOST_SAMPLES = 200
"""Samples per line; if there are more, each bucket keeps its minimum and its maximum."""
MOST_POINTS = 100
"""Points that are read: the telemetry of further ones is only in their folders."""
MOST_FAILED = 20
"""Unsuccessful trials that are read."""
_LEAST = 0.5  # share of the interval, as in the summary: over less, a counter of clock ticks gives no rate


class SeriesLine(Model):
    """One series of one scope over the trial's time; for a counter, its growth per second."""

    scope: str
    series: str
    label: str
    file: str = Field(description="Relative to the trial's folder.")
    sha256: str = Field(description="Of that file, as the manifest has it.")
    samples: int = Field(description="Values that there are; `values` may hold fewer.")
    times_s: list[float] = Field(description="Since the trial's start; of a counter the middle of each interval.")
    values: list[float]


class Panel(Model):
    """Lines with a common scale."""

    title: str
    unit: str
    lines: list[SeriesLine]


class PhaseSummary(Model):
    """One series in one phase, as in telemetry/summary.json."""

    label: str = Field(description="Scope and quantity: `node CPU`.")
    scope: str
    series: str
    unit: str
    phase: str
    n: int
    avg: float
    p95: float | None = None
    max: float | None = None
    few: str = Field("", description="Why p95 should not be trusted.")


class MachineFacts(Model):
    """One trial of one point, as monitors observed it."""

    point: str
    run_id: str
    trial_id: str
    repetition: int
    outcome: str
    failure_code: str = ""
    chosen: str = Field(description="Which of the point's trials this is, in words.")
    folder: str
    duration_s: float
    interval_s: float
    ticks_missed: int
    energy_j: float | None
    phases: list[Phase] = Field(description="The whole only where nothing else was told.")
    panels: list[Panel]
    figures: list[PhaseSummary]
    abnormal: str = Field("", description="The node that is not as its peers are, and why, where one is.")
    clocks: list[str] = Field(default_factory=empty_list, description="Of each other node, how its clock goes.")
    summary_sha256: str = Field(description="Of telemetry/summary.json.")

    @property
    def trouble(self) -> str:
        """How the trial ended, such as `failed: server_died`; empty if it succeeded."""
        good = self.outcome == "succeeded"
        return "" if good else ": ".join(filter(None, [outcome_words(self.outcome), self.failure_code]))

    @property
    def lines(self) -> list[SeriesLine]:
        return [line for panel in self.panels for line in panel.lines]

    @property
    def summary(self) -> str:
        """The source of the statistics."""
        return f"{self.folder}/telemetry/summary.json"


class _Plot(NamedTuple):
    title: str
    short: str
    unit: str
    series: dict[str, tuple[str, ...]]  # by kind of scope


_PLOTS = (
    _Plot("CPU", "CPU", "cores", {"node": ("cpu_busy",), "trial": ("cpu",), "service": ("cpu",)}),
    _Plot("Memory of processes", "memory", "B", {"trial": ("rss",), "service": ("rss",)}),
    _Plot("Memory of the machine", "memory", "B", {"node": ("memory_used",)}),
    _Plot("Requests at the server", "", "requests", {"service": ("requests_running", "requests_waiting")}),
    _Plot("GPU busy", "busy", "1", {"gpu": ("gpu_busy",)}),
    _Plot("GPU memory", "memory", "B", {"gpu": ("gpu_memory_used",)}),
    _Plot("GPU power", "power", "W", {"gpu": ("gpu_power",)}),
)


def gather_machine(root: Path, rows: Iterable[Row], labels: Mapping[tuple[str, str], str]) -> list[MachineFacts]:
    """Return, for each point (run and instance digest), its median trial by duration among those with telemetry."""
    trials = grouped((row for row in rows if row["outcome"] == "succeeded"), itemgetter("run_id", "instance_digest"))
    machines: list[MachineFacts] = []
    for key, label in labels.items():
        if len(machines) == MOST_POINTS:
            break
        chosen = median_trial(trials.get(key, []), lambda row: _sampled(root / row["folder"]), "telemetry")
        facts = _facts(root, chosen[0], label, chosen[1]) if chosen else None
        machines += [facts] if facts else []
    return machines


def gather_failed(root: Path, rows: Iterable[Row], label: Callable[[Row], str]) -> list[MachineFacts]:
    """Return, of the unsuccessful trials with telemetry, the first of each kind at each point."""
    failed = (row for row in rows if row["outcome"] != "succeeded")
    kinds = grouped(failed, itemgetter("run_id", "instance_digest", "outcome", "failure_code"))
    machines: list[MachineFacts] = []
    for members in kinds.values():
        watched = [row for row in members if _sampled(root / row["folder"])]
        if not watched or len(machines) == MOST_FAILED:
            continue
        chosen = "the only trial that ended so" if len(members) == 1 else f"one of {len(members)} trials that ended so"
        facts = _facts(root, watched[0], label(watched[0]), chosen)
        machines += [facts] if facts else []
    return machines


def _sampled(folder: Path) -> bool:
    """Whether there are series: a trial shorter than an interval has only a summary."""
    return any((folder / "telemetry").glob("*.parquet"))


def _facts(root: Path, row: Row, point: str, chosen: str) -> MachineFacts | None:
    """Return the facts of a trial; None if the evidence is gone or differs from its seal."""
    try:
        sealed = open_sealed(root, row)
        summary_bytes = sealed.content("telemetry/summary.json")
        summary = older.read(TelemetrySummary, summary_bytes)
        panels = _panels(sealed, summary)
    except (OSError, ValueError, KeyError, ValidationError):  # pyarrow's read errors are ValueErrors, too
        return None
    if not panels:
        return None
    return MachineFacts(
        point=point,
        run_id=row["run_id"],
        trial_id=row["trial_id"],
        repetition=row["repetition"],
        folder=row["folder"],
        outcome=row["outcome"],
        failure_code=row["failure_code"] or "",
        chosen=chosen,
        duration_s=summary.duration_s,
        interval_s=summary.interval_s,
        ticks_missed=summary.ticks_missed,
        energy_j=summary.energy_j,
        phases=[phase for phase in summary.phases if phase.name != WHOLE] or summary.phases,
        panels=panels,
        figures=_figures(summary),
        abnormal=summary.abnormal.says if summary.abnormal else "",
        clocks=[_clock(node) for node in summary.nodes],
        summary_sha256=hashlib.sha256(summary_bytes).hexdigest(),
    )


def _panels(sealed: Sealed, summary: TelemetrySummary) -> list[Panel]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables: dict[str, pa.Table] = {}
    panels = []
    for plot in _PLOTS:
        lines = []
        for scope, series in _drawn(plot, summary):
            if not (name := summary.scopes[scope].file):
                continue
            file = f"telemetry/{name}"
            if file not in tables:
                tables[file] = pq.read_table(pa.BufferReader(sealed.content(file)))
            times, values = (tables[file].column(column).to_pylist() for column in ("time_s", series))
            counter = summary.scopes[scope].series[series].kind == "counter"
            if counter:
                places = rates(times, values, summary.interval_s)
            else:  # the last sample may be taken after the end, when the processes are gone
                places = [place for place in known(times, values) if place[0] <= summary.duration_s]
            if places:
                shown = thinned(places)
                label = _name(scope, summary) + (f", {series.replace('_', ' ')}" if not plot.short else "")
                lines.append(
                    SeriesLine(
                        scope=scope,
                        series=series,
                        label=label,
                        file=file,
                        sha256=sealed.manifest.files[file].sha256,
                        samples=len(places),
                        times_s=[time for time, _ in shown],
                        values=[value for _, value in shown],
                    )
                )
        panels += [Panel(title=plot.title, unit=plot.unit, lines=lines)] if lines else []
    return panels


def _drawn(plot: _Plot, summary: TelemetrySummary) -> list[tuple[str, str]]:
    """Return scope and series of the plotted series that this trial has."""
    return [
        (scope, series)
        for scope, sampled in summary.scopes.items()
        for series in plot.series.get(_kind(_part(scope, summary)), ())
        if series in sampled.series
    ]


def _kind(scope: str) -> str:
    """Return `service` for `service:db`, `gpu` for `gpu0`."""
    return scope.partition(":")[0].rstrip("0123456789")


def _part(scope: str, summary: TelemetrySummary) -> str:
    """Return `trial` for `node02/trial`."""
    return scope.removeprefix(f"{summary.scopes[scope].node}/")


def _name(scope: str, summary: TelemetrySummary) -> str:
    """Return the display name: `db` for `service:db`, unless that is another scope's name; `node02 db` on
    another node.
    """
    part, node = _part(scope, summary), summary.scopes[scope].node
    name = part.partition(":")[2]
    name = part if not name or _kind(name) in ("node", "trial", "gpu") else name
    return f"{node} {name}" if node else name


def _clock(node: NodeSummary) -> str:
    if node.clock_ahead_s is None or node.clock_uncertainty_s is None:
        return f"{node.name}: {node.problem}"
    problem = f"; {node.problem}" if node.problem else ""
    return f"{node.name} {node.clock_ahead_s * 1000:+,.2f} ms (within {node.clock_uncertainty_s * 1000:.2f}){problem}"


def known(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points without values that could not be read or can't be drawn."""
    return [(time, value) for time, value in zip(times, values, strict=True) if isfinite(value)]


def rates(times: Sequence[float], values: Sequence[float], interval_s: float) -> list[tuple[float, float]]:
    """Return the growth per second of a counter, at the middle of each interval."""
    return [
        ((before[0] + after[0]) / 2, (after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(known(times, values))
        if after[0] - before[0] >= _LEAST * interval_s
    ]


def thinned(places: Sequence[tuple[float, float]], most: int = MOST_SAMPLES) -> list[tuple[float, float]]:
    """Return at most `most` samples: the minimum and maximum of each of equal buckets, so that no peak is lost."""
    if len(places) <= most:
        return list(places)
    buckets = most // 2
    edges = [at * len(places) // buckets for at in range(buckets + 1)]
    kept: list[tuple[float, float]] = []
    for begin, end in pairwise(edges):
        bucket = places[begin:end]
        ends = {min(bucket, key=lambda place: place[1]), max(bucket, key=lambda place: place[1])}
        kept += sorted(ends)
    return kept


def _figures(summary: TelemetrySummary) -> list[PhaseSummary]:
    names = list(dict.fromkeys(phase.name for phase in summary.phases))
    phases = [name for name in names if name != WHOLE] or names
    return [
        PhaseSummary(
            label=f"{_name(scope, summary)} {plot.short or series.replace('_', ' ')}",
            scope=scope,
            series=series,
            unit=plot.unit,
            phase=phase,
            **stats.model_dump(include={"n", "avg", "p95", "max"}),
            few=shaky("p95", stats.n) if "p95" in stats.too_few_for else "",
        )
        for plot in _PLOTS
        for scope, series in _drawn(plot, summary)
        for phase in phases
        if (stats := summary.stats(scope, series, phase)) is not None
    ]
