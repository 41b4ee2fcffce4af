"""Other trials that ran on the same host during a trial, as observed, not as a scenario allows."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Any

from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse, own

Row = Mapping[str, Any]
Beside = Mapping[str, float]
"""By trial: the number of other trials on its host, on average over its duration."""
_CLOCK_S = 0.001  # the resolution of start times: consecutive trials must not seem to overlap
_SLACK, _SHARE = 0.5, 0.2
"""Sides count as equal within half a trial plus a fifth of the larger number: ends touch, and the last trials of a run
have fewer concurrent ones than the first.
"""

SPANS = own(
    """
SELECT trial_id, host, started, duration_s FROM trial_fact
WHERE list_contains(CAST($runs AS VARCHAR[]), run_id)
ORDER BY started, trial_id
""".strip()
)


def concurrent_trial_counts(warehouse: Warehouse, sides: Sequence[Sequence[Row]]) -> Beside:
    """Return the counts for the trials of these sides, including trials of every run in the tables at the same time."""
    runs = {row["run_id"] for side in sides for row in side}
    known = warehouse.catalog.runs()
    own = [run for run in known if run.run_id in runs]
    meanwhile = {
        run.run_id for run in known if any(run.started <= mine.ended and run.ended >= mine.started for mine in own)
    }
    picked = sorted(runs | meanwhile)
    return count_concurrent(warehouse.query(SPANS, {"runs": picked}, runs=picked, name="beside").dicts())


def count_concurrent(trials: Iterable[Row]) -> dict[str, float]:
    """Count concurrent trials among these rows of trial_fact, by start and by duration, which clock changes do not
    affect.
    """
    beside: dict[str, float] = {}
    for rows in grouped(trials, itemgetter("host")).values():
        spans = {}
        for row in rows:
            start = datetime.fromisoformat(row["started"]).timestamp()
            spans[row["trial_id"]] = start, start + max(0.0, row["duration_s"] - _CLOCK_S)
        done = _WorkDone(spans.values())
        for trial, (start, end) in spans.items():
            took = end - start
            beside[trial] = max(0.0, (done.until(end) - done.until(start)) / took - 1.0) if took else 0.0
    return beside


class _WorkDone:
    """Seconds that all trials together have run up to a time."""

    def __init__(self, spans: Collection[tuple[float, float]]) -> None:
        changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
        self._times = [time for time, _ in changes]
        self._running = list(accumulate(change for _, change in changes))
        lengths = [later - time for time, later in zip(self._times, self._times[1:], strict=False)]
        worked = (running * length for running, length in zip(self._running, lengths, strict=False))
        self._done = [0.0, *accumulate(worked)]

    def until(self, time: float) -> float:
        at = bisect_right(self._times, time) - 1
        return self._done[at] + self._running[at] * (time - self._times[at])


def describe_concurrent_trials(sides: Sequence[Sequence[Row]], beside: Beside) -> list[str]:
    """Return a text per side, such as `7 others`; sides that count as equal get the same text."""
    counts = [[beside[row["trial_id"]] for row in side if row["trial_id"] in beside] for side in sides]
    means = [sum(own) / len(own) if own else None for own in counts]
    texts: dict[float, str] = {}
    first = text = None
    for mean in sorted({mean for mean in means if mean is not None}):
        if first is None or mean - first > _SLACK + _SHARE * mean:
            first, rounded = mean, round(mean, 1)
            text = f"{rounded:g} other{'' if rounded == 1 else 's'}"
        texts[mean] = text or ""
    return ["" if mean is None else texts[mean] for mean in means]
