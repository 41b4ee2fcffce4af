"""The comparison that a question calls for: two sides, targets at equal quality, along an axis, or side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from benchhouse.api.answers import Comparison, CurveComparison, TargetComparison
from benchhouse.results import comparisons, selftest_record
from benchhouse.results.comparison import CompareOptions
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


class PairKeywords(TypedDict, total=False):
    """How two sides are compared."""

    metrics: Sequence[str]
    """Only these metrics, each `metric` or `metric.stat`; by default the headline statistics of all metrics."""
    confidence: float
    """Confidence of the intervals; 0.95 by default."""
    every: bool
    """Every statistic, not only value or mean, and p99."""
    outliers: Literal["keep", "mad"]
    """mad: leave out values that are 5 robust deviations away from the others."""
    paired: bool | None
    """Compare repetition with repetition; by default, if the two sides alternated in time."""


class CompareKeywords(PairKeywords, total=False):
    """How two sides, or any number of targets, are compared."""

    at: str | None
    """Compare targets at equal quality: `recall=0.95`."""
    along: str
    """Compare the curves of targets along this parameter: `concurrency`."""
    of: str | None
    """With `at` or `along`: the metric that is compared; by default the throughput."""


def compare(
    workspace: "Workspace", selectors: Sequence[str], options: CompareKeywords
) -> Comparison | CurveComparison | TargetComparison:
    """Compare runs or points. `selectors` must have full run ids. An option that would have no effect is refused."""
    folder, confidence = workspace.folder, options.get("confidence", 0.95)
    at, along, of, metrics = options.get("at"), options.get("along", ""), options.get("of"), options.get("metrics", ())
    for_two: dict[str, Any] = {key: options.get(key) for key in ("every", "outliers", "paired") if key in options}
    if for_two and (at or along or len(selectors) != 2):
        raise BenchError(
            f"{', '.join(for_two)}: only for two runs against each other", "give two, without at and along"
        )
    if of and not (at or along):
        raise BenchError("of: only with at or along", "metrics picks metrics of points")
    if metrics and (at or along):
        raise BenchError("metrics: not with at or along", "of names the metric that is compared there")
    if at:
        tradeoff, run_ids = comparisons.compare_at(folder, selectors, at, of, along, confidence)
        return CurveComparison(tradeoff, run_ids)
    if along:
        scaling = comparisons.compare_along(folder, selectors, along, of, confidence)
        return CurveComparison(scaling, [selector.partition(":")[0] for selector in selectors])
    if len(selectors) == 2:
        wanted = CompareOptions(tuple(metrics), confidence, **for_two)
        table = comparisons.compare(folder, selectors[0], selectors[1], wanted)
        scenario = comparisons.scenario_of(folder, selectors[1])
        return Comparison(table, selftest_record.sentence(folder, scenario))
    return TargetComparison(comparisons.compare_target_rankings(folder, selectors, metrics, confidence))
