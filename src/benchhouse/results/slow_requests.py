"""The slowest requests of a trial, or its fullest seconds: which rows of its raw files to look at first."""

import csv
from pathlib import Path

from benchhouse.schema.layout import TrialFolder

_SHOWN = 3


def slowest(folder: TrialFolder) -> tuple[str, list[str]]:
    """The file, relative to the folder, and a line a request or second; empty where the trial kept neither.

    Times are seconds since the start of the trial's own window.
    """
    for path, read in (
        (folder.artifacts / "requests.parquet", _requests),
        (folder.samples, _samples),
        (folder.artifacts / "intervals.csv", _seconds),
    ):
        try:
            lines = read(path) if path.is_file() else []
        except (OSError, ValueError, KeyError):  # damaged: `bench verify` says so, here the others count
            continue
        if lines:
            return path.relative_to(folder.path).as_posix(), lines
    return "", []


def _requests(path: Path) -> list[str]:
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


def _samples(path: Path) -> list[str]:
    """Samples of times stand in the order in which they were told; a row's number is its line in the file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as tables

    kinds = {"metric": pa.string(), "window": pa.string(), "value": pa.float64(), "unit": pa.string()}
    table = tables.read_csv(
        path, convert_options=tables.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    )
    table = table.append_column("line", pa.array(range(2, len(table) + 2)))  # the first is the head
    table = table.filter((pc.field("window") == "") & pc.field("unit").isin(["s", "ms", "us", "µs", "ns"]))
    found = []
    for metric in pc.unique(table["metric"]).to_pylist()[:1]:
        rows = (
            table.filter(pc.field("metric") == metric).sort_by([("value", "descending")]).slice(0, _SHOWN).to_pylist()
        )
        found = [f"line {row['line']}: {metric} {row['value']:.4g} {row['unit']}" for row in rows]
    return found


def _seconds(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    fullest = sorted(rows, key=lambda row: (-int(row["in_flight"]), -int(row["errors"])))[:_SHOWN]
    return [
        f"second {row['second']}: {row['in_flight']} in flight, {row['completed']} completed, {row['errors']} errors"
        for row in fullest
        if int(row["in_flight"])
    ]
