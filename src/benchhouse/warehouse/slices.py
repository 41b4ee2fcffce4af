"""Telemetry of trials as columns. A run has thousands of rows, and as one dict each they would dominate the cost."""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.topology import Topology
from benchhouse.warehouse.labels import utc
from benchhouse.warehouse.run_tables import TELEMETRY_SLICE_FACT
from benchhouse.warehouse.table import Row

if TYPE_CHECKING:
    import pyarrow as pa

_STATS = ("n", "avg", "min", "max", "p50", "p95", "p99", "too_few_for", "growth")
_GROUPS = {
    "scope": ("node_name", "gpu_uuid", "rank_id", "request_id", "trace_id", "scope"),
    "series": ("series", "family", "kind", "unit"),
    "phase": ("phase", "begin_s", "end_s", "window_start", "window_end", "interval_s"),
}
"""Groups of columns: a trial has few distinct rows of each group, and each row is converted once."""
_OF_THE_TRIAL = {
    "trial_id": "trial_id", "run_id": "run_id", "benchmark_case_id": "benchmark_case_id",
    "workload_spec_digest": "workload_spec_digest", "artifact_manifest_digest": "artifact_manifest_digest",
    "instance_digest": "instance_digest", "repetition": "repetition", "warmup": "warmup",
    "outcome": "outcome",
}  # fmt: skip
"""Columns that are equal in all slices of a trial, and their columns in trial_fact."""
_GPU, _RANK = re.compile(r"gpu(\d+)"), re.compile(r"rank:?(\d+)")


@dataclass(frozen=True)
class ColumnGroup:
    """A group of columns: its distinct rows in the order of first use, and the row of each slice."""

    entries: list[tuple[Any, ...]]
    places: "array[int]"


@dataclass(frozen=True)
class Slices:
    """The slices of one trial, sorted by scope, series, and phase."""

    groups: Mapping[str, ColumnGroup]
    stats: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.stats["n"])


NO_SLICES = Slices({name: ColumnGroup([], array("i")) for name in _GROUPS}, {name: [] for name in _STATS})


def slice_up(telemetry: TelemetrySummary, host: str, topology: Topology | None) -> Slices:
    """Return one slice per scope, series, and phase; a phase in several parts is one, from the first to the last.

    `host` ran the experiment, and `topology` is that of `host`.
    """
    ends: dict[str, tuple[float, float]] = {}
    for phase in telemetry.phases:
        begin_s, end_s = ends.get(phase.name, (phase.begin_s, phase.end_s))
        ends[phase.name] = min(begin_s, phase.begin_s), max(end_s, phase.end_s)
    start = utc(telemetry.started)
    times = {name: tuple(_after(start, at) for at in both) for name, both in ends.items()}
    scopes, series, phases, stats = list[Any](), list[Any](), list[Any](), list[Any]()
    for scope, sampled in sorted(telemetry.scopes.items()):
        part = scope.removeprefix(f"{sampled.node}/")
        uuid = None if sampled.node else _uuid(part, topology)
        about = (sampled.node or host, uuid, _number(_RANK, part), None, None, scope)
        for name, sample in sorted(sampled.series.items()):
            what = (name, sample.family, sample.kind, sample.unit)
            for phase_name, figures in sorted(sample.phases.items()):
                scopes.append(about)
                series.append(what)
                phases.append((phase_name, *ends[phase_name], *times[phase_name], telemetry.interval_s))
                stats.append([getattr(figures, stat) for stat in _STATS])
    by_stat = dict(zip(_STATS, map(list, zip(*stats, strict=True)), strict=True)) if stats else NO_SLICES.stats
    return make_slices({"scope": scopes, "series": series, "phase": phases}, by_stat)


def make_slices(groups: Mapping[str, Sequence[tuple[Any, ...]]], stats: Mapping[str, list[Any]]) -> Slices:
    """Return slices from the rows of each group, one row per slice."""
    made = {}
    for name, rows in groups.items():
        known = {entry: at for at, entry in enumerate(dict.fromkeys(rows))}
        made[name] = ColumnGroup(list(known), array("i", [known[row] for row in rows]))
    return Slices(made, stats)


def slices_of(table: "pa.Table") -> dict[tuple[str, str], Slices]:
    """Return the slices that `join` wrote, by trial and manifest. The rows of a trial are consecutive."""
    columns = table.to_pydict()
    trials, manifests = columns["trial_id"], columns["artifact_manifest_digest"]
    groups = {group: list(zip(*(columns[name] for name in names), strict=True)) for group, names in _GROUPS.items()}
    slices: dict[tuple[str, str], Slices] = {}
    begin = 0
    for at in range(1, len(trials) + 1):
        if at == len(trials) or trials[at] != trials[begin]:
            part = {name: rows[begin:at] for name, rows in groups.items()}
            stats = {stat: columns[stat][begin:at] for stat in _STATS}
            slices[trials[begin], manifests[begin]] = make_slices(part, stats)
            begin = at
    return slices


def join(parts: Sequence[tuple[Row, Slices]]) -> "pa.Table":
    """Return the table of trials sorted by trial, each given as (row of trial_fact, its slices)."""
    import pyarrow as pa

    from benchhouse.warehouse.columns import chained, pick, spread

    schema = TELEMETRY_SLICE_FACT.schema
    kinds = {field.name: field.type for field in schema}
    made: dict[str, pa.Array] = {}
    counts = [len(slices) for _, slices in parts]
    for name, source in _OF_THE_TRIAL.items():
        made[name] = spread([row[source] for row, _ in parts], counts, kinds[name])
    for group, names in _GROUPS.items():
        entries, places = _merged([slices.groups[group] for _, slices in parts])
        for name, values in zip(names, zip(*entries, strict=True), strict=True):
            made[name] = pick(values, places, kinds[name])
    for name in _STATS:
        made[name] = chained([slices.stats[name] for _, slices in parts], kinds[name])
    arrays = [made[field.name] for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names).replace_schema_metadata(schema.metadata)


def _merged(groups: Sequence[ColumnGroup]) -> tuple[list[tuple[Any, ...]], "array[int]"]:
    """Return the distinct entries of all groups, and the entry of each slice."""
    known: dict[tuple[Any, ...], int] = {}
    places = array("i")
    last, at = list[tuple[Any, ...]](), list[int]()
    for group in groups:
        if group.entries != last:  # trials of a run mostly have the same
            last, at = group.entries, [known.setdefault(entry, len(known)) for entry in group.entries]
        if at == list(range(len(at))):  # as in the first group, the usual case
            places.extend(group.places)
        elif len(at) == 1:
            places.extend(array("i", at) * len(group.places))
        else:
            places.extend(map(at.__getitem__, group.places))
    return list(known), places


def _after(start: datetime, seconds: float) -> datetime:
    time = start + timedelta(seconds=seconds)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _uuid(scope: str, topology: Topology | None) -> str | None:
    at = _number(_GPU, scope)
    gpus = topology.gpus if topology and topology.gpus else []
    return gpus[at].uuid if at is not None and at < len(gpus) else None


def _number(pattern: re.Pattern[str], scope: str) -> int | None:
    match = pattern.fullmatch(scope)
    return int(match[1]) if match else None
