"""k6: the stream of points in the output of `k6 run --out json=FILE`."""

import math
import re
from array import array
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_lines import batches
from benchhouse.schema.experiment import Direction, Role
from benchhouse.schema.imported import Imported, ImportedCase, their

if TYPE_CHECKING:
    import pyarrow as pa

TOOL = "k6"
_UNITS = {"time": "ms", "data": "B"}
_MEANS = {
    "http_req_duration": "sending + waiting + receiving of a request, failed ones too, without connecting and TLS",
    "iteration_duration": "one iteration of a virtual user, its sleeps included",
}
_WORK = ("http_reqs", "iterations")  # counters for which a higher rate is better; unknown for others
_NEITHER, _POINT, _METRIC = 0, 1, 2
_TYPES = """{metric: 'VARCHAR', type: 'VARCHAR',
  data: 'STRUCT("time" VARCHAR, "value" DOUBLE, "type" VARCHAR, "contains" VARCHAR)'}"""
_SELECT = f"""coalesce(metric, '') AS metric, data.time AS time, data.type AS kind, data.contains AS contains,
  coalesce(data.value, 'NaN') AS value,
  (CASE type WHEN 'Point' THEN {_POINT} WHEN 'Metric' THEN {_METRIC} ELSE {_NEITHER} END)::TINYINT AS sort"""


def claims(head: bytes, name: str) -> bool:
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"{") and b'"metric":' in first and (b'"Metric"' in first or b'"Point"' in first)


def read(file: ForeignFile) -> Imported:
    points = _Points(file)
    for batch in batches(file, _SELECT, _TYPES):
        points.take(batch)
    if not points.lines:
        file.problem("the file is empty")
    begun, ended = points.first, points.last
    return Imported(TOOL, None, [_case(file, points)], begun.isoformat() if begun and ended else None)


class _Points:
    """The values of each metric, in the order of the file."""

    def __init__(self, file: ForeignFile) -> None:
        self._file = file
        self.values: dict[str, array[float]] = {}
        self.kinds: dict[str, tuple[str, str]] = {}
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.lines = 0

    def take(self, batch: "pa.RecordBatch") -> None:
        encoded = batch["metric"].dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes, sorts, values = map(np.from_dlpack, (encoded.indices, batch["sort"], batch["value"]))
        self._refuse(sorts == _NEITHER, "neither a 'Metric' nor a 'Point'")
        for at in np.flatnonzero(sorts == _METRIC).tolist():
            self.kinds[names[codes[at]]] = (str(batch["kind"][at]), str(batch["contains"][at]))
        points = sorts == _POINT
        self._refuse(points & ~np.isfinite(values), "a point whose value is not a finite number")
        if points.any():
            self._mark(batch["time"], np.flatnonzero(points)[[0, -1]].tolist())
        for code, name in enumerate(names):
            own = values[points & (codes == code)]
            if own.size:
                self.values.setdefault(name, array("d")).frombytes(own.tobytes())
        self.lines += len(batch)

    def _refuse(self, wrong: "np.ndarray[Any, np.dtype[np.bool_]]", message: str) -> None:
        if wrong.any():
            self._file.problem(message, self.lines + int(wrong.argmax()) + 1)

    def _mark(self, times: Any, places: list[int]) -> None:
        try:
            first, last = (datetime.fromisoformat(_short(times[at].as_py())) for at in places)
        except (TypeError, ValueError):
            self._file.problem("a point without a time of day")
        self.first = min(self.first or first, first)
        self.last = max(self.last or last, last)


def _short(stamp: str) -> str:
    """Return the time with six of its nine decimals, which is what Python accepts."""
    return re.sub(r"(\.\d{6})\d+", r"\1", stamp)


def _case(file: ForeignFile, points: _Points) -> ImportedCase:
    case = ImportedCase({"name": "k6"})
    seconds = (points.last - points.first).total_seconds() if points.first and points.last else 0.0
    for name, values in points.values.items():
        if name not in points.kinds:
            file.problem(f"points of '{name}', which no line declares: is the beginning of the file gone?")
        kind, contains = points.kinds[name]
        _add(case, name, kind, contains, values, seconds)
    case.missing["k6's own figures"] = "the stream has none: k6 prints them in its summary"
    return case


def _add(case: ImportedCase, name: str, kind: str, contains: str, values: "array[float]", seconds: float) -> None:
    unit = _UNITS.get(contains, "1")
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if kind == "trend":
        role: Role | None = "latency" if name == "http_req_duration" else None
        better: Direction | None = "lower" if contains == "time" else None
        case.add(their(TOOL, clean, unit, _MEANS.get(name, f"the trend {name} of k6"), better, role), values)
    elif kind == "rate":
        failing = name == "http_req_failed"
        own = "error_rate" if failing else clean
        formula = "requests that k6 calls failed, by default with a status of 400 or more / all" if failing else name
        metric = their(TOOL, own, "1", formula, "lower", "error_rate") if failing else their(TOOL, own, "1", formula)
        case.add_figure(metric, sum(map(bool, values)) / len(values))
    elif kind == "counter":
        case.add_figure(their(TOOL, clean, unit, f"the sum of the counter {name}"), math.fsum(values))
        if seconds:
            formula = f"{name} / seconds from the first point to the last"
            more: Direction | None = "higher" if name in _WORK else None
            whole: Role | None = "throughput" if name == "http_reqs" else None
            per_s = their(TOOL, f"{clean}_per_s", f"{unit}/s", formula, more, whole)
            case.add_figure(per_s, math.fsum(values) / seconds)
    else:
        case.add_figure(their(TOOL, clean, unit, f"the last value of the gauge {name}"), values[-1])


K6 = Importer("k6 run --out json=FILE", claims, read)
