"""The raw files with a trial's requests: their longest common stall (hold), and the slowest requests.

A trial stores one row per request, a sample of each, or one row per second; the finest readable file is used.
"""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchhouse.analysis.playbooks.stalls import longest_hold
from benchhouse.analysis.playbooks.tail import grown
from benchhouse.analysis.playbooks.values import ComparedPoint, SeriesReading, Signal
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder

if TYPE_CHECKING:
    import pyarrow as pa

SCOPE, SERIES = "requests", "held_together"
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SHOWN = 3
Content = TypeVar("Content")


def add_holds(
    workspace: WorkspaceFolder,
    case: ComparedPoint,
    facts: Mapping[str, Mapping[str, Any]],
    base: Iterable[str],
    now: Iterable[str],
) -> ComparedPoint:
    """Return the case with the longest hold as a signal, if a time grew and the trials of both sides stored a file."""
    metrics = [number.metric for number in grown(case)]
    if not metrics:
        return case
    sides = [
        [
            SeriesReading(trial_id=trial, node=facts[trial]["host"] or "", avg=hold_s)
            for trial in sorted(side)
            if (hold_s := hold_of(TrialFolder(workspace.root / facts[trial]["folder"]), metrics)) is not None
        ]
        for side in (base, now)
    ]
    if not all(sides):
        return case
    signal = Signal(scope=SCOPE, series=SERIES, unit="s", phase="trial", base=sides[0], now=sides[1])
    return case.model_copy(update={"signals": [*case.signals, signal]})


def hold_of(folder: TrialFolder, metrics: Sequence[str]) -> float | None:
    """Return the longest hold in seconds, from the finest file of the trial; None if it has no readable file."""
    holds = _read_finest(folder, _hold_of_requests, lambda path: _hold_of_samples(path, metrics), _hold_of_seconds)
    return holds[1][0] if holds else None


def slowest(folder: TrialFolder) -> tuple[str, list[str]]:
    """Return the file, relative to the folder, and one line per request or second; empty if the trial has no such file.

    Times are seconds since the start of the trial's own window.
    """
    return _read_finest(folder, _slow_requests, _slow_samples, _full_seconds) or ("", [])


def files_of(folder: TrialFolder) -> list[str]:
    """Return the file that a hold may have been read from, relative to the folder."""
    return [path.relative_to(folder.path).as_posix() for path in _paths(folder) if path.is_file()][:1]


def _paths(folder: TrialFolder) -> tuple[Path, Path, Path]:
    """Return the paths, the finest first."""
    return folder.artifacts / "requests.parquet", folder.samples, folder.artifacts / "intervals.csv"


def _read_finest(folder: TrialFolder, *readers: Callable[[Path], list[Content]]) -> tuple[str, list[Content]] | None:
    """Return the first file with any content, and the content; each file has its own reader."""
    for path, read in zip(_paths(folder), readers, strict=True):
        try:
            content = read(path) if path.is_file() else []
        except (OSError, ValueError, KeyError):  # damaged: `bench verify` reports it, here the others are used
            continue
        if content:
            return path.relative_to(folder.path).as_posix(), content
    return None


def _hold_of_requests(path: Path) -> list[float]:
    import pyarrow.compute as pc
    from pyarrow import parquet

    table = parquet.read_table(path, columns=["measured", "due_s", "ended_s"])
    table = table.filter(pc.field("measured") & pc.field("ended_s").is_valid()).sort_by("ended_s")
    return [longest_hold(pc.subtract(table["ended_s"], table["due_s"]).to_pylist())] if len(table) else []


def _hold_of_samples(path: Path, metrics: Sequence[str]) -> list[float]:
    """Read the longest hold from samples, which are in the order of their report: for requests, the order in which they
    ended.
    """
    import pyarrow.compute as pc

    table = _samples(path)
    holds = []
    for metric in metrics:
        own = table.filter(pc.field("metric") == metric)
        if len(own) and (unit := own["unit"][0].as_py()) in _SECONDS:
            holds.append(longest_hold([value * _SECONDS[unit] for value in own["value"].to_pylist()]))
    return [max(holds)] if holds else []


def _hold_of_seconds(path: Path) -> list[float]:
    """Return the longest sequence of whole seconds in which requests were in flight and none ended."""
    longest = still = 0
    for row in _seconds(path):
        still = still + 1 if int(row["in_flight"]) and not int(row["completed"]) else 0
        longest = max(longest, still)
    return [float(longest)]


def _slow_requests(path: Path) -> list[str]:
    import pyarrow.compute as pc
    from pyarrow import parquet

    table = parquet.read_table(path, columns=["index", "measured", "due_s", "ended_s", "error"])
    table = table.filter(pc.field("measured"))
    table = table.append_column("took_s", pc.subtract(table["ended_s"], table["due_s"]))
    rows = table.sort_by([("took_s", "descending")]).slice(0, _SHOWN).to_pylist()
    return [
        f"request {row['index']}: due at {row['due_s']:.3f} s, took {row['took_s'] * 1e3:.1f} ms"
        + (f", {row['error']}" if row["error"] else "")
        for row in rows
        if row["took_s"] is not None
    ]


def _slow_samples(path: Path) -> list[str]:
    """Return the slowest samples of the first metric that is a time; a row's number is its line in the file."""
    import pyarrow.compute as pc

    table = _samples(path)
    table = table.filter(pc.field("unit").isin(list(_SECONDS)))
    table = table.filter(pc.field("metric") == (table["metric"][0] if len(table) else ""))
    rows = table.sort_by([("value", "descending")]).slice(0, _SHOWN).to_pylist()
    return [f"line {row['line']}: {row['metric']} {row['value']:.4g} {row['unit']}" for row in rows]


def _samples(path: Path) -> "pa.Table":
    """Return the samples of the whole trial, with the line of each in the file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as tables

    kinds = {"metric": pa.string(), "window": pa.string(), "value": pa.float64(), "unit": pa.string()}
    options = tables.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    table = tables.read_csv(path, convert_options=options)
    table = table.append_column("line", pa.array(range(2, len(table) + 2)))  # line 1 is the header
    return table.filter(pc.field("window") == "")


def _full_seconds(path: Path) -> list[str]:
    fullest = sorted(_seconds(path), key=lambda row: (-int(row["in_flight"]), -int(row["errors"])))[:_SHOWN]
    return [
        f"second {row['second']}: {row['in_flight']} in flight, {row['completed']} completed, {row['errors']} errors"
        for row in fullest
        if int(row["in_flight"])
    ]


def _seconds(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
