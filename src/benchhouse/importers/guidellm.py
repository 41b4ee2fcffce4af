"""guidellm: `benchmarks.json`, with the requests of each load."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "guidellm"
_KNOWN = (1, 2)
_SENT = "counted from when the request was really sent; good requests only"
_PER_REQUEST = {
    "time_to_first_token_ms": (their(TOOL, "ttft", "ms", f"to the first output, {_SENT}", "lower"), 1.0),
    "inter_token_latency_ms": (their(TOOL, "itl", "ms", "of a request: mean gap of its tokens", "lower"), 1.0),
    "time_per_output_token_ms": (their(TOOL, "tpot", "ms", "of a request: its time / its output tokens", "lower"), 1.0),
    "request_latency": (their(TOOL, "e2e", "ms", f"to the end of the answer, {_SENT}", "lower", "latency"), 1e3),
}
_RATES = {
    "requests_per_second": their(TOOL, "requests_per_s", "1/s", "mean rate of good requests", "higher"),
    "output_tokens_per_second": their(TOOL, "output_tokens_per_s", "tokens/s", "mean rate of tokens of good requests",
                                      "higher", "throughput"),
}  # fmt: skip
_NOT_DONE = "those cut off at the end count as neither"
_ERRORS = their(
    TOOL, "error_rate", "1", f"errored requests / errored and good ones; {_NOT_DONE}", "lower", "error_rate"
)
_WHY = "guidellm takes values from a cumulated distribution, without interpolation, and weighs tokens where it can"
_TOLD = {"mean": ("mean",), "stdev": ("std_dev",), "min": ("min",), "max": ("max",), "p50": ("median",),
         "p90": ("percentiles", "p90"), "p95": ("percentiles", "p95"), "p99": ("percentiles", "p99"),
         "p99.9": ("percentiles", "p999")}  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return b'"guidellm_version"' in head


def read(file: ForeignFile) -> Imported:
    document = file.json()
    about = document["metadata"]
    if (version := about["version"].number()) not in _KNOWN:
        file.problem(f"its format has version {version:g}; {' and '.join(map(str, _KNOWN))} are known")
    cases = [_case(item) for item in document["benchmarks"].items()]
    return Imported(TOOL, about.maybe_text("guidellm_version"), cases, None, about.maybe_text("platform"))


def _case(item: JsonNode) -> ImportedCase:
    strategy = item.at("config", "strategy")
    settings: dict[str, Setting] = {}
    for name, node in strategy.members() if strategy is not None else ():
        if isinstance(node.value, str | int | float | bool):
            settings[name.removesuffix("_")] = node.value
    case = ImportedCase({"name": item.maybe_text("config", "backend", "model") or "guidellm"}, settings)
    good = list(item["requests"]["successful"].items())
    bad = len(list(item["requests"]["errored"].items()))
    for key, (metric, scale) in _PER_REQUEST.items():
        told = item.at("metrics", key, "successful")
        figures = {stat: told.maybe_number(*path) for stat, path in _TOLD.items()} if told is not None else {}
        scaled = {stat: None if value is None else value * scale for stat, value in figures.items()}
        samples = [value * scale for request in good if (value := request.maybe_number(key)) is not None]
        case.add(metric, samples, scaled, _WHY)
    for key, metric in _RATES.items():
        case.add_figure(metric, item.maybe_number("metrics", key, "successful", "mean"))
    case.add_figure(_ERRORS, bad / (bad + len(good)) if bad or good else None, "there is no request")
    return case


GUIDELLM = Importer("guidellm: benchmarks.json", claims, read)
