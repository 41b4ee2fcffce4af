"""Strong and weak scaling with the laws fitted to them, on points whose truth is planted."""

import pytest
from members import member
from tables import check_table

from benchhouse.report.comparison_sections import curve_sentences, stage_heads
from benchhouse.results.scaling import automatic, make_scaling
from benchhouse.schema.errors import BenchError

QPS, TIME = ("qps", "value"), ("took", "value")
NODES = "resources.nodes"


def points(curve, places=(1, 2, 4, 8), axis=NODES, **more):
    return [member(at, {"name": "a"}, qps=curve(n), **{axis: n}, **more) for at, n in enumerate(places)]


def amdahl(n, s=0.05):
    return 100.0 * n / (1 + s * (n - 1))


def as_times(members, work):
    """The same as a time: what `work(n)` takes."""
    for item in members:
        sample = item.samples.pop(QPS)
        times = [work(item.given[NODES]) / value for value in sample.values]
        item.samples[TIME] = type(sample)("s", "lower", times, sample.trials)
    return members


def test_strong_scaling_says_what_is_serial_and_where_it_stops_paying():
    scaling = make_scaling(points(amdahl), QPS, None, "nodes", kind="strong")
    (curve,) = scaling.curves
    assert (scaling.kind, scaling.title) == ("strong", "Strong scaling along nodes")
    assert [law.law for law in curve.laws] == ["amdahl", "usl"]
    serial = curve.laws[0].parameters["s"]
    assert serial.low < 0.05 < serial.high
    assert "speed-up" in stage_heads(scaling, curve)
    words = " ".join(curve_sentences(scaling, curve))
    assert "Amdahl's law: 5.0" in words
    assert "% of the work is serial (95% interval " in words
    assert "It stops paying at about nodes 21" in words
    assert words.endswith("where efficiency falls below 50%; that is beyond 8, the highest measured.")


def test_where_throughput_falls_again_usl_speaks():
    scaling = make_scaling(points(lambda n: amdahl(n) / (1 + 0.01 * n * (n - 1))), QPS, None, "nodes", kind="strong")
    (curve,) = scaling.curves
    assert curve.laws[1].parameters["kappa"].low > 0.0
    assert "beyond" not in curve.pays
    assert curve.laws[1].pays_to.value < 8


def test_weak_scaling_follows_the_nodes_though_the_size_grows_with_them():
    grown = [
        member(at, {"name": name}, qps=100.0 * (n - 0.2 * (n - 1)), size=10 * n, **{NODES: n})
        for at, (name, n) in enumerate((name, n) for name in "ab" for n in (1, 2, 4))
    ]
    scaling = make_scaling(grown, QPS, None, "nodes", kind="weak")
    assert [curve.name for curve in scaling.curves] == ["a", "b"]
    assert scaling.curves[0].laws[0].law == "gustafson"
    assert scaling.curves[0].laws[0].parameters["s"].value == pytest.approx(0.2, abs=0.01)
    assert scaling.curves[0].pays == "By Gustafson's law it never stops paying: efficiency stays above 50%."
    assert scaling.notes == [
        "Along with nodes grow: size.",
        "The universal scalability law is fitted to four values of an axis or more.",
    ]
    with pytest.raises(BenchError, match="no two points differ in it alone"):
        make_scaling(grown, QPS, None, "nodes")
    assert [(found.along, found.kind) for found in automatic(grown, QPS, None, kind="weak")] == [(NODES, "weak")]


@check_table("kind, work", [("strong", lambda n: 1e3), ("weak", lambda n: 1e3 * n)])
def test_a_time_is_turned_into_speed_up(kind, work):
    timed = as_times(points(amdahl), work)
    scaling = make_scaling(timed, TIME, None, "nodes", kind=kind)
    last = scaling.curves[0].stages[-1]
    assert scaling.throughput.direction == "lower"
    assert last.throughput == pytest.approx(work(8) / amdahl(8), rel=0.01)
    assert last.efficiency == pytest.approx(1 / 1.35, rel=0.01)
    with pytest.raises(BenchError) as refused:
        make_scaling(timed, TIME, None, "nodes")
    assert "scaling: strong" in refused.value.hint


def test_a_law_that_is_far_off_is_no_guide_and_what_was_measured_decides():
    scaling = make_scaling(points(lambda n: 100.0 * min(n, 3), (1, 2, 3, 4, 8)), QPS, None, "nodes", kind="strong")
    words = " ".join(curve_sentences(scaling, scaling.curves[0]))
    assert "off it, so it is no guide here" in words
    assert "It stops paying between nodes 4 and 8, where efficiency is 37.5%." in words


def test_units_that_help_each_other_are_told_as_such():
    (curve,) = make_scaling(points(lambda n: 10.0 * n**1.1), QPS, None, "nodes", kind="strong").curves
    assert not curve.laws[0].fits
    assert curve.pays == "It pays up to nodes 8, the highest measured: efficiency is 50% or more."


def test_two_values_fit_nothing_and_say_so():
    scaling = make_scaling(points(amdahl, (1, 2)), QPS, None, "nodes", kind="strong")
    assert scaling.curves[0].laws == []
    assert scaling.curves[0].pays == ""
    assert scaling.notes[0].startswith("Three values of an axis or more")


def test_a_declared_kind_is_about_what_a_trial_is_given_where_that_varies():
    grid = [
        member(at, {"name": "a"}, qps=amdahl(n) * c, concurrency=c, **{NODES: n})
        for at, (n, c) in enumerate((n, c) for n in (1, 2, 4) for c in (1, 2, 4))
    ]
    kinds = {found.axis: found.kind for found in automatic(grid, QPS, None, kind="strong")}
    assert kinds == {"nodes": "strong", "concurrency": None}


def test_one_repetition_has_a_law_without_interval():
    (curve,) = make_scaling(points(amdahl, repetitions=1), QPS, None, "nodes", kind="strong").curves
    assert curve.laws[0].parameters["s"].low is None
    assert "(spread over trials unknown)" in curve.pays


def test_values_that_follow_the_law_exactly_are_not_taken_for_more_than_their_share():
    exact = points(lambda n: 100.0 * n / (1 + (n - 1) / 11))
    for item in exact:
        item.samples[QPS] = type(item.samples[QPS])("1/s", "higher", [item.samples[QPS].values[0]] * 3, ["a", "b", "c"])
    (curve,) = make_scaling(exact, QPS, None, "nodes", kind="strong").curves
    assert all(law.fits for law in curve.laws)


def test_a_curve_of_unnamed_targets_has_not_the_name_of_its_first_point():
    unnamed = [member(at, {}, qps=amdahl(n), **{NODES: n}) for at, n in enumerate((1, 2, 4))]
    (curve,) = make_scaling(unnamed, QPS, None, "nodes", kind="strong").curves
    assert curve.name == unnamed[0].given["experiment"]
