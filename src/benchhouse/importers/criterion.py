"""Criterion.rs: the output of `cargo criterion --message-format=json`, one message per line."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "criterion"
_TOLD = {"mean": "mean", "median": "p50"}
_FORMULA = "of one iteration: a sample's value / its iterations. Single iterations are not in the file, warm-up neither"
_TIME = their(TOOL, "time_ns", "ns", f"wall time {_FORMULA}", "lower", "latency")
_SLOPE = their(
    TOOL, "slope_ns", "ns", "slope of a line through 0 of time over iterations, as Criterion says it", "lower"
)


def claims(head: bytes, name: str) -> bool:
    return head.startswith(b'{"reason":') and b'"iteration_count"' in head and b'"measured_values"' in head


def read(file: ForeignFile) -> Imported:
    cases = list[ImportedCase]()
    for number, line in file.lines():
        message = JsonNode(file.decode(line, number), "", lambda text, at=number: file.problem(text, at))  # type: ignore[misc]
        if message["reason"].text() == "benchmark-complete":
            cases.append(_case(message))
    if not cases:
        file.problem("no benchmark is complete in it")
    return Imported(TOOL, None, cases)


def _case(message: JsonNode) -> ImportedCase:
    case = ImportedCase({"name": message["id"].text()})
    unit = message["unit"].text()
    totals, counts = message["measured_values"].numbers(), message["iteration_count"].numbers()
    if len(totals) != len(counts) or min(counts, default=1.0) < 1:
        message["iteration_count"].refuse(f"{len(counts)} counts from 1 expected for {len(totals)} values")
    own = their(TOOL, "measured", unit, f"what the benchmark's own measurement says {_FORMULA}")
    metric = _TIME if unit == "ns" else own
    told = {stat: message[key]["estimate"].number() for key, stat in _TOLD.items() if _unit(message[key], unit)}
    case.add(metric, (total / count for total, count in zip(totals, counts, strict=True)), told)
    if (slope := message.get("slope")) is not None and _unit(slope, "ns"):
        case.add_figure(_SLOPE, slope["estimate"].number())
    case.facts["iterations"] = counts
    if (throughput := message.get("throughput")) is not None:
        case.facts["throughput"] = throughput.value
    return case


def _unit(estimate: JsonNode, unit: str) -> bool:
    return estimate["unit"].text() == unit


CRITERION = Importer("cargo criterion --message-format=json", claims, read)
