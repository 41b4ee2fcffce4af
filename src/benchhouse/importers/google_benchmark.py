"""Google Benchmark: the output of `--benchmark_format=json`."""

from collections import defaultdict

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "google-benchmark"
_MS = {"ns": 1e6, "us": 1e3, "ms": 1.0, "s": 1e-3}
_FORMULA = "of one iteration: the mean over `iterations` of a repetition; single iterations are not in the file"
REAL = their(TOOL, "real_time_ms", "ms", f"wall time {_FORMULA}", "lower", "latency")
ERRORS = their(TOOL, "error_rate", "1", "repetitions without a time: an error, or skipped / all", "lower", "error_rate")
CPU = their(TOOL, "cpu_time_ms", "ms", f"CPU time {_FORMULA}", "lower")
_RATES = {"items_per_second": "1/s", "bytes_per_second": "B/s"}
_AGGREGATES = {"mean": "mean", "median": "p50", "stddev": "stdev"}
_FITTED = ("real_coefficient", "cpu_coefficient")
_OWN = frozenset({
    "family_index", "per_family_instance_index",
    "repetitions", "repetition_index", "threads", "iterations", "real_time",
    "cpu_time", *_RATES,
})  # fmt: skip


def claims(head: bytes, name: str) -> bool:
    return b'"context"' in head[:200] and (b'"json_schema_version"' in head or b'"library_build_type"' in head)


def read(file: ForeignFile) -> Imported:
    document = file.json()
    context = document["context"]
    schema = context.maybe_number("json_schema_version")
    if schema is not None and schema > 1:
        file.problem(f"its format has version {schema:g}; 1 is known")
    rows: dict[str, list[JsonNode]] = defaultdict(list)
    aggregates: dict[str, list[JsonNode]] = defaultdict(list)
    for item in document["benchmarks"].items():
        name = (item.get("run_name") or item["name"]).text()
        kind = item.maybe_text("run_type") or "iteration"
        (aggregates if kind == "aggregate" else rows)[name].append(item)
    cases = [_case(name, rows[name], aggregates[name]) for name in dict.fromkeys([*rows, *aggregates])]
    debug = context.maybe_text("library_build_type") == "debug"
    for case in cases:
        if debug:
            case.doubts.append(("debug_build", "the library was built for debugging: its times mean little"))
    return Imported(TOOL, context.maybe_text("library_version"), cases, context.maybe_text("date"),
                    context.maybe_text("host_name"))  # fmt: skip


def _case(name: str, rows: list[JsonNode], aggregates: list[JsonNode]) -> ImportedCase:
    """Return the case of a benchmark; its repetitions are the samples."""
    case = ImportedCase({"name": name})
    good = []
    for row in rows:
        for flag, message in (("error_occurred", "error_message"), ("skipped", "skip_message")):
            if (said := row.get(flag)) is not None and said.value is True:
                case.doubts.append((f"repetition_{flag.partition('_')[0]}", row.maybe_text(message) or "no message"))
                break
        else:
            good.append(row)
    if rows:
        case.add_figure(ERRORS, 1 - len(good) / len(rows))
    for metric, key in ((REAL, "real_time"), (CPU, "cpu_time")):
        told = {
            stat: item[key].number() / _scale(item)
            for item in aggregates
            if (stat := _AGGREGATES.get(item.maybe_text("aggregate_name") or "")) is not None
        }
        if good:
            case.add(metric, (row[key].number() / _scale(row) for row in good), told)
        else:
            for stat, value in told.items():
                own = their(TOOL, f"{key}_{stat}_ms", "ms", f"{stat} over repetitions of {metric.formula}", "lower")
                case.add_figure(own, value)
    if not good:
        _fitted(case, aggregates)
        if not rows:
            _means(case, aggregates)
            case.missing["samples"] = "the file has aggregates of it alone"
        return case
    for key, unit in _RATES.items():
        if good[0].get(key) is not None:
            case.add(their(TOOL, key, unit, f"{key} of a repetition", "higher", "throughput"),
                     (row[key].number() for row in good))  # fmt: skip
    for key, node in good[0].members():
        if key not in _OWN and _is_number(node):
            metric = their(TOOL, _clean(key), "1", f"the counter {key} of the benchmark")
            case.add(metric, (row[key].number() for row in good))
    case.facts["iterations"] = [row.maybe_number("iterations") for row in good]
    return case


def _fitted(case: ImportedCase, aggregates: list[JsonNode]) -> None:
    """Add the curve that the library fitted to the times of a family of benchmarks."""
    for item in aggregates:
        for key in _FITTED:
            if (value := item.maybe_number(key)) is not None:
                formula = f"{key} of {item['big_o'].text()} in the curve that the library fitted to the family's times"
                case.add_figure(their(TOOL, f"{key}_ms", "ms", formula), value / _scale(item))
        if (error := item.maybe_number("rms")) is not None:
            case.add_figure(their(TOOL, "fit_rms", "1", "error of the fitted curve / mean time"), error)


def _means(case: ImportedCase, aggregates: list[JsonNode]) -> None:
    """Add mean rates and counters, if the file has no single repetitions."""
    for item in aggregates:
        if item.maybe_text("aggregate_name") != "mean":
            continue
        for key, node in item.members():
            formula = f"mean over repetitions of {key}"
            if key in _RATES:
                case.add_figure(their(TOOL, f"{key}_mean", _RATES[key], formula, "higher", "throughput"), node.number())
            elif key not in _OWN and _is_number(node):
                case.add_figure(their(TOOL, f"{_clean(key)[:55]}_mean", "1", formula), node.number())


def _is_number(node: JsonNode) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _clean(key: str) -> str:
    """Return the key with characters that are valid in a metric's name."""
    word = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "_" for letter in key)
    return f"counter.{word}"[:60]


def _scale(item: JsonNode) -> float:
    unit = item.maybe_text("time_unit") or "ns"
    return _MS[unit] if unit in _MS else item.refuse(f"unknown time_unit {unit}")


GOOGLE_BENCHMARK = Importer("Google Benchmark --benchmark_format=json", claims, read)
