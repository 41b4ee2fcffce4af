"""Detection of metrics with different units: ms in one version of an experiment and s in the next can't be averaged."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchhouse.schema.errors import BenchError

Units = Mapping[str, Mapping[str, str]]
"""The metrics with more than one unit: unit to a run that has it."""

_AGGREGATE = re.compile(
    r"\b(?:avg|mean|sum|fsum|kahan_sum|sumkahan|favg|median|mode|mad|min|max|arg_min|arg_max|quantile\w*|percentile\w*|"
    r"approx_quantile|reservoir_quantile|stddev\w*|var_\w+|variance|list_\w+|list|array_agg|histogram|product|skewness|"
    r"kurtosis\w*|sem|geomean|geometric_mean|first|last|any_value|corr|covar\w*|regr_\w+|lag|lead)\s*\(",
    re.IGNORECASE,
)
_VALUE = {
    "measurement_fact": re.compile(r"\bvalue\b", re.IGNORECASE),
    "points": re.compile(r"\b(?:mean|stdev|stderr|ci_low|ci_high|min|max|values)\b(?!\s*\()", re.IGNORECASE),
}
"""Tables with values in several units, and their columns of such values."""
MIXED = """
SELECT metric, unit, max(run_id) AS run FROM {0}
WHERE metric IN (SELECT metric FROM {0} GROUP BY metric HAVING count(DISTINCT unit) > 1) GROUP BY 1, 2 ORDER BY 3
""".strip()
"""The query for metrics with several units in measurement_fact, whose name depends on the engine."""
_UNIT = re.compile(r"\bunit\b", re.IGNORECASE)
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_NAMES_METRICS = re.compile(r"\bmetric\b\"?\s*(?:=|in\s*\()", re.IGNORECASE)  # `metric = ''`, `metric IN ('', ...)`
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_mixed_units(sql: str, parameters: Mapping[str, Any], units: Callable[[], Units]) -> None:
    """Raise BenchError if the query aggregates values of measurement_fact or points without regard to their unit.

    `units` is called only if the query could. A query that names the column `unit` is accepted.
    """
    texts = {text.replace("''", "'") for text in _TEXT.findall(sql)} | {str(value) for value in parameters.values()}
    bare = _TEXT.sub("''", COMMENT.sub(" ", sql))
    if _UNIT.search(bare) or not _AGGREGATE.search(bare):
        return
    if not any(
        re.search(rf"\b{table}\b", bare, re.IGNORECASE) and values.search(bare) for table, values in _VALUE.items()
    ):
        return
    changed = units()
    named = {metric: changed[metric] for metric in changed if metric in texts}
    if not named and _NAMES_METRICS.search(bare):
        return  # it is about other metrics
    for metric, runs_by_unit in sorted((named or changed).items()):
        listed = ", ".join(f"{unit} (run {run})" for unit, run in runs_by_unit.items())
        raise BenchError(
            f"{metric} was measured in different units: {listed}; they can't be aggregated",
            hint="Name the column unit: WHERE unit = '...', or GROUP BY unit.",
        )


def by_metric(rows: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    """Return the units of each metric with the last run that has it, from rows of metric, unit, and run."""
    units: dict[str, dict[str, str]] = {}
    for metric, unit, run in rows:
        units.setdefault(metric, {})[unit] = run
    return units
