"""inference-perf: `summary_lifecycle_metrics.json` and `stage_N_lifecycle_metrics.json`."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Direction, Role
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "inference-perf"
_LATENCIES: dict[str, tuple[str, Role | None]] = {
    "request_latency": ("e2e", "latency"),
    "time_to_first_token": ("ttft", None), "time_per_output_token": ("tpot", None),
    "inter_token_latency": ("itl", None),
}  # fmt: skip
_RATES: dict[str, tuple[str, str, Direction, Role | None]] = {
    "requests_per_sec": ("requests_per_s", "1/s", "higher", None),
    "output_tokens_per_sec": ("output_tokens_per_s", "tokens/s", "higher", "throughput"),
    "total_tokens_per_sec": ("tokens_per_s", "tokens/s", "higher", None),
}
_STATS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max"}


def claims(head: bytes, name: str) -> bool:
    return b'"load_summary"' in head[:500] and (b'"successes"' in head or name.endswith("lifecycle_metrics.json"))


def read(file: ForeignFile) -> Imported:
    document = file.json()
    load, good, bad = document["load_summary"], document["successes"], document["failures"]
    settings: dict[str, Setting] = {"requested_rate": load.maybe_number("requested_rate")}
    case = ImportedCase(
        {"name": "inference-perf"}, {name: value for name, value in settings.items() if value is not None}
    )
    served, failed = good["count"].number(), bad["count"].number()
    rate = failed / (served + failed) if served + failed else None
    errors = their(TOOL, "error_rate", "1", "requests that failed / all", "lower", "error_rate")
    case.add_figure(errors, rate, "there is no request")
    for key, (name, role) in _LATENCIES.items():
        for theirs, stat in _STATS.items():
            seconds = good.maybe_number("latency", key, theirs)
            if seconds is not None:
                means = f"{stat} of: {key.replace('_', ' ')}, from when the request was really sent; good requests only"
                metric = their(TOOL, f"{name}_{stat}", "ms", means, "lower", role if stat == "p50" else None)
                case.add_figure(metric, seconds * 1e3)
    for key, (name, unit, direction, role) in _RATES.items():
        metric = their(TOOL, name, unit, f"{name} of good requests, as inference-perf says it", direction, role)
        case.add_figure(metric, good.maybe_number("throughput", key))
    case.missing["samples"] = "a summary has none: they are in per_request_lifecycle_metrics.json"
    return Imported(TOOL, None, [case])


INFERENCE_PERF = Importer("inference-perf: summary_lifecycle_metrics.json, stage_N_...", claims, read)
