"""The best points and how certain that is: rankings, and the sentences at the start of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from benchhouse.analysis.compare import HIDDEN, Pair, StatisticComparison, compare_many, hide_within, p_value
from benchhouse.analysis.ranking import Ranked, rank
from benchhouse.results.content import CaseRanking, FailureFacts, Point, PointNumber, Ranking, RankingPlace
from benchhouse.results.invalid_trials import reasons
from benchhouse.results.numbers import SEED, headline_stats, lead_texts, plural, quantity
from benchhouse.results.series import Column, FlatPoint, case_names
from benchhouse.warehouse.grouping import grouped

Leading = TypeVar("Leading", PointNumber, Ranking)
SHOWN = 12
NAMED = 3
BEST_MEAN = "the best mean"
"""Verdict on the first point if others may be as good."""
_CORRECTED = "after correction for many comparisons"


def make_rankings(points: Sequence[Point], columns: Sequence[PointNumber], confidence: float = 0.95) -> list[Ranking]:
    """Return one ranking per leading metric that has a direction; empty if points ran different tests.

    One size or load is not better than another: in that case, `side_by_side` ranks targets, test by test.
    """
    if several_tests(points):
        return []
    rankings = (rank_points(points, column, confidence) for column in columns if column.primary and column.direction)
    return [ranking for ranking in rankings if ranking]


def several_tests(points: Sequence[Point]) -> bool:
    return len({point.benchmark_case_id for point in points}) > 1


def rank_points(points: Sequence[Point], column: PointNumber, confidence: float = 0.95) -> Ranking | None:
    """Rank all points that have this number; the leaders, the median, and the worst are compared with the best."""
    assert column.direction
    numbers = {str(at): number for at, point in enumerate(points) if (number := point.number(column.column))}
    bounds = {at: number.error_bound for at, number in numbers.items()}
    ranked = rank({at: number.values for at, number in numbers.items()}, column.direction, confidence=confidence)
    if len(ranked) < 2:
        return None
    ranked = _within_bounds(ranked, bounds)
    few = len(ranked) <= SHOWN + 3
    shown = ranked if few else [row for at, row in enumerate(ranked) if at < SHOWN or row.mark or at == len(ranked) - 1]
    best = numbers[ranked[0].name]
    pairs = [Pair(best.values, numbers[row.name].values, column.direction) for row in shown[1:]]
    results = compare_many(pairs, seed=SEED, confidence=confidence)
    compared = {
        row.name: hide_within(result, best.error_bound, bounds[row.name])
        for row, result in zip(shown[1:], results, strict=True)
    }
    ranked, shown = ([_as_shown(row, compared.get(row.name)) for row in rows] for rows in (ranked, shown))
    standings = _only_the_sure([_standing(row, compared.get(row.name)) for row in shown], ranked)
    sentence = _sentence(points, numbers, ranked, compared)
    about = dict(zip(("metric", "stat", "unit"), column.column, strict=True))
    return Ranking(**about, direction=column.direction, sentence=sentence, standings=standings, ranked=len(ranked))


def side_by_side(
    members: Sequence[FlatPoint], columns: Sequence[Column], confidence: float = 0.95
) -> list[CaseRanking]:
    """Return the rankings for each test that several targets ran; standings refer to members by `at`."""
    cases = []
    for name, case in case_names(members):
        rankings = [ranking for column in columns if (ranking := _rank_members(case, column, confidence))]
        if len(case) > 1 and rankings:
            cases.append(CaseRanking(case=name, rankings=rankings))
    return cases


def _rank_members(members: Sequence[FlatPoint], column: Column, confidence: float) -> Ranking | None:
    samples = {str(member.at): own for member in members if (own := member.samples.get(column)) and own.direction}
    if len({(sample.unit, sample.direction) for sample in samples.values()}) != 1 or len(samples) < 2:
        return None
    direction, unit = next((sample.direction, sample.unit) for sample in samples.values())
    assert direction
    ranked = rank({at: sample.values for at, sample in samples.items()}, direction, confidence=confidence)
    best = samples[ranked[0].name]
    pairs = [Pair(best.values, samples[row.name].values, direction) for row in ranked[1:]]
    compared = [
        hide_within(result, best.error_bound, samples[row.name].error_bound)
        for row, result in zip(ranked[1:], compare_many(pairs, seed=SEED, confidence=confidence), strict=True)
    ]
    ranked = [_as_shown(row, result) for row, result in zip(ranked, [None, *compared], strict=True)]
    standings = [_standing(row, result) for row, result in zip(ranked, [None, *compared], strict=True)]
    standings = _only_the_sure(standings, ranked)
    about = {"metric": column[0], "stat": column[1], "unit": unit}
    return Ranking(**about, direction=direction, sentence="", standings=standings, ranked=len(ranked))


def _as_shown(row: Ranked, compared: StatisticComparison | None) -> Ranked:
    """Return the row, marked as distinguishable only if the interval shown agrees: readers see that, not the test's
    p-value.
    """
    if row.distinguishable and compared and compared.verdict not in ("better", "worse"):
        return _doubted(row)
    return row


def _doubted(row: Ranked) -> Ranked:
    return replace(row, distinguishable=False, mark=None if row.mark == "worst" else row.mark)


def _within_bounds(ranked: Sequence[Ranked], bounds: Mapping[str, float | None]) -> list[Ranked]:
    """Mark rows as indistinguishable if they are behind the best by less than the sum of both error bounds."""

    def hidden(row: Ranked) -> bool:
        best = ranked[0]
        return abs(row.mean - best.mean) < (bounds[best.name] or 0.0) + (bounds[row.name] or 0.0)

    return [_doubted(row) if row.distinguishable and hidden(row) else row for row in ranked]


def _only_the_sure(standings: Sequence[RankingPlace], ranked: Sequence[Ranked]) -> list[RankingPlace]:
    """Call the first the best only if the data distinguishes it from all the others."""
    first, *others = standings
    if all(row.distinguishable for row in ranked[1:]):
        return [first, *others]
    return [first.model_copy(update={"mark": None, "verdict": BEST_MEAN}), *others]


def _standing(row: Ranked, compared: StatisticComparison | None) -> RankingPlace:
    if compared is None:
        verdict = "the best"
    elif row.distinguishable is None:
        verdict = "too few repetitions"
    elif compared.verdict == HIDDEN:
        verdict = "within error bounds of the best"
    elif row.distinguishable:
        verdict = "worse than the best"
    else:
        alone = compared.verdict in ("better", "worse")
        verdict = "worse as a pair, not after correction" if alone else "no evidence of a difference from the best"
    standing = RankingPlace(point=int(row.name), place=row.place, mark=row.mark, verdict=verdict)
    if compared is None:
        return standing
    low, high = compared.change_interval or (None, None)
    gap = {"change": compared.change, "low": low, "high": high, "difference": compared.difference}
    low, high = compared.difference_interval or (None, None)
    return standing.model_copy(update=gap | {"difference_low": low, "difference_high": high})


def _sentence(
    points: Sequence[Point],
    numbers: dict[str, PointNumber],
    ranked: Sequence[Ranked],
    compared: dict[str, StatisticComparison],
) -> str:
    best = numbers[ranked[0].name]
    leader, metric = points[int(ranked[0].name)].label, best.name
    worth = _worth(best)
    others = ranked[1:]
    untested = [row for row in others if row.distinguishable is None]
    tied = [row for row in others if row.distinguishable is False]
    extreme = "highest" if best.direction == "higher" else "lowest"
    if len(untested) == len(others):
        single = "each" if all(row.n == 1 for row in ranked) else "it" if ranked[0].n == 1 else "each other one"
        return (
            f"{leader} has the {extreme} {metric}: {worth}, of {len(ranked):,} points. There is one trial of "
            f"{single}, so how sure that is cannot be said; repetitions would tell."
        )
    equal = [points[int(row.name)].label for row in ranked if row.place == 1]
    if 1 < len(equal) < len(ranked):
        return f"{len(equal)} of {len(ranked):,} points share the {extreme} {metric}, {worth}: {_listed(equal)}."
    if len(tied) == len(others) and not any(
        _differ_alone(best, numbers[row.name], compared.get(row.name)) for row in tied
    ):
        between = f"between the {len(ranked):,} points"
        return f"No evidence of a difference in {metric} {between}; the {extreme} mean is {worth}."
    if tied or untested:
        return f"{leader} has the {extreme} {metric}: {worth}. {_doubts(points, best, others)}."
    return f"{leader} has the {extreme} {metric}: {worth}, {_gap(points, others[0], compared)}."


def _doubts(points: Sequence[Point], best: PointNumber, others: Sequence[Ranked]) -> str:
    """Return how many of the others are certainly behind the best, and for which that is uncertain."""
    tied, untested = (
        [points[int(row.name)].label for row in others if row.distinguishable is open_] for open_ in (False, None)
    )
    sure, side = len(others) - len(tied) - len(untested), "lower" if best.direction == "higher" else "higher"
    if sure:
        parts = [f"{sure:,} of the {len(others):,} others {'is' if sure == 1 else 'are'} {side}, also {_CORRECTED}"]
        parts += [f"for {_listed(tied)} that is not certain"] if tied else []
    elif len(others) == 1 and tied:
        parts = [f"It is not certain that the other, {tied[0]}, is {side}"]
    else:
        parts = [f"{_CORRECTED.capitalize()}, it is not certain that any of the {len(others):,} others is {side}"]
    if untested:
        parts.append(f"{_listed(untested)} {'has' if len(untested) == 1 else 'have'} too few trials to say")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    """Return `a, b and c`; for many names, the first ones and the number of the others."""
    shown = list(names) if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1:,} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _differ_alone(best: PointNumber, other: PointNumber, compared: StatisticComparison | None) -> bool:
    """Whether the two would differ if they were the only ones: by the interval shown, if there is one."""
    if compared:
        return compared.verdict in ("better", "worse")
    return (p_value(best.values, other.values) or 0.0) <= 0.05


def _gap(points: Sequence[Point], second: Ranked, compared: dict[str, StatisticComparison]) -> str:
    result, name = compared[second.name], points[int(second.name)].label
    if result.change is None or result.change_interval is None or result.change <= -1.0:
        return f"told apart from every other point; next is {name}"
    lead, interval = lead_texts(result.change, result.change_interval)
    same = result.change_interval.lo == result.change_interval.hi
    sure = "no spread over trials" if same else f"95% interval {interval}"
    return f"{lead} the next, {name} ({sure}, n = {result.n_a} and {result.n_b})"


def _worth(number: PointNumber) -> str:
    text = quantity(number.cell.value, number.cell.unit, number.stdev)
    return ("~" if number.shaky else "") + text


def target_sentences(points: Sequence[Point], columns: Sequence[PointNumber]) -> list[str]:
    """Return how many cases each of several targets wins, by the first columns; empty if the ranking already
    shows it.
    """
    cases = grouped(points, lambda point: (point.run_id, point.benchmark_case_id))
    shared = [case for case in cases.values() if len(case) > 1]
    if len(shared) < 2 or any(len({point.target_name for point in case}) != len(case) for case in shared):
        return []
    sentences = []
    for column in columns:
        if not (column.primary and column.direction):
            continue
        wins: Counter[str] = Counter()
        for case in shared:
            numbers = {point.target_name: number for point in case if (number := point.number(column.column))}
            ranked = rank({name: number.values for name, number in numbers.items()}, column.direction)
            ranked = _within_bounds(ranked, {name: number.error_bound for name, number in numbers.items()})
            if len(ranked) > 1 and all(row.distinguishable for row in ranked[1:]):
                wins[ranked[0].name] += 1
        undecided = len(shared) - wins.total()
        parts = [f"{name} is best in {count}" for name, count in wins.most_common()]
        if undecided:
            parts.append(f"{undecided} {'shows' if undecided == 1 else 'show'} no evidence of a difference")
        sentences.append(f"By target, on {column.name}, of {len(shared)} cases: {', '.join(parts)}.")
        if len(sentences) == NAMED:
            break
    return sentences


def _ranges(points: Sequence[Point], columns: Sequence[PointNumber]) -> list[str]:
    """Return the range of each number with a direction and its ends, for points that ran different tests."""
    lines = []
    for column in _first_of_each([column for column in columns if column.primary and column.direction]):
        known = [(number, point.label) for point in points if (number := point.number(column.column))]
        if len(known) > 1:
            known.sort(key=lambda pair: pair[0].cell.value or 0.0)
            ends = " to ".join(f"{_worth(number)} ({label})" for number, label in (known[0], known[-1]))
            lines.append(f"{column.name}: from {ends}, over {len(known):,} points.")
    return lines


def _alone(point: Point, columns: Sequence[PointNumber]) -> str:
    """Return the result of the only point: its first few metrics, by their leading statistic."""
    leading = [column for column in columns if column.primary] or columns
    numbers = [number for column in _first_of_each(leading) if (number := point.number(column.column))]
    listed = ", ".join(f"{number.name} {_worth(number)}" for number in numbers[:NAMED])
    n = max((number.cell.n for number in numbers), default=0)
    source = f"the means of {n} trials" if n > 1 else "from one trial, so without a spread"
    return f"{point.label}: {listed}; {source}."


def _first_of_each(items: Sequence[Leading]) -> list[Leading]:
    """Return the first item of each metric."""
    return [own[0] for own in grouped(items, lambda item: item.metric).values()]


def make_headline(
    points: Sequence[Point],
    columns: Sequence[PointNumber],
    rankings: Sequence[Ranking],
    failures: Sequence[FailureFacts],
    invalid: Sequence[FailureFacts] = (),
    first: Sequence[str] = (),
) -> list[str]:
    """Return the most important sentences: the results of curves (`first`), the verdicts, then the problems."""
    by_target = target_sentences(points, columns)
    ranges = _ranges(points, columns)[:NAMED] if several_tests(points) else []
    verdicts = [ranking.sentence for ranking in _first_of_each(rankings)[:NAMED]]
    lines = [*first, *(by_target or ranges), *verdicts]
    if not points:
        lines.append("No trial produced a number that holds." if invalid else "No trial produced a number.")
    elif len(points) == 1:
        lines.append(_alone(points[0], columns))
    elif not (rankings or ranges):
        lines.append(f"{plural(len(points), 'point')} measured; no metric says which way is better, so none is ranked.")
    primary = [[figure.name for figure in point.refused if figure.primary] for point in points]
    if any(primary):
        names = ", ".join(dict.fromkeys(name for figures in primary for name in figures))
        lines.append(f"{plural(sum(map(bool, primary)), 'point')} without a valid number of {names}: see Warnings.")
    if failures:
        verb = "has" if len(failures) == 1 else "have"
        lines.append(f"{plural(len(failures), 'trial')} {verb} no number: see Failures.")
    if invalid:
        verb = "is INVALID and enters" if len(invalid) == 1 else "are INVALID and enter"
        why = reasons((item.code, item.message) for item in invalid)
        lines.append(f"{plural(len(invalid), 'trial')} {verb} no number: {why}")
    return lines


def leading_columns(members: Sequence[FlatPoint], throughput: str | None, latency: str | None) -> list[Column]:
    """Return the columns of throughput (otherwise of the first metric with a direction) and latency, with headline
    statistics.
    """
    stats: dict[str, list[str]] = {}
    for member in members:
        for (metric, stat), sample in member.samples.items():
            if sample.direction and stat not in stats.setdefault(metric, []):
                stats[metric].append(stat)
    first = throughput if throughput in stats else next(iter(stats), None)
    names = dict.fromkeys(name for name in (first, latency) if name in stats)
    return [(name, stat) for name in names if name for stat in headline_stats(stats[name])]
