"""Alternating trials, compared round by round; and outliers, by the declared policy."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from benchhouse.analysis.compare import StatisticComparison
from benchhouse.analysis.outliers import FAR, Policy, far_off
from benchhouse.analysis.paired import FEWEST, compare_paired
from benchhouse.results.numbers import name_of, plural
from benchhouse.schema.errors import BenchError

Row = Mapping[str, Any]
Rounds = dict[str, int]
"""The round (repetition) of each trial."""
Point = TypeVar("Point")
UNASKED = 5
"""Rounds at which pairing is the default: with fewer, the interval of pairs may be wider than without pairing."""
_SAME = "they are the same trials"


def choose_rounds(
    numbers: Sequence[tuple[Any, Row, Row]], trials: Mapping[str, Row] | None, paired: bool | None
) -> tuple[Rounds | None, list[str]]:
    """Return the rounds to compare by, or None; and notes. With `paired` None, alternating trials are paired
    automatically.

    Only start times decide, never the numbers: choosing the narrower of two intervals would invalidate both.
    """
    if not paired and (paired is False or trials is None):
        return None, []
    fewest = FEWEST if paired else UNASKED
    known = trials or {}
    why = next(filter(None, (_why_not(x, y, known, fewest) for _, x, y in numbers)), "")
    if why and paired:
        raise BenchError(
            f"these did not take turns, there are no rounds to pair: {why}",
            hint=f"Pairs need `order: interleaved` and {FEWEST} repetitions, or two runs side by side; "
            "else leave out --paired.",
        )
    if why:
        return None, [] if why == _SAME else [f"Not paired: {why}."]
    rounds = {trial: known[trial]["repetition"] for _, x, y in numbers for row in (x, y) for trial in row["trials"]}
    return rounds, ["Paired: the sides took turns, so repetition is compared with repetition (--no-paired: not)."]


def _why_not(x: Row, y: Row, trials: Mapping[str, Row], fewest: int) -> str:
    """Return why two points have no rounds; empty if they have: no trial of a round started after one of the next."""
    if set(x["trials"]) & set(y["trials"]):
        return _SAME
    sides = [{trials[name]["repetition"]: trials[name]["started"] for name in row["trials"]} for row in (x, y)]
    if len(sides[0]) < len(x["trials"]) or len(sides[1]) < len(y["trials"]):
        return "a side has a repetition twice"
    common = sorted(sides[0].keys() & sides[1].keys())
    if len(common) < fewest:
        return f"{name_of(x['metric'], x['stat'])} has {plural(len(common), 'round')} in common, {fewest} are needed"
    starts = [[side[number] for side in sides] for number in common]
    if any(max(now) > min(later) for now, later in pairwise(starts)):
        apart = ran_apart(x, y, trials)
        return "one side ran after the other" if apart else "the trials of the sides did not take turns"
    return ""


def ran_apart(x: Row, y: Row, trials: Mapping[str, Row]) -> bool:
    """Whether one side ran after the other, by start times; False if they are unknown."""
    first, second = ([trials[name]["started"] for name in row["trials"] if name in trials] for row in (x, y))
    return bool(first and second) and (max(first) < min(second) or max(second) < min(first))


def pair_rounds(x: Row, y: Row, rounds: Rounds, confidence: float) -> StatisticComparison:
    """Compare repetitions in pairs; those that only one side has are left out."""
    by_round = [
        {rounds[trial]: value for trial, value in zip(row["trials"], row["values"], strict=True)} for row in (x, y)
    ]
    common = sorted(by_round[0].keys() & by_round[1].keys())
    a, b = ([side[number] for number in common] for side in by_round)
    return compare_paired(a, b, direction=x["direction"], confidence=confidence)


def without_outliers(
    numbers: Sequence[tuple[Point, Row, Row]], policy: Policy
) -> tuple[list[tuple[Point, Row, Row]], list[str]]:
    """Return the rows after applying the policy, and notes: outliers are counted whether they are kept or not."""
    kept: list[tuple[Point, Row, Row]] = []
    far: dict[str, int] = {}
    values = 0
    for point, x, y in numbers:
        sides = []
        for row in (x, y):
            off = far_off(row["values"])
            values += len(off)
            if any(off):
                name = name_of(row["metric"], row["stat"])
                far[name] = far.get(name, 0) + sum(off)
            stay = [at for at, is_far in enumerate(off) if policy == "keep" or not is_far]
            lists = {name: [row[name][at] for at in stay] for name in ("values", "trials")}
            sides.append({**row, **lists, "n": len(stay)})
        kept.append((point, sides[0], sides[1]))
    if not far:
        return kept, [f"Outliers: mad; none of {plural(values, 'value')} was left out."] if policy == "mad" else []
    listed = ", ".join(f"{count} of {name}" for name, count in far.items())
    done = "kept" if policy == "keep" else "LEFT OUT"
    count = plural(sum(far.values()), "value")
    return kept, [f"Outliers: {policy}; {count} more than {FAR:g} robust deviations off: {done} ({listed})."]
