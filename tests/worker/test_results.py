"""From emitted values to measurements."""

from array import array

import pytest
from tables import check_rows

from benchhouse.analysis.summary import HISTOGRAM_QUANTILE
from benchhouse.schema.experiment import Metric
from benchhouse.schema.histogram import Histogram
from benchhouse.worker.context import MetricWindow
from benchhouse.worker.results import Handover, definitions, measure


def series(values, window="", **metric):
    return MetricWindow(Metric(**({"name": "x", "unit": "ms"} | metric)), window, array("d", values))


def test_one_value_stays_a_value():
    (row,) = measure([series([3.0], direction="lower")])
    assert (row.stat, row.value, row.unit, row.n, row.direction) == ("value", 3.0, "ms", 1, "lower")


def test_several_values_become_a_distribution():
    rows = {row.stat: row.value for row in measure([series(range(1, 101))])}
    assert rows["mean"] == rows["p50"] == 50.5
    assert (rows["min"], rows["max"]) == (1, 100)
    assert rows["p99"] == pytest.approx(99.01)
    assert rows["p99.9"] == pytest.approx(99.901)


def test_a_histogram_of_nanoseconds_is_told_in_the_unit_of_the_metric():
    rows = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)]

    def check(unit, one):
        counted = MetricWindow(Metric(name="x", unit=unit), "", array("d"), Histogram([2_000, 4_000]))
        rows = {row.stat: row for row in measure([counted])}
        assert (rows["mean"].value, rows["min"].value, rows["max"].value) == (3000 / one, 2000 / one, 4000 / one)
        assert {row.n for row in rows.values()} == {2}
        assert definitions([counted, series([1.0], name="y")]) == {"x": HISTOGRAM_QUANTILE}

    check_rows(check, rows)


def test_a_histogram_of_one_value_is_a_distribution_without_a_deviation():
    counted = MetricWindow(Metric(name="x", unit="ns"), "", array("d"), Histogram([7]))
    rows = {row.stat: row.value for row in measure([counted])}
    assert set(rows.values()) == {7.0}
    assert "stdev" not in rows
    assert {"mean", "p50", "p99.9"} <= set(rows)


def test_one_latency_is_a_distribution_too():
    assert {row.stat for row in measure([series([3.0], role="latency")])} >= {"mean", "p50", "p99"}


def test_an_experiment_that_measured_nothing_has_failed():
    handover = Handover(finished=True)
    handover.take([], {}, [])
    assert not handover.finished and handover.failure.code == "no_metrics"


def test_reasons_against_the_numbers_become_one_failure_with_the_first_code():
    handover = Handover(finished=True)
    handover.take(measure([series([1.0])]), {}, [], [("late", "by 40 ms"), ("starved", "no CPU left")])
    assert (handover.invalid.code, handover.invalid.message) == ("late", "by 40 ms; starved: no CPU left")
    assert handover.failure is None
    assert handover.warnings == []
