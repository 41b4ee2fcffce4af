"""From emitted values to measurements."""

from array import array

import pytest

from benchhouse.schema.experiment import Metric
from benchhouse.worker.context import Series
from benchhouse.worker.results import Handover, measure


def series(values, window="", **metric):
    return Series(Metric(**({"name": "x", "unit": "ms"} | metric)), window, array("d", values))


def test_one_value_stays_a_value():
    (row,) = measure([series([3.0], direction="lower")])
    assert (row.stat, row.value, row.unit, row.n, row.direction) == ("value", 3.0, "ms", 1, "lower")


def test_several_values_become_a_distribution():
    rows = {row.stat: row.value for row in measure([series(range(1, 101))])}
    assert rows["mean"] == rows["p50"] == 50.5
    assert (rows["min"], rows["max"]) == (1, 100)
    assert rows["p99"] == pytest.approx(99.01)


def test_one_latency_is_a_distribution_too():
    assert {row.stat for row in measure([series([3.0], role="latency")])} >= {"mean", "p50", "p99"}


def test_an_experiment_that_measured_nothing_has_failed():
    handover = Handover(finished=True)
    handover.take([], {}, [])
    assert not handover.finished and handover.failure.code == "no_metrics"
