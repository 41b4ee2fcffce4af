"""Trace files: the arrival times of a recorded load, as text, CSV or JSON lines."""

import csv
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

_NS_EXACT = Decimal(1_000_000_000)
_JSON = json.JSONDecoder(parse_float=Decimal)
_LATEST_S = Decimal(10**12)  # of a trace's timestamp: seconds of the Unix epoch are far below, nanoseconds far above


@lru_cache(maxsize=16)
def check_trace(path: Path, size: int, changed_ns: int) -> None:
    """Reads the file once, however often the same scenario is validated: size and time of change tell it apart."""
    for _ in read_trace(path):
        pass


def read_trace(path: Path) -> Iterator[int]:
    """Timestamps in nanoseconds, one at a time; ValueError with the line where one is wrong or out of order."""
    before = None
    for line, text in _timestamps(path):
        try:
            seconds = Decimal(text)
            fits = -_LATEST_S < seconds < _LATEST_S  # False for infinity; NaN can't be compared and raises
        except (InvalidOperation, TypeError, ValueError):
            fits = False
        if not fits:
            found = str(text).strip()[:40]
            raise ValueError(f"{path}:{line}: expected seconds, or a column `timestamp` with them, found {found!r}")
        time = int(seconds * _NS_EXACT)
        if before is not None and time < before:
            raise ValueError(f"{path}:{line}: timestamps must ascend, found {str(text).strip()} after a later one")
        before = time
        yield time
    if before is None:
        raise ValueError(f"the trace {path} has no timestamps")


def _timestamps(path: Path) -> Iterator[tuple[int, Any]]:
    """Line number and what stands for the timestamp there, whatever it is."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if not line.isspace())
        number, head = next(lines, (0, ""))
        columns = [name.strip() for name in next(csv.reader([head]), [])]
        if "timestamp" in columns:
            yield from _csv_column(file, columns.index("timestamp"), number)
        elif number:
            read = _json_timestamp if head.lstrip().startswith("{") else str
            yield number, read(head)
            yield from ((number, read(line)) for number, line in lines)


def _csv_column(file: TextIO, column: int, lines_before: int) -> Iterator[tuple[int, str]]:
    rows = csv.reader(file)
    try:
        for row in rows:
            if row:
                yield lines_before + rows.line_num, row[column] if column < len(row) else ""
    except csv.Error as error:
        raise ValueError(f"{file.name}:{lines_before + rows.line_num}: {error}") from None


def _json_timestamp(line: str) -> Any:
    try:
        return _JSON.decode(line)["timestamp"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return line  # which is no timestamp, and is shown as found
