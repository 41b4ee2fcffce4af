import random

import made_up

from benchhouse.results.rankings import make_headline, make_rankings, side_by_side, target_sentences
from benchhouse.results.series import FlatPoint, MetricSample


def groups(*samples, direction="higher", stat="value"):
    points = []
    for at, values in enumerate(samples):
        trials = [f"{at}-{n}" for n in range(len(values))]
        found = made_up.number("qps", stat, "1/s", direction, values, trials, {"at": at})
        points.append(made_up.point(at, {"p": at}, [found]))
    return points


def ranked(*samples, **options):
    points = groups(*samples, **options)
    return make_rankings(points, [points[0].numbers[0]])[0]


def noisy(mean, n=5, seed=0, spread=0.01):
    random.seed(f"{mean}{seed}")
    return [mean * random.gauss(1, spread) for _ in range(n)]


def test_clear_winner_is_told_with_its_lead_and_how_sure_it_is():
    ranking = ranked(noisy(100), noisy(200), noisy(50))
    assert ranking.sentence.startswith("p=1 has the highest qps: ")
    assert "above the next, p=0 (95% interval +" in ranking.sentence
    assert [item.mark for item in ranking.standings] == ["best", "median", "worst"]
    assert [item.verdict for item in ranking.standings] == ["the best", *["worse than the best"] * 2]


def test_lower_is_better_turns_the_order_and_the_words():
    ranking = ranked(noisy(100), noisy(200), direction="lower")
    assert ranking.sentence.startswith("p=0 has the lowest qps: ")
    assert "% below the next, p=1" in ranking.sentence


def test_equal_groups_show_no_evidence_of_a_difference():
    ranking = ranked(noisy(100, seed=1), noisy(100.01, seed=2), noisy(100.02, seed=3))
    assert ranking.sentence.startswith("No evidence of a difference in qps between the 3 points")
    assert ranking.standings[1].verdict == "no evidence of a difference from the best"
    assert (ranking.standings[0].verdict, ranking.standings[0].mark) == ("the best mean", None)


def test_it_is_said_of_which_points_there_is_but_one_trial():
    each, other = "There is one trial of each, so", "There is one trial of each other one, so"
    assert each in ranked([1], [2], [3]).sentence
    assert other in ranked([1], [2], noisy(3)).sentence
    assert "There is one trial of it, so" in ranked(noisy(1), noisy(2), [3]).sentence


def with_bounds(points, *bounds):
    """The points, of which each figure can be off by so much."""
    return [
        point.model_copy(update={"numbers": [point.numbers[0].model_copy(update={"error_bound": bound})]})
        for point, bound in zip(points, bounds, strict=True)
    ]


def test_who_is_behind_by_less_than_both_can_be_off_is_not_called_worse():
    points = with_bounds(groups(noisy(100), noisy(110), noisy(50)), 6.0, 6.0, None)
    ranking = make_rankings(points, [points[0].numbers[0]])[0]
    assert [item.verdict for item in ranking.standings] == [
        "the best mean", "within error bounds of the best", "worse than the best",
    ]  # fmt: skip
    assert ranking.sentence.endswith("for p=0 that is not certain.")
    pair = with_bounds(groups(noisy(100), noisy(110)), 6.0, 6.0)
    (ranking,) = make_rankings(pair, [pair[0].numbers[0]])
    assert [item.mark for item in ranking.standings] == [None, None]


def test_of_many_points_those_within_error_bounds_are_not_counted_as_lower():
    values = [noisy(100), *(noisy(90 - number, seed=number) for number in range(20))]
    points = with_bounds(groups(*values), *[8.0] * 21)
    (ranking,) = make_rankings(points, [points[0].numbers[0]])
    within = sum(100 - sum(each) / len(each) < 16 for each in values[1:])
    assert f"{20 - within} of the 20 others are lower" in ranking.sentence


def test_side_by_side_says_what_is_within_error_bounds():
    members = [
        FlatPoint(name, "run", name, name, {}, {("qps", "value"): MetricSample("1/s", "higher", values, [], bound)}, at)
        for at, (name, values, bound) in enumerate(
            [("a", noisy(100), 3.0), ("b", noisy(95), 3.0), ("c", noisy(50), 3.0)]
        )
    ]
    ((ranking,),) = [case.rankings for case in side_by_side(members, [("qps", "value")])]
    verdicts = {item.point: item.verdict for item in ranking.standings}
    assert verdicts == {0: "the best mean", 1: "within error bounds of the best", 2: "worse than the best"}


