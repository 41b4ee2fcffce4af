"""JMH: the output of `-rf json`. The iterations of all forks are the samples."""

import re
from collections.abc import Mapping

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.experiment import Metric
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "jmh"
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "hr": 3.6e12, "day": 8.64e13}
_MODES = {
    "thrpt": their(TOOL, "ops_per_s", "1/s", "operations of all threads / time of an iteration", "higher",
                   "throughput"),
    "avgt": their(TOOL, "time_ns", "ns", "mean time of an operation over an iteration, in one thread", "lower",
                  "latency"),
    "ss": their(TOOL, "single_shot_ns", "ns", "time of one call, or of a batch of them, cold", "lower", "latency"),
}  # fmt: skip
_TOLD = {"0.0": "min", "50.0": "p50", "90.0": "p90", "95.0": "p95", "99.0": "p99", "99.9": "p99.9", "100.0": "max"}
_RANK = dict.fromkeys(("p90", "p95", "p99", "p99.9"), "JMH takes the value at p(n+1), counted from 1")
_OWN_SCORE = {**_RANK, "mean": "JMH's score of some secondary metrics is their sum or maximum over iterations"}
_FACTS = ("forks", "warmupIterations", "warmupTime", "measurementIterations", "measurementTime",
          "measurementBatchSize", "jdkVersion", "vmName", "vmVersion")  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return head.lstrip().startswith(b"[") and b'"primaryMetric"' in head and b'"measurementIterations"' in head


def read(file: ForeignFile) -> Imported:
    results = list(file.json().items())
    if not results:
        file.problem("there is no benchmark in it")
    return Imported(TOOL, results[0].maybe_text("jmhVersion"), [_case(result) for result in results])


def _case(result: JsonNode) -> ImportedCase:
    mode = result["mode"].text()
    settings: dict[str, Setting] = {"mode": mode, "threads": int(result["threads"].number())}
    if (parameters := result.get("params")) is not None:
        settings |= {f"param_{name}": node.text() for name, node in parameters.members()}
    case = ImportedCase({"name": result["benchmark"].text()}, settings)
    primary = result["primaryMetric"]
    scale = _scale(primary["scoreUnit"])
    if (metric := _MODES.get(mode)) is not None:
        _add(case, metric, primary, scale)
    elif mode == "sample":
        for stat, value in _told(primary, scale).items():
            formula = f"{stat} over sampled calls, as JMH says it"
            own = their(TOOL, f"sample_{stat}_ns", "ns", formula, "lower", "latency" if stat == "p50" else None)
            case.add_figure(own, value)
        case.missing["samples"] = "the mode 'sample' keeps a histogram, not the calls"
    else:
        result["mode"].refuse(f"unknown mode {mode[:60]!r}")
    for name, node in result["secondaryMetrics"].members():
        clean = re.sub(r"[^A-Za-z0-9_.-]", "", name)
        own = their(TOOL, f"secondary.{clean}"[:60], node["scoreUnit"].text(), f"the secondary metric {name} of JMH")
        _add(case, own, node, 1.0, _OWN_SCORE)
    case.facts |= {key: fact.value for key in _FACTS if (fact := result.get(key)) is not None}
    return case


def _scale(unit: JsonNode) -> float:
    """Return the factor from the unit to operations per second, or to nanoseconds."""
    first, _, second = unit.text().partition("/")
    if second == "op" and first in _NS:
        return _NS[first]
    return 1e9 / _NS[second] if first == "ops" and second in _NS else unit.refuse(f"unknown unit {unit.text()[:60]!r}")


def _add(case: ImportedCase, metric: Metric, node: JsonNode, scale: float, because: Mapping[str, str] = _RANK) -> None:
    cells = [cell for fork in node["rawData"].items() for cell in fork.items()]
    values = [cell.number() * scale for cell in cells if cell.value != "NaN"]
    if len(values) < len(cells):
        case.doubts.append(
            ("jmh_nan", f"{metric.name} is NaN in {len(cells) - len(values)} of {len(cells)} iterations")
        )
    told = _told(node, scale)
    if values:
        case.add(metric, values, told, because)
    elif cells:
        case.missing[metric.name] = "it is NaN in every iteration"
    else:
        case.add_figure(metric, told.get("mean"))
        case.missing["samples"] = "it ran with jmh.json.rawData=false: only JMH's own score is known"


def _told(node: JsonNode, scale: float) -> dict[str, float]:
    told = {stat: value for key, stat in _TOLD.items() if (value := node["scorePercentiles"].get(key)) is not None}
    return {stat: value.number() * scale for stat, value in {"mean": node["score"], **told}.items()
            if value.value != "NaN"}  # fmt: skip


JMH = Importer("JMH -rf json", claims, read)
