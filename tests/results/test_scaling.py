from dataclasses import replace

import pytest
from members import member
from tables import check_table

from benchhouse.report.comparison_sections import stage_heads, stage_rows
from benchhouse.report.markdown import scaling_markdown
from benchhouse.results.scaling import automatic, make_scaling
from benchhouse.schema.errors import BenchError

QPS = ("qps", "value")
LOADS = (1, 2, 4, 8, 16, 32)


def points(limit=12, axis="concurrency", **more):
    return [
        member(
            at, {"name": "a"}, qps=100.0 * min(load, limit), latency=max(load, limit) / limit, **{axis: load}, **more
        )
        for at, load in enumerate(LOADS)
    ]


def test_throughput_latency_and_efficiency_are_told_along_the_axis():
    found = make_scaling(points(), QPS, "latency", "concurrency")
    (curve,) = found.curves
    assert [stage.place for stage in curve.stages] == list(LOADS)
    assert curve.stages[5].times == pytest.approx(12.0)
    assert curve.stages[5].efficiency == pytest.approx(12 / 32)
    assert curve.stages[5].efficiency_interval[0] < 12 / 32 < curve.stages[5].efficiency_interval[1]
    assert curve.stages[5].latency == {"p50": pytest.approx(32 / 12, rel=0.01), "p99": pytest.approx(8.0, rel=0.01)}
    assert curve.kind == "stops"
    assert curve.stops_interval[0] <= 11.4 <= curve.stops_interval[1]
    assert curve.sentence.startswith("a stops scaling at about concurrency 1")
    assert "measured at 8 and 16" in curve.sentence


def test_a_value_that_was_tried_without_a_number_that_holds_is_told():
    """As one whose figure is INVALID in all trials, and one whose trials all failed."""
    *held, refused = points(1e9)
    refused = replace(refused, samples={}, refused=frozenset([QPS]))
    failed = replace(member(9, {"name": "a"}, concurrency=64), gone="failed")
    other = member(10, {"name": "b"}, concurrency=128)
    found = make_scaling([*held, refused], QPS, None, "concurrency", failed=[failed, other])
    (curve,) = found.curves
    gaps = "32 (INVALID), 64 (failed)"
    expected = f"a still scales at concurrency 16, the highest with a valid number; also tried: {gaps}."
    assert curve.sentence == expected
    assert found.notes == [f"a was also tried at concurrency {gaps}: no valid number there."]
    assert automatic([*held, refused], QPS, None, failed=[failed])[0].curves[0].sentence == expected


def test_tables_have_a_line_a_stage():
    found = make_scaling(points(), QPS, "latency", "concurrency")
    heads, rows = stage_heads(found, found.curves[0]), stage_rows(found, found.curves[0])
    assert heads == [
        "concurrency",
        "qps (1/s)",
        "95% interval",
        "× first",
        "efficiency",
        "latency p50 (ms)",
        "latency p99 (ms)",
        "n",
    ]
    assert rows[0][:2] == ["1", "100"]
    assert rows[5][4].startswith("37.5% (37.")
    assert "### a" in scaling_markdown(found)


def test_a_size_has_no_efficiency():
    found = make_scaling(points(axis="vectors"), QPS, None, "vectors")
    assert found.curves[0].stages[5].efficiency is None
    assert "efficiency" not in stage_heads(found, found.curves[0])


@check_table("limit, words", [(1e9, "still scales at concurrency 32"), (1, "shows no gain beyond concurrency 1")])
def test_growth_without_a_start_or_an_end_is_reported(limit, words):
    assert words in make_scaling(points(limit), QPS, None, "concurrency").curves[0].sentence


def test_two_values_are_a_table_without_a_verdict():
    found = make_scaling(points()[:2], QPS, None, "concurrency")
    assert found.curves[0].kind is None
    assert found.notes == ["Three values of an axis or more show where scaling stops."]


def test_one_repetition_says_that_its_spread_is_unknown():
    curve = make_scaling(points(repetitions=1), QPS, None, "concurrency").curves[0]
    assert not curve.spread_known
    assert "spread over trials unknown" in curve.sentence
    assert curve.stages[1].times_interval is None


def test_what_is_no_scaling_is_refused():
    with pytest.raises(BenchError, match="no curve along concurrency: no two points differ in it alone"):
        make_scaling(points()[:1], QPS, None, "concurrency")
    with pytest.raises(BenchError, match="no throughput"):
        make_scaling(points(), ("latency", "p50"), None, "concurrency")


def test_a_report_follows_axes_of_load_but_no_search_parameter():
    assert [found.along for found in automatic(points(), QPS, "latency")] == ["concurrency"]
    assert automatic(points(), QPS, "latency", leave={"concurrency"}) == []
    assert automatic(points(), None, "latency") == []
    settings = [member(at, {"name": "a", "ef": ef}, qps=100.0 / ef) for at, ef in enumerate((1, 2, 4))]
    assert automatic(settings, QPS, None) == []
    shards = [member(at, {"name": "a", "shards": n}, qps=100.0 * n) for at, n in enumerate((1, 2, 4))]
    assert [found.along for found in automatic(shards, QPS, None)] == ["target.shards"]
