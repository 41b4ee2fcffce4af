"""Telemetry of trials as columns: a run has thousands of rows, and as one dict each they would cost most of all."""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.topology import Topology
from benchhouse.warehouse.columns import column
from benchhouse.warehouse.labels import utc
from benchhouse.warehouse.table import Row
from benchhouse.warehouse.tables import TELEMETRY_SLICE_FACT

if TYPE_CHECKING:
    import pyarrow as pa

_STATS = ("n", "avg", "min", "max", "p50", "p95", "p99", "too_few_for", "growth")
_OF_THE_TRIAL = {
    "trial_id": "trial_id", "run_id": "run_id", "benchmark_case_id": "benchmark_case_id",
    "workload_spec_digest": "workload_spec_digest", "artifact_manifest_digest": "artifact_manifest_digest",
    "instance_digest": "instance_digest", "node_name": "host", "repetition": "repetition", "warmup": "warmup",
    "outcome": "outcome",
}  # fmt: skip
"""Columns that are the same in all slices of a trial, and those of trial_fact that they come from."""
_OWN = tuple(one.name for one in TELEMETRY_SLICE_FACT.columns if one.name not in _OF_THE_TRIAL)
_GPU, _RANK = re.compile(r"gpu(\d+)"), re.compile(r"rank:?(\d+)")


@dataclass(frozen=True)
class Slices:
    """The slices of one trial, sorted by scope, series and phase; `columns` has what differs between them."""

    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.columns["scope"])


NO_SLICES = Slices({name: [] for name in _OWN})


def slice_up(telemetry: TelemetrySummary, topology: Topology | None) -> Slices:
    """One slice a scope, series and phase; a phase in several parts is one, from the first to the last."""
    ends: dict[str, tuple[float, float]] = {}
    for phase in telemetry.phases:
        begin_s, end_s = ends.get(phase.name, (phase.begin_s, phase.end_s))
        ends[phase.name] = min(begin_s, phase.begin_s), max(end_s, phase.end_s)
    start = utc(telemetry.started)
    times = {name: tuple(_after(start, at) for at in both) for name, both in ends.items()}
    rows = []
    for scope, found in sorted(telemetry.scopes.items()):
        about = (_uuid(scope, topology), _number(_RANK, scope), None, None)
        for series, one in sorted(found.series.items()):
            for phase_name, stats in sorted(one.phases.items()):
                rows.append((
                    *about, phase_name, scope, series, one.family, one.kind, one.unit,
                    *(getattr(stats, name) for name in _STATS), *ends[phase_name], *times[phase_name],
                    telemetry.interval_s,
                ))  # fmt: skip
    return Slices(dict(zip(_OWN, map(list, zip(*rows, strict=True)), strict=True))) if rows else NO_SLICES


def slices_of(table: "pa.Table") -> dict[tuple[str, str], Slices]:
    """What `join` wrote, by trial and manifest. The rows of a trial stand together."""
    trials, manifests = (table.column(name).to_pylist() for name in ("trial_id", "artifact_manifest_digest"))
    own = {name: table.column(name).to_pylist() for name in _OWN}
    found: dict[tuple[str, str], Slices] = {}
    begin = 0
    for at in range(1, len(trials) + 1):
        if at == len(trials) or trials[at] != trials[begin]:
            part = {name: values[begin:at] for name, values in own.items()}
            found[trials[begin], manifests[begin]] = Slices(part)
            begin = at
    return found


def join(parts: Sequence[tuple[Row, Slices]]) -> "pa.Table":
    """The table of these trials, (row of trial_fact, its slices) each, sorted by trial."""
    import pyarrow as pa

    schema = TELEMETRY_SLICE_FACT.schema()
    places = array("i")
    for at, (_, slices) in enumerate(parts):
        places.extend([at] * len(slices))
    index = pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])
    columns = []
    for field in schema:
        if source := _OF_THE_TRIAL.get(field.name):
            each = column([row[source] for row, _ in parts], field.type)
            columns.append(pa.DictionaryArray.from_arrays(index, each).dictionary_decode())
        else:
            columns.append(column([value for _, one in parts for value in one.columns[field.name]], field.type))
    return pa.Table.from_arrays(columns, schema=schema)


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
