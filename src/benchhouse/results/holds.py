"""How long the requests of each trial were held together at most, read from its raw evidence as a signal."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.analysis.playbooks.stalls import longest_hold
from benchhouse.analysis.playbooks.tail import grown
from benchhouse.analysis.playbooks.values import Case, Reading, Signal
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder

SCOPE, SERIES = "requests", "held_together"
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def add_holds(
    workspace: WorkspaceFolder,
    case: Case,
    facts: Mapping[str, Mapping[str, Any]],
    base: Iterable[str],
    now: Iterable[str],
) -> Case:
    """The case with the signal, where a time grew and the trials of both sides kept what tells it."""
    metrics = [one.metric for one in grown(case)]
    if not metrics:
        return case
    sides = [
        [
            Reading(trial_id=trial, node=facts[trial]["host"] or "", avg=held)
            for trial in sorted(side)
            if (held := hold_of(TrialFolder(workspace.root / facts[trial]["folder"]), metrics)) is not None
        ]
        for side in (base, now)
    ]
    if not all(sides):
        return case
    signal = Signal(scope=SCOPE, series=SERIES, unit="s", phase="trial", base=sides[0], now=sides[1])
    return case.model_copy(update={"signals": [*case.signals, signal]})


def hold_of(folder: TrialFolder, metrics: Sequence[str]) -> float | None:
    """Seconds, from the finest file that the trial kept; None where it kept none that can be read."""
    for path, read in (
        (folder.artifacts / "requests.parquet", _of_requests),
        (folder.samples, lambda path: _of_samples(path, metrics)),
        (folder.artifacts / "intervals.csv", _of_seconds),
    ):
        try:
            held = read(path) if path.is_file() else None
        except (OSError, ValueError, KeyError):  # damaged: `bench verify` says so, here the others count
            continue
        if held is not None:
            return held
    return None


def files_of(folder: TrialFolder) -> list[str]:
    """Those that a hold may have been read from, relative to the folder."""
    known = (folder.artifacts / "requests.parquet", folder.samples, folder.artifacts / "intervals.csv")
    return [path.relative_to(folder.path).as_posix() for path in known if path.is_file()][:1]


def _of_requests(path: Path) -> float | None:
    import pyarrow.compute as pc
    from pyarrow import parquet

    table = parquet.read_table(path, columns=["measured", "due_s", "ended_s"])
    table = table.filter(pc.field("measured") & pc.field("ended_s").is_valid()).sort_by("ended_s")
    return longest_hold(pc.subtract(table["ended_s"], table["due_s"]).to_pylist()) if len(table) else None


def _of_samples(path: Path, metrics: Sequence[str]) -> float | None:
    """Samples are kept in the order in which they were told: of requests, that in which they ended."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as tables

    kinds = {"metric": pa.string(), "window": pa.string(), "value": pa.float64(), "unit": pa.string()}
    options = tables.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    table = tables.read_csv(path, convert_options=options)
    found = []
    for metric in metrics:
        own = table.filter((pc.field("metric") == metric) & (pc.field("window") == ""))
        if len(own) and (unit := own["unit"][0].as_py()) in _SECONDS:
            found.append(longest_hold([value * _SECONDS[unit] for value in own["value"].to_pylist()]))
    return max(found, default=None)


def _of_seconds(path: Path) -> float:
    """Whole seconds after one another in which requests were under way and none ended."""
    longest = still = 0
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            still = still + 1 if int(row["in_flight"]) and not int(row["completed"]) else 0
            longest = max(longest, still)
    return float(longest)
