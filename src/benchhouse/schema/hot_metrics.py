"""Hot metrics: names and labels of measurements and sampled values in Prometheus.

Writers and dashboards share these rules. Labels that grow with requests, prompts, or free text are not allowed; such
values are in the evidence and in the warehouse.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchhouse.schema.errors import BenchError
from benchhouse.schema.telemetry import Series

LABELS = (
    "run_id", "benchmark_case_id", "cluster", "region", "node_pool", "gpu_model", "scheduler_path",
    "concurrency_bucket",
)  # fmt: skip
GIVEN = ("cluster", "region", "node_pool")
"""Labels that only the user knows; the others come from the trial."""
SCOPE = "scope"
"""The additional label of sampled values: node, trial, gpu0, service:NAME. A trial has only a few of these."""
STATS = ("value", "mean", "p50", "p95", "p99", "max")
"""The statistics of a result that are hot; all others are in the evidence."""
SERIES_BUDGET = 2000
"""The number of series that one folder of text files may hold."""

RESULT, TELEMETRY, RUN = "benchhouse_result", "benchhouse_telemetry", "benchhouse_run"

_UNITS: dict[str, tuple[str, float]] = {
    "s": ("seconds", 1), "ms": ("seconds", 1e-3), "us": ("seconds", 1e-6), "µs": ("seconds", 1e-6),
    "ns": ("seconds", 1e-9), "min": ("seconds", 60), "h": ("seconds", 3600),
    "B": ("bytes", 1), "kB": ("bytes", 1e3), "KB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12), "KiB": ("bytes", 2**10), "MiB": ("bytes", 2**20), "GiB": ("bytes", 2**30),
    "W": ("watts", 1), "kW": ("watts", 1e3), "J": ("joules", 1), "kJ": ("joules", 1e3), "kWh": ("joules", 3.6e6),
    "degC": ("celsius", 1), "Hz": ("hertz", 1), "MHz": ("hertz", 1e6), "GHz": ("hertz", 1e9),
    "%": ("ratio", 0.01), "$": ("dollars", 1),
}  # fmt: skip
# Words that promtool treats as abbreviated units, non-base units, or types: not allowed as parts of a name.
_RESERVED = frozenset((
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
    "counter", "gauge", "histogram", "summary", "untyped", "total", "count", "sum", "bucket", "info",
))  # fmt: skip
_NOT_BASE = re.compile(
    r"(pico|nano|micro|milli|centi|deci|deca|hecto|kilo|kibi|mega|mebi|giga|gibi|tera|tebi|peta|pebi)"
    r"(amperes|bytes|celsius|grams|joules|kelvin|meters|metres|moles|seconds|volts)|(minutes|hours|days|weeks|kelvins)"
)


class Allowance(NamedTuple):
    """The series and labels that a run may add to hot metrics."""

    series: int = SERIES_BUDGET
    dropped_labels: frozenset[str] = frozenset()

    @classmethod
    def of(cls, contract: Mapping[str, Any]) -> "Allowance":
        """Return the allowance under the run's contract, as in trial.json; never more than without a contract."""
        sink = contract.get("sinks", {}).get("hotMetrics")
        return cls(min(SERIES_BUDGET, sink["seriesBudget"]), frozenset(sink["droppedLabels"])) if sink else cls()


class PrometheusName(NamedTuple):
    """A name in Prometheus, the factor that converts values to its unit, and that unit, which ends the name."""

    name: str
    factor: float
    unit: str


def result_name(metric: str, stat: str, unit: str) -> PrometheusName:
    """Return the name and factor: `ttft`, p99, ms gives benchhouse_result_ttft_p99_seconds, 0.001."""
    return _exported(RESULT, metric, "" if stat == "value" else stat, unit, "")


def telemetry_name(series: Series) -> PrometheusName:
    """Return the name of a series; a counter's name ends in _total, a gauge's in its unit."""
    return _exported(TELEMETRY, series.name, "", series.unit, "total" if series.kind == "counter" else "")


def concurrency_bucket(concurrency: object) -> str:
    """Return the smallest power of two that is not below the concurrency; empty if there is no concurrency."""
    if not isinstance(concurrency, int | float) or isinstance(concurrency, bool) or not 0 < concurrency < 1 << 32:
        return ""
    return str(1 << (math.ceil(concurrency) - 1).bit_length())


def labels_of_user(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a user gave; raise BenchError for a label that is not on the list: each value makes a new
    series.
    """
    for name in pairs.keys() - set(GIVEN):
        hint = f"labels to give: {', '.join(GIVEN)}"
        if name in LABELS:
            raise BenchError(f"the label {name} is set by the trial itself", hint)
        raise BenchError(
            f"{name!r} can't be a label of hot metrics", f"{hint}; bench query finds all else in the evidence"
        )
    return {name: value for name, value in pairs.items() if value}


def _exported(prefix: str, name: str, stat: str, unit: str, end: str) -> PrometheusName:
    unit_parts, factor = _unit(unit)
    parts = _without_unit(_parts(name), unit)
    for count in range(min(len(parts), len(unit_parts)), 0, -1):
        if parts[-count:] == unit_parts[:count]:
            parts = parts[:-count]
            break
    tail = [*unit_parts, end] if end and unit_parts[-1:] != [end] else unit_parts
    return PrometheusName("_".join([prefix, *parts, *_parts(stat), *tail]), factor, "_".join(unit_parts))


def _unit(unit: str) -> tuple[list[str], float]:
    """Return a unit as Prometheus writes it, in full base units, and the factor to it."""
    above, slash, below = unit.partition("/")
    name, factor = _UNITS.get(above, ("", 1.0))
    parts = [name] if name else [] if above == "1" else _parts(above)  # a share or a plain number has no unit
    if not slash:
        return parts, factor
    name, divisor = _UNITS.get(below, ("", 1.0))
    per = {"seconds": "second", "bytes": "byte", "joules": "joule", "dollars": "dollar"}.get(name, name)
    return [*parts, "per", *([per] if per else _parts(below))], factor / divisor


def _parts(text: str) -> list[str]:
    """Split text into lower-case words that promtool accepts."""
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    parts = re.findall(r"[a-z0-9]+", apart.lower())
    return [f"x{part}" if part in _RESERVED or _NOT_BASE.fullmatch(part) else part for part in parts]


def _without_unit(parts: list[str], unit: str) -> list[str]:
    """Return the words without the unit, which is added at the end: `queue_ms` in ms is `queue`."""
    above, slash, below = unit.partition("/")
    if slash and len(parts) > 2 and parts[-2:] == ["per", f"x{below}"]:
        return parts[:-2]
    return parts[:-1] if len(parts) > 1 and parts[-1] == f"x{above.lower()}" else parts
