"""pytest-benchmark: the output of `--benchmark-json`, and files in the folder `.benchmarks`."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "pytest-benchmark"
_KNOWN = 5
TIME = their(
    TOOL, "time_ms", "ms",
    "of one call: a round's time / its calls. A round makes `iterations` calls, so single calls are not in the file",
    "lower", "latency",
)  # fmt: skip
_TOLD = {"mean": "mean", "stdev": "stddev", "min": "min", "max": "max", "p50": "median"}
_PER_S = their(TOOL, "calls_per_s", "1/s", "1 / mean time of a call", "higher", "throughput")


def claims(head: bytes, name: str) -> bool:
    return b'"machine_info"' in head[:500] and b'"python_implementation' in head


def read(file: ForeignFile) -> Imported:
    document = file.json()
    version = document["version"].text()
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) > _KNOWN:
        file.problem(f"written by version {version}; up to {_KNOWN} is known")
    cases = [_case(item) for item in document["benchmarks"].items()]
    commit = document.maybe_text("commit_info", "id")
    for case in cases:
        case.facts["commit"] = commit
    when, where = document.maybe_text("datetime"), document.maybe_text("machine_info", "node")
    return Imported(TOOL, version, cases, when, where)


def _case(item: JsonNode) -> ImportedCase:
    settings: dict[str, Setting] = {}
    if (params := item.get("params")) is not None:
        settings = {name: str(node.value) for name, node in params.members()}
    case = ImportedCase({"name": (item.get("fullname") or item["name"]).text()}, settings)
    stats = item["stats"]
    told = {ours: stats.maybe_number(theirs) for ours, theirs in _TOLD.items()}
    milliseconds = {stat: None if value is None else value * 1e3 for stat, value in told.items()}
    if (data := stats.get("data")) is not None:
        case.add(TIME, (value * 1e3 for value in data.numbers()), milliseconds)
    else:
        for stat, value in milliseconds.items():
            formula = f"{stat} of the times of rounds / calls, as pytest-benchmark says it"
            case.add_figure(their(TOOL, f"time_{stat}_ms", "ms", formula, "lower"), value)
        case.missing["samples"] = "the file has no data: pytest needs --benchmark-save-data to keep it"
    case.add_figure(_PER_S, stats.maybe_number("ops"))
    case.facts |= {"rounds": stats.maybe_number("rounds"), "iterations": stats.maybe_number("iterations")}
    return case


PYTEST_BENCHMARK = Importer("pytest --benchmark-json", claims, read)
