from dataclasses import replace

import made_up
import pytest
from members import member, two_sweeps
from tables import check_table

from benchhouse.report import html, markdown
from benchhouse.report.payload import payload
from benchhouse.results.series import MetricSample, members_of_points
from benchhouse.results.tradeoff import automatic, find_column, make_tradeoff, parse_level
from benchhouse.schema.errors import BenchError

RECALL, QPS = ("recall", "value"), ("qps", "value")


def trade(members, level=0.95, **options):
    return make_tradeoff(members, RECALL, QPS, level, **options)


def curve(found, name):
    return next(one for one in found.curves if one.name == name)


@check_table("text, level", [("recall=0.95", 0.95), (" recall = 95% ", 0.95), ("recall=1", 1.0)])
def test_a_level_is_a_metric_and_a_number(text, level):
    assert parse_level(text) == ("recall", pytest.approx(level))


@check_table("text", ["recall", "recall=", "=0.9", "recall=high", "recall=nan", "recall=inf"])
def test_no_level_is_refused(text):
    with pytest.raises(BenchError, match="expected METRIC=NUMBER"):
        parse_level(text)


def test_targets_are_told_at_the_level_with_intervals_and_marks():
    found = trade(two_sweeps())
    a, b = curve(found, "a").at, curve(found, "b").at
    assert a.value == pytest.approx(5000.0, rel=0.003)  # a miss of 1/20 is ef 20
    assert a.place == pytest.approx(20.0, rel=0.02)
    assert a.interval[0] < 5000.0 < a.interval[1]
    assert (a.mark, a.verdict, b.mark, b.verdict) == ("best", "the best", "worst", "worse than the best")
    assert b.change == pytest.approx(-0.5)
    assert b.change_interval[0] < -0.5 < b.change_interval[1]
    assert found.sentences[0].startswith("At recall 0.95, a has the highest qps 5000/s (95% interval ")
    assert "100.0% above the next, b (+" in found.sentences[0]
    assert found.scales == "log qps against −log(1 − recall), monotone cubic"


def test_equal_targets_show_no_evidence():
    found = trade(two_sweeps(speed=0.999))
    assert curve(found, "b").at.verdict == "no evidence of a difference from the best"
    assert "no evidence of a difference from b" in found.sentences[0]
    found = trade(two_sweeps(speed=1.001))  # the best is not the first
    assert (curve(found, "b").at.verdict, curve(found, "b").at.mark) == ("the best mean", None)
    assert found.sentences[0].startswith("At recall 0.95, b has the highest qps")
    assert "no evidence of a difference from a" in found.sentences[0]


def test_a_target_that_falls_short_says_what_it_reached():
    weak = [
        member(10 + at, {"name": "pq", "index": "pq", "m": m}, recall=r, qps=9e4 / m)
        for at, (m, r) in enumerate([(4, 0.5), (8, 0.7), (16, 0.8)])
    ]
    found = trade([*two_sweeps(), *weak])
    assert (curve(found, "pq").at.reach, curve(found, "pq").at.value) == ("short", None)
    assert "pq does not reach 0.95: recall 0.8 at best (m 16)." in found.sentences
    assert [row.name for row in found.rows()] == ["a", "b", "pq"]
    assert found.rows()[-1].verdict == "not reached: 0.8 at best"


def test_a_target_that_is_always_better_is_not_extrapolated():
    flat = member(10, {"name": "flat", "index": "flat", "ef": 64}, recall=1.0, qps=300.0)
    found = trade([*two_sweeps(), flat])
    assert (curve(found, "flat").at.reach, curve(found, "flat").at.mark) == ("beyond", None)
    assert "Every point of flat is better than that: qps 300/s with recall 1." in found.sentences
    assert found.rows()[-1].value == "≥300"
    assert trade([*two_sweeps(), flat], 1.0).sentences[0].startswith("At recall 1, flat has qps 300/s (95% interval ")


