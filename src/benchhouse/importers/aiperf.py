"""AIPerf: the requests in `profile_export.jsonl`, or the summary in `profile_export_aiperf.json`."""

from array import array

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.experiment import Direction, Metric, Role
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "aiperf"
_KNOWN = 1
_NAMES: dict[str, tuple[str, Direction | None, Role | None]] = {
    "time_to_first_token": ("ttft", "lower", None),
    "request_latency": ("e2e", "lower", "latency"),
    "inter_token_latency": ("tpot", "lower", None),
    "request_throughput": ("requests_per_s", "higher", None),
    "output_token_throughput": ("output_tokens_per_s", "higher", "throughput"),
    "output_sequence_length": ("output_tokens", None, None),
    "input_sequence_length": ("input_tokens", None, None),
}
_ERRORS = their(TOOL, "error_rate", "1", "requests with an error / all of the profiling phase", "lower", "error_rate")
_MEANS = "counted from when the request was really sent; good requests only"


def claims(head: bytes, name: str) -> bool:
    return b'"aiperf_version"' in head or (b'"benchmark_phase"' in head and b'"metrics"' in head)


def read(file: ForeignFile) -> Imported:
    if b'"benchmark_phase"' in file.head() and b'"aiperf_version"' not in file.head():
        return _records(file)
    return _summary(file.json(), file)


def _metric(key: str, unit: str, stat: str = "") -> Metric:
    name, direction, role = _NAMES.get(key, (key, None, None))
    about = f"{stat + ' of: ' if stat else ''}{key.replace('_', ' ')}, {_MEANS}"
    named = f"{name}_{stat}" if stat else name
    return their(TOOL, named, unit, about, direction, role if stat in ("", "p50") else None)


def _records(file: ForeignFile) -> Imported:
    values: dict[tuple[str, str], array[float]] = {}
    requests = errors = 0
    for number, line in file.lines():
        node = JsonNode(file.decode(line, number), "", lambda message, at=number: file.problem(message, at))  # type: ignore[misc]
        if node["metadata"].maybe_text("benchmark_phase") not in (None, "profiling"):
            continue
        requests += 1
        if node.get("error") is not None:
            errors += 1
            continue
        for key, metric in node["metrics"].members():
            samples = values.setdefault((key, metric["unit"].text()), array("d"))
            value = metric["value"]
            samples.extend(value.numbers() if isinstance(value.value, list) else [value.number()])
    case = ImportedCase({"name": "aiperf"})
    for (key, unit), samples in values.items():
        case.add(_metric(key, unit), samples)
    if requests:
        case.add_figure(_ERRORS, errors / requests)
    case.missing["tool's own figures"] = "they are in profile_export_aiperf.json"
    return Imported(TOOL, None, [case])


def _summary(document: JsonNode, file: ForeignFile) -> Imported:
    schema = document.maybe_text("schema_version") or "1"
    if schema.partition(".")[0] != str(_KNOWN):
        file.problem(f"its format has version {schema}; {_KNOWN} is known")
    model = document.at("input_config", "endpoint", "model_names")
    names = [item.text() for item in model.items()] if model is not None else []
    case = ImportedCase({"name": ", ".join(names) or "aiperf"})
    stats = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max"}
    for key, metric in document.members():
        if not isinstance(metric.value, dict) or "unit" not in metric.value or "avg" not in metric.value:
            continue
        single = "p50" not in metric.value
        for theirs, stat in stats.items():
            if (value := metric.maybe_number(theirs)) is not None:
                case.add_figure(_metric(key, metric["unit"].text(), "" if single else stat), value)
    case.add_figure(_ERRORS, _error_rate(document), "the summary does not count them")
    if (cancelled := document.get("was_cancelled")) is not None and cancelled.value is True:
        case.doubts.append(("aiperf_cancelled", "AIPerf was cancelled: its figures are of the requests until then"))
    case.missing["samples"] = "they are in profile_export.jsonl"
    return Imported(TOOL, document.maybe_text("aiperf_version"), [case], document.maybe_text("start_time"))


def _error_rate(document: JsonNode) -> float | None:
    good, bad = (document.maybe_number(key, "avg") for key in ("request_count", "error_request_count"))
    if bad is None and (told := document.get("error_summary")) is not None:
        bad = sum(error["count"].number() for error in told.items())
    return bad / (good + bad) if good is not None and bad is not None and good + bad else None


AIPERF = Importer("AIPerf: profile_export.jsonl, profile_export_aiperf.json", claims, read)
