import random

import made_up

from benchhouse.report.standings import make_headline, make_rankings, target_sentences


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
    assert ranking.sentence.startswith("p=1 is best on qps: ")
    assert "above the next, p=0 (95% interval +" in ranking.sentence
    assert [item.mark for item in ranking.standings] == ["best", "median", "worst"]
    assert [item.verdict for item in ranking.standings] == ["the best", *["worse than the best"] * 2]


def test_lower_is_better_turns_the_order_and_the_words():
    ranking = ranked(noisy(100), noisy(200), direction="lower")
    assert ranking.sentence.startswith("p=0 is best on qps: ")
    assert "% below the next, p=1" in ranking.sentence


def test_equal_groups_show_no_evidence_of_a_difference():
    ranking = ranked(noisy(100, seed=1), noisy(100.01, seed=2), noisy(100.02, seed=3))
    assert ranking.sentence.startswith("No evidence of a difference in qps between the 3 points")
    assert ranking.standings[1].verdict == "no evidence of a difference from the best"


def test_one_trial_a_point_claims_nothing():
    ranking = ranked([1.0], [2.0])
    assert ranking.sentence.endswith("how sure that is cannot be said.")
    assert ranking.standings[1].verdict == "too few repetitions"


def test_points_that_share_the_best_value_share_the_place():
    ranking = ranked([1.0, 1.0], [1.0, 1.0], noisy(0.5, 2))
    assert ranking.sentence == "2 of 3 points share the best qps, 1/s: p=0 and p=1."
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
            points.append(made_up.point(case, {"case": case}, [found], target=target))
    told = target_sentences(points, [points[0].numbers[0]])
    assert told == ["By target, on qps, of 3 cases: b is best in 2, 1 shows no evidence of a difference."]


def test_headline_names_failures_and_empty_runs():
    data = made_up.sweep()
    assert data.headline[-1] == "1 trial has no number: see Failures."
    assert make_headline([], [], [], []) == ["No trial produced a number."]
