"""Trials that took turns, compared round by round; and values that lie far off, by the declared policy."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from benchhouse.analysis.compare import Comparison
from benchhouse.analysis.outliers import FAR, Policy, far_off
from benchhouse.analysis.paired import FEWEST, compare_paired
from benchhouse.report.numbers import name_of, plural

Row = Mapping[str, Any]
Rounds = dict[str, int]
"""The round (repetition) of each trial."""
Point = TypeVar("Point")


def rounds_of(a: Sequence[Row], b: Sequence[Row]) -> Rounds | None:
    """The rounds of two sides of one run that took turns; None where they did not.

    They did when no trial of a round started after one of the next round; points that are compared with several
    others, or with themselves, have no rounds.
    """
    if {row["run_id"] for row in [*a, *b]} != {row["run_id"] for row in a[:1]}:
        return None
    sides = [{row["repetition"]: row for row in side} for side in (a, b)]
    if len(sides[0]) < len(a) or len(sides[1]) < len(b) or {row["trial_id"] for row in a} & {r["trial_id"] for r in b}:
        return None
    common = sorted(sides[0].keys() & sides[1].keys())
    if len(common) < FEWEST:
        return None
    starts = [[side[number]["started"] for side in sides] for number in common]
    if any(max(now) > min(later) for now, later in pairwise(starts)):
        return None
    return {row["trial_id"]: row["repetition"] for row in [*a, *b]}


def pair_rounds(x: Row, y: Row, rounds: Rounds, confidence: float) -> Comparison:
    """Repetition against repetition; those that only one side has are left out."""
    by_round = [
        {rounds[trial]: value for trial, value in zip(row["trials"], row["values"], strict=True)} for row in (x, y)
    ]
    common = sorted(by_round[0].keys() & by_round[1].keys())
    a, b = ([side[number] for number in common] for side in by_round)
    return compare_paired(a, b, direction=x["direction"], confidence=confidence)


def without_outliers(
    asked: Sequence[tuple[Point, Row, Row]], policy: Policy
) -> tuple[list[tuple[Point, Row, Row]], list[str]]:
    """The rows as the policy leaves them, and what to tell: far values are counted whether they are kept or not."""
    kept: list[tuple[Point, Row, Row]] = []
    far: dict[str, int] = {}
    values = 0
    for point, x, y in asked:
        sides = []
        for row in (x, y):
            off = far_off(row["values"])
            values += len(off)
            if any(off):
                name = name_of(row["metric"], row["stat"])
                far[name] = far.get(name, 0) + sum(off)
            sides.append(row if policy == "keep" or not any(off) else _without(row, off))
        kept.append((point, sides[0], sides[1]))
    if not far:
        return kept, [f"Outliers: mad; none of {plural(values, 'value')} was left out."] if policy == "mad" else []
    listed = ", ".join(f"{count} of {name}" for name, count in far.items())
    done = "kept" if policy == "keep" else "LEFT OUT"
    count = plural(sum(far.values()), "value")
    return kept, [f"Outliers: {policy}; {count} more than {FAR:g} robust deviations off: {done} ({listed})."]


def _without(row: Row, off: Sequence[bool]) -> dict[str, Any]:
    stay = [at for at, far in enumerate(off) if not far]
    return {
        **row,
        "values": [row["values"][at] for at in stay],
        "trials": [row["trials"][at] for at in stay],
        "n": len(stay),
    }