def test_points_that_none_beats_are_marked():
    found = trade(two_sweeps())
    assert all(point.frontier for point in curve(found, "a").points)
    assert not any(point.frontier for point in curve(found, "b").points)


def test_nothing_is_beaten_by_less_than_figures_can_be_off_by():
    """`b` has 0.9 of the speed of `a`; at an ef of 4 both are known to a tenth, elsewhere to a thousandth."""
    points = two_sweeps(speed=0.9)
    for one in points:
        sample = one.samples[QPS]
        share = 0.1 if one.given["target.ef"] == 4 else 0.001
        one.samples[QPS] = replace(sample, error_bound=share * sum(sample.values) / len(sample.values))
    found = trade(points)
    assert [point.frontier for point in curve(found, "b").points] == [True, False, False, False, False]
    assert all(point.frontier for point in curve(found, "a").points)
    assert (curve(found, "b").at.verdict, curve(found, "b").at.mark) == ("worse than the best", "worst")
    low = trade(points, 0.8)  # between an ef of 4 and of 8
    assert (curve(low, "b").at.verdict, curve(low, "b").at.mark) == ("within error bounds of the best", None)
    assert low.sentences[0].endswith("; b is within error bounds of it.")


def test_a_figure_that_is_invalid_is_on_no_curve_and_named():
    points = two_sweeps()
    points[1] = replace(points[1], samples={RECALL: points[1].samples[RECALL]}, refused=frozenset({QPS}))
    found = trade(points)
    assert [point.label for point in curve(found, "a").points] == ["a 0", "a 2", "a 3", "a 4"]
    assert "qps is INVALID and on no curve: a 1." in found.notes
    assert not any("left out" in note for note in found.notes)
    every = [replace(one, samples={RECALL: one.samples[RECALL]}, refused=frozenset({QPS})) for one in points]
    with pytest.raises(BenchError, match="no point has both recall and qps") as refused:
        trade(every)
    assert "INVALID" in refused.value.hint
    assert find_column(every, "qps") == QPS


def test_a_different_load_is_another_test():
    slow = two_sweeps(speed=0.25, concurrency=1)
    fast = two_sweeps(speed=4.0, concurrency=8)
    for at, one in enumerate(fast, len(slow)):
        one.at = at
    found = trade([*slow, *fast])
    marks = {one.name: one.at.mark for one in found.curves}
    assert marks == {
        "a concurrency=1": "best",
        "b concurrency=1": "worst",
        "a concurrency=8": "worst",
        "b concurrency=8": "best",
    }
    assert sum("concurrency" in line for line in found.sentences) == 2


def test_curves_of_different_tests_alone_are_compared_with_a_warning():
    found = trade([*two_sweeps(concurrency=1)[:5], *two_sweeps(concurrency=8)[5:]])
    assert {one.at.mark for one in found.curves} == {"best", "worst"}
    assert "Exploratory: no two curves were put to the same test." in found.notes


def test_one_repetition_has_a_value_no_interval_and_a_word_about_it():
    found = trade(two_sweeps(repetitions=1))
    a, b = curve(found, "a").at, curve(found, "b").at
    assert (a.interval, a.method, b.verdict) == (None, "none, too few repetitions", "too few repetitions")
    assert "no interval: one trial a point" in found.sentences[0]
    assert any(note.startswith("No interval where a point has one trial") for note in found.notes)
    assert found.rows()[0].interval == "none"


def test_any_two_metrics_can_be_traded():
    points = [
        member(at, {"name": "a"}, concurrency=c, qps=1000.0 * c, latency=float(c)) for at, c in enumerate((1, 2, 4, 8))
    ]
    column = find_column(points, "latency.p50")
    found = make_tradeoff(points, column, QPS, 4.0)
    assert found.curves[0].at.value == pytest.approx(4000.0, rel=0.01)
    assert found.curves[0].along == "concurrency"
    assert make_tradeoff(points, column, QPS, 0.1).curves[0].at.reach == "short"


