"""Google Benchmark's JSON, with one repetition per trial, for `compare.py` and `bench import`."""

import json
from collections.abc import Iterator
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.exported import DocumentExporter, ExportedDocument, ExportedPoint, ExportedRun, ExportedStatistic

_TIMES = {"ns": "ns", "us": "us", "µs": "us", "ms": "ms", "s": "s"}
_NO_CPU_TIME = 0.0  # compare.py ignores a row without the key


def render(run: ExportedRun) -> ExportedDocument:
    rows, left_out = list[dict[str, Any]](), list[str]()
    counters: dict[str, str] = {}
    for family, (name, point) in enumerate(zip(run.names(), run.points, strict=True)):
        times = [figure for figure in point.figures if figure.unit in _TIMES and not figure.is_spread]
        others = [figure for figure in point.figures if figure.unit not in _TIMES and not figure.is_spread]
        if not times:
            left_out.append(f"{point.name}: it has no time, and a benchmark of this format is one")
            continue
        leading = next((figure for figure in times if figure.headline), times[0])
        for index, figure in enumerate([leading, *(item for item in times if item is not leading)]):
            identity = {"name": f"{name}/{figure.name}", "family_index": family, "per_family_instance_index": index}
            rows += _rows(identity, point, figure, others if figure is leading else [])
        counters |= {_counter(figure): _meaning(figure) for figure in others}
    if not rows:
        raise BenchError(
            f"run {run.run_id}: no point of it has a time, which a benchmark of Google Benchmark is",
            "export it in a format for other numbers too: --as bencher",
        )
    text = json.dumps({"context": _context(run, counters), "benchmarks": rows}, ensure_ascii=False, allow_nan=False,
                      indent=1)  # fmt: skip
    return ExportedDocument(f"{text}\n", tuple(left_out))


def _context(run: ExportedRun, counters: dict[str, str]) -> dict[str, Any]:
    """Return the library's description of itself and the machine, as far as it applies; further keys are texts, like
    those of --benchmark_context.
    """
    newest = max(point.ended for point in run.points)
    return {
        "date": newest.isoformat(timespec="seconds"), "host_name": ", ".join(run.hosts), "executable": run.experiment,
        "library_version": f"benchhouse {run.benchhouse}", "library_build_type": "release", "json_schema_version": 1,
        "benchhouse_run": run.run_id, "benchhouse_scenario": run.scenario,
        "benchhouse_cpu_time": "not measured: 0 stands in its place",
    } | {f"counter {name}": meaning for name, meaning in counters.items()}  # fmt: skip


def _rows(
    identity: dict[str, Any], point: ExportedPoint, figure: ExportedStatistic, others: list[ExportedStatistic]
) -> Iterator[dict[str, Any]]:
    """Yield one row per trial, then mean and standard deviation as in the tables."""
    common = identity | {"run_name": identity["name"], "repetitions": figure.n, "threads": 1}
    timing = {"cpu_time": _NO_CPU_TIME, "time_unit": _TIMES[figure.unit], "label": f"bench trace {figure.ref}"}
    for index, (trial, value) in enumerate(zip(figure.trials, figure.values, strict=True)):
        counters = {_counter(item): item.values[item.trials.index(trial)] for item in others if trial in item.trials}
        yield (
            common
            | {"run_type": "iteration", "repetition_index": index, "iterations": 1, "real_time": value}
            | (timing | counters)
        )
    told = {"mean": figure.mean} | ({"stddev": figure.stdev} if figure.stdev is not None else {})
    for name, value in told.items() if figure.n > 1 else ():
        row = {"run_type": "aggregate", "aggregate_name": name, "aggregate_unit": "time", "iterations": figure.n}
        yield common | {"name": f"{identity['name']}_{name}"} | row | {"real_time": value} | timing


def _counter(figure: ExportedStatistic) -> str:
    """Return the name with its statistic, so that it never equals a key of the format."""
    return f"{figure.metric}.{figure.stat}"


def _meaning(figure: ExportedStatistic) -> str:
    return f"{figure.unit}; {figure.direction} is better" if figure.direction else figure.unit


GOOGLE_BENCHMARK = DocumentExporter("Google Benchmark JSON: a repetition for each trial", render)