def test_doubt_is_told_by_name_and_what_is_sure_by_number():
    ranking = ranked(noisy(100), noisy(99, seed=4), noisy(50), noisy(30))
    assert ranking.sentence.endswith(
        "2 of the 3 others are lower, also after correction for many comparisons; for p=1 that is not certain."
    )
    lower = ranked(noisy(100), noisy(100.4, seed=5), noisy(200), [150.0], direction="lower")
    assert lower.sentence.startswith("p=0 has the lowest qps: ")
    assert lower.sentence.endswith(
        "1 of the 3 others is higher, also after correction for many comparisons; "
        "for p=1 that is not certain; p=3 has too few trials to say."
    )


def test_many_doubtful_points_are_counted_after_a_few_names():
    close = [noisy(100, seed=seed) for seed in range(6)]
    sentence = ranked([110, 112, 114, 90, 111], *close, noisy(20)).sentence
    assert "1 of the 7 others is lower" in sentence
    assert sentence.count(", ") <= 3
    assert sentence.endswith(" and 4 more that is not certain.")


def test_a_difference_without_a_relative_interval_is_told_in_the_unit():
    standing = ranked([1.0, 0.0, 2.0], noisy(50, 3)).standings[1]
    assert standing.low is None
    told, interval = standing.gap_texts("ms")
    assert told.endswith("\u2009ms")
    assert " to " in interval
    assert interval.endswith("\u2009ms")


def test_one_trial_a_point_claims_nothing():
    ranking = ranked([1.0], [2.0])
    assert "how sure that is cannot be said" in ranking.sentence
    assert ranking.standings[1].verdict == "too few repetitions"


def test_points_that_share_the_best_value_share_the_place():
    ranking = ranked([1.0, 1.0], [1.0, 1.0], noisy(0.5, 2))
    assert ranking.sentence == "2 of 3 points share the highest qps, 1/s: p=0 and p=1."
    assert [item.place for item in ranking.standings] == [1, 1, 3]


def test_many_points_keep_leaders_median_and_worst():
    ranking = ranked(*(noisy(100 + at) for at in range(40)))
    assert ranking.ranked == 40
    assert len(ranking.standings) == 14
    assert [item.mark for item in ranking.standings][-2:] == ["median", "worst"]


def test_targets_are_counted_case_by_case():
    points = []
    for case in range(3):
        for target, mean in (("a", 100), ("b", 150 if case else 100)):
            values = noisy(mean, seed=f"{case}{target}")
            trials = [f"{case}{target}{n}" for n in range(5)]
            found = made_up.number("qps", "value", "1/s", "higher", values, trials, {"case": case, "target": target})
            point = made_up.point(case, {"case": case}, [found], target=target)
            points.append(point.model_copy(update={"benchmark_case_id": f"case {case}"}))
    told = target_sentences(points, [points[0].numbers[0]])
    assert told == ["By target, on qps, of 3 cases: b is best in 2, 1 shows no evidence of a difference."]


def test_loads_and_sizes_are_not_ranked_against_each_other():
    points = groups(noisy(100), noisy(300), noisy(200))
    columns = [points[0].numbers[0]]
    rankings = make_rankings(points, columns)
    (same,) = make_headline(points, columns, rankings, [])
    assert same == rankings[0].sentence
    apart = [point.model_copy(update={"benchmark_case_id": f"case {at}"}) for at, point in enumerate(points)]
    assert make_rankings(apart, columns) == []
    (line,) = make_headline(apart, columns, [], [])
    assert line.startswith("qps: from ") and "(p=0) to " in line and line.endswith("(p=1), over 3 points.")


def test_headline_names_failures_and_empty_runs():
    data = made_up.sweep()
    assert data.headline[-1] == "1 trial has no number: see Failures."
    assert make_headline([], [], [], []) == ["No trial produced a number."]


def test_a_point_alone_is_told_plainly_and_is_ranked_nowhere():
    points = groups(noisy(100))
    columns = [points[0].numbers[0]]
    assert make_rankings(points, columns) == []
    (line,) = make_headline(points, columns, [], [])
    assert line.startswith("p=0: qps ") and line.endswith("/s; the means of 5 trials.")
    (line,) = make_headline(groups([100.0]), columns, [], [])
    assert line == "p=0: qps 100/s; from one trial, so without a spread."


def test_a_verdict_never_contradicts_the_interval_beside_it():
    """Welch's test alone would tell these two apart; the interval that is shown holds zero."""
    ranking = ranked([2788, 2348, 3024, 3161, 2874], [2213, 2138, 1855, 2700, 2180])
    (other,) = ranking.standings[1:]
    assert other.high > 0.0
    assert other.verdict == "no evidence of a difference from the best"
    assert "above the next" not in ranking.sentence
