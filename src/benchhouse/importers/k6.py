"""k6: the stream of points that `k6 run --out json=FILE` writes."""

import math
import re
from array import array
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Case, Imported, Importer, their

TOOL = "k6"
_BLOCK = 8 << 20
_MOST_LINE = 1 << 20
_UNITS = {"time": "ms", "data": "B"}
_MEANS = {
    "http_req_duration": "sending + waiting + receiving of a request, failed ones too, without connecting and TLS",
    "iteration_duration": "one iteration of a virtual user, its sleeps included",
}
_ROW = re.compile(r"in row (\d+)")


def claims(head: bytes, name: str) -> bool:
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"{") and b'"metric":' in first and (b'"Metric"' in first or b'"Point"' in first)


def read(file: ForeignFile) -> Imported:
    points = _Points(file)
    for block, line in _blocks(file):
        points.take(block, line)
    begun, ended = points.first, points.last
    return Imported(TOOL, None, [_case(file, points)], begun.isoformat() if begun and ended else None)


def _blocks(file: ForeignFile) -> Iterator[tuple[bytes, int]]:
    """Whole lines, some MiB at a time, with the number of the first."""
    rest, line = b"", 1
    with file.open() as stream:
        while data := stream.read(_BLOCK):
            data = rest + data
            cut = data.rfind(b"\n") + 1
            block, rest = data[:cut], data[cut:]
            if len(rest) > _MOST_LINE:
                file.problem("a line of more than 1 MiB", line + block.count(b"\n"))
            if block:
                yield block, line
                line += block.count(b"\n")
    if rest.strip():
        yield rest, line
    elif line == 1:
        file.problem("the file is empty")


class _Points:
    """The values of each metric, in the order of the file."""

    def __init__(self, file: ForeignFile) -> None:
        import pyarrow as pa
        from pyarrow import json

        self._file, self._json = file, json
        data = pa.struct([(name, pa.string()) for name in ("time", "type", "contains")] + [("value", pa.float64())])
        schema = pa.schema([("metric", pa.string()), ("type", pa.string()), ("data", data)])
        self._options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self._read = json.ReadOptions(use_threads=False, block_size=2 * _BLOCK)
        self.values: dict[str, array[float]] = {}
        self.kinds: dict[str, tuple[str, str]] = {}
        self.first: datetime | None = None
        self.last: datetime | None = None

    def take(self, block: bytes, line: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            table = self._json.read_json(pa.BufferReader(block), self._read, self._options)
        except pa.ArrowInvalid as error:
            row = _ROW.search(str(error))
            self._file.problem(f"not a line of k6: {error}", line + int(row[1]) if row else line)
        table = table.combine_chunks()
        kinds, names, data = (table.column(name).combine_chunks() for name in ("type", "metric", "data"))
        if kinds.null_count or names.null_count:
            self._file.problem("a line without 'type' or 'metric'", line + self._first_null(kinds, names))
        for at in pc.indices_nonzero(pc.equal(kinds, "Metric")).to_pylist():
            about = data[at].as_py() or {}
            self.kinds[names[at].as_py()] = (str(about.get("type")), str(about.get("contains")))
        are_points = pc.equal(kinds, "Point")
        names, data = names.filter(are_points), data.filter(are_points)
        if not len(names):
            return
        values = data.field("value")
        if data.null_count or values.null_count:
            self._file.problem("a point without a value", line)
        self._mark(data.field("time"))
        encoded = names.dictionary_encode()
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            own = values.filter(pc.equal(encoded.indices, code))
            self.values.setdefault(name, array("d")).frombytes(own.to_numpy(zero_copy_only=False).tobytes())

    @staticmethod
    def _first_null(*columns: Any) -> int:
        return min(int(column.is_null().index(True).as_py()) for column in columns if column.null_count)

    def _mark(self, times: Any) -> None:
        try:
            first, last = (datetime.fromisoformat(_short(times[at].as_py())) for at in (0, len(times) - 1))
        except (TypeError, ValueError):
            self._file.problem("a point without a time of day")
        self.first = min(self.first or first, first)
        self.last = max(self.last or last, last)


def _short(stamp: str) -> str:
    """Of nine digits behind the point, the six that Python takes."""
    return re.sub(r"(\.\d{6})\d+", r"\1", stamp)


def _case(file: ForeignFile, points: _Points) -> Case:
    case = Case({"name": "k6"})
    seconds = (points.last - points.first).total_seconds() if points.first and points.last else 0.0
    for name, values in points.values.items():
        if name not in points.kinds:
            file.problem(f"points of '{name}', which no line declares: is the beginning of the file gone?")
        kind, contains = points.kinds[name]
        if not math.isfinite(sum(values)):
            file.problem(f"'{name}' has a value that is not a finite number")
        _add(case, name, kind, contains, values, seconds)
    case.missing["k6's own figures"] = "the stream has none: k6 prints them in its summary"
    return case


def _add(case: Case, name: str, kind: str, contains: str, values: "array[float]", seconds: float) -> None:
    unit = _UNITS.get(contains, "1")
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if kind == "trend":
        role: Role | None = "latency" if name == "http_req_duration" else None
        case.add(their(TOOL, clean, unit, _MEANS.get(name, f"the trend {name} of k6"), "lower", role), values)
    elif kind == "rate":
        failing = name == "http_req_failed"
        own = "error_rate" if failing else clean
        formula = "requests that k6 calls failed, by default with a status of 400 or more / all" if failing else name
        metric = their(TOOL, own, "1", formula, "lower", "error_rate") if failing else their(TOOL, own, "1", formula)
        case.add_figure(metric, sum(map(bool, values)) / len(values))
    elif kind == "counter":
        case.add_figure(their(TOOL, clean, unit, f"the sum of the counter {name}"), math.fsum(values))
        if seconds:
            per_s = their(TOOL, f"{clean}_per_s", f"{unit}/s", f"{name} / seconds from the first point to the last",
                          "higher", "throughput" if name == "http_reqs" else None)  # fmt: skip
            case.add_figure(per_s, math.fsum(values) / seconds)
    else:
        case.add_figure(their(TOOL, clean, unit, f"the last value of the gauge {name}"), values[-1])


K6 = Importer("k6 run --out json=FILE", claims, read)