def test_what_makes_no_sense_is_refused_with_the_reason():
    points = two_sweeps()
    with pytest.raises(BenchError, match="recall is a share: it can't be 95") as error:
        trade(points, 95.0)
    assert "Did you mean 0.95?" in error.value.hint
    with pytest.raises(BenchError, match="qps can't be traded for itself"):
        make_tradeoff(points, QPS, QPS, 0.9)
    with pytest.raises(BenchError, match="no metric recal here; there are qps, recall") as error:
        find_column(points, "recal")
    assert error.value.hint == "Did you mean recall?"
    with pytest.raises(BenchError, match="no point has both recall and qps"):
        trade([member(0, {"name": "a"}, qps=1.0)])
    sample = points[0].samples[QPS]
    points[0].samples[QPS] = MetricSample("1/min", "higher", sample.values, sample.trials)
    with pytest.raises(BenchError, match="its unit is 1/min here and 1/s there"):
        trade(points)
    for one in points:
        one.samples[QPS] = MetricSample("1/s", None, one.samples[QPS].values, one.samples[QPS].trials)
    with pytest.raises(BenchError, match="qps has no direction"):
        trade(points)


def test_points_without_the_metrics_are_left_out_and_counted():
    found = trade([*two_sweeps(), member(10, {"name": "c", "index": "hnsw", "ef": 4}, qps=5.0)])
    assert "1 point without recall or qps left out." in found.notes


def test_a_report_asks_for_the_highest_level_that_most_curves_meet():
    assert automatic(two_sweeps(), QPS).level == 0.95  # 0.9844 is the most that either has
    assert automatic(two_sweeps(), None) is None
    level = [member(at, {"name": "a", "ef": ef}, recall=1.0, qps=10.0) for at, ef in enumerate((1, 2))]
    assert automatic(level, QPS) is None
    assert automatic([member(0, {"name": "a"}, qps=5.0, latency=1.0)], QPS) is None


def report(level=0.95):
    data = made_up.sweep()
    found = trade(members_of_points(data.points, {}), level)
    return data.model_copy(update={"tradeoff": found})


def test_page_and_markdown_tell_the_same():
    data = report()
    page, text = html.render(data), markdown.render(data)
    for words in ("At recall 0.95, hnsw has the highest qps", "Interpolated: log qps against −log(1 − recall)"):
        assert words in page
        assert words in text
    assert text.count("| not beaten |") == sum(p.frontier for one in data.tradeoff.curves for p in one.points)


def test_scripts_get_the_curves_in_the_metrics_and_points_of_the_page():
    told = payload(report())
    curves = told["curves"]
    assert [told["metrics"][curves[axis]]["metric"] for axis in "xy"] == ["recall", "qps"]
    assert told["tradeoff"] == [curves["y"], curves["x"]]
    for line in curves["lines"]:
        assert {told["points"]["axes"]["index"][at] for at in line["points"]} == {line["name"]}
    assert "@curve" not in told["points"]["axes"]  # `index` tells the curves apart already
    assert payload(made_up.sweep())["curves"] is None


def test_a_report_does_not_rank_sizes_against_each_other():
    sizes = [replace(one, given={**one.given, "vectors": 10 ** (3 + (one.target_name == "b"))}) for one in two_sweeps()]
    found = automatic(sizes, QPS)
    assert [one.at.verdict for one in found.curves] == ["the only one"] * 2
    assert [one.at.mark for one in found.curves] == [None, None]
    assert len(found.sentences) == 2 and not any("highest" in line for line in found.sentences)
    asked = trade(sizes)  # whoever asks for it gets it, with a warning
    assert {one.at.verdict for one in asked.curves} == {"the best", "worse than the best"}
    assert "Exploratory: no two curves were put to the same test." in asked.notes


def test_a_point_that_failed_is_named_beside_the_curves():
    gone = replace(member(99, {"name": "a", "index": "hnsw", "ef": 128}, label="a ef=128"), gone="failed")
    assert "Without a valid number and on no curve: a ef=128 (failed)." in automatic([*two_sweeps(), gone], QPS).notes
