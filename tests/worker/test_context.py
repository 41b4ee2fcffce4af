"""What an experiment may say, and what is refused."""

import math
from array import array
from dataclasses import replace

import pytest
from tables import check_rows

from benchhouse.schema.experiment import Experiment, ExperimentFailed, Metric
from benchhouse.schema.histogram import Histogram
from benchhouse.worker.context import TrialContext


def context(tmp_path, *metrics, strict=True):
    experiment = Experiment("e", "1", lambda: None, metrics=metrics, strict_metrics=strict)
    return TrialContext(experiment, "t", 0, 0, tmp_path, tmp_path, None)


X = Metric(name="x", unit="ms")


def test_an_unknown_driver_is_answered_with_those_of_the_experiment(tmp_path):
    ctx = context(tmp_path)
    ctx.experiment = replace(ctx.experiment, drivers=("openai", "triton_llm"))
    told = r"no driver named 'openay' is installed \(did you mean 'openai'\? installed: openai, triton_llm\)"
    with pytest.raises(ExperimentFailed, match=f"^no_such_driver: {told}$"):
        ctx.driver("openay")
    assert ctx.driver("openai").transport == "http"


def test_numbers_are_taken(tmp_path):
    rows = [1, 1.5, True, -0.0, 2**60]

    def check(value):
        ctx = context(tmp_path, X)
        ctx.emit("x", value)
        ctx.emit("x", value, unit="ms")
        assert list(ctx.series["x", ""].values) == [float(value)] * 2

    check_rows(check, rows)


def test_everything_else_is_refused_by_name(tmp_path):
    rows = [
        ("x", math.nan, {}, "not_finite"),
        ("x", math.inf, {}, "not_finite"),
        ("x", 10**400, {}, "not_finite"),
        ("x", "1", {}, "not_a_number"),
        ("x", b"1", {}, "not_a_number"),
        ("x", None, {}, "not_a_number"),
        ("x", [1], {}, "not_a_number"),
        ("x", 1j, {}, "not_a_number"),
        ("x", 1, {"unit": "s"}, "unit_mismatch"),
        ("y", 1, {}, "undeclared_metric"),
    ]

    def check(name, value, more, code):
        with pytest.raises(ExperimentFailed) as found:
            context(tmp_path, X).emit(name, value, **more)
        assert found.value.code == code
        assert f"'{name}'" in found.value.message

    check_rows(check, rows)


def test_many_values_are_taken_as_those_one_by_one(tmp_path):
    ctx = context(tmp_path, X)
    ctx.emit("x", 1)
    ctx.emit_all("x", [2, 3.5])
    ctx.emit_all("x", array("d", [4.0]))
    ctx.emit_all("x", [])
    ctx.emit_all("x", (value for value in (7, 8)), window="late")
    assert list(ctx.series["x", ""].values) == [1, 2, 3.5, 4]
    assert list(ctx.series["x", "late"].values) == [7, 8]


def test_of_many_values_none_is_taken_where_one_is_no_number(tmp_path):
    rows = [
        ("x", [1.0, math.nan], "not_finite"),
        ("x", ["1"], "not_a_number"),
        ("x", None, "not_a_number"),
        ("x", [10**400], "not_a_number"),
        ("y", [1.0], "undeclared_metric"),
    ]

    def check(name, values, code):
        ctx = context(tmp_path, X)
        with pytest.raises(ExperimentFailed, match=f"^{code}: metric '{name}'"):
            ctx.emit_all(name, values)
        assert not ctx.series

    check_rows(check, rows)


def test_a_unit_may_not_change_between_values(tmp_path):
    ctx = context(tmp_path, strict=False)
    ctx.emit("free", 1, unit="s")
    with pytest.raises(ExperimentFailed, match="its unit is s"):
        ctx.emit("free", 1, unit="ms")


def test_windows_are_kept_apart(tmp_path):
    ctx = context(tmp_path, X)
    ctx.emit("x", 1, window="warm")
    ctx.emit("x", 2, window=3)
    assert [(item.window, list(item.values)) for item in ctx.series.values()] == [("warm", [1]), ("3", [2])]


def test_histograms_of_one_metric_are_copied_and_merged_window_by_window(tmp_path):
    ctx = context(tmp_path, X)
    first = Histogram([1, 2])
    ctx.distribution("x", first)
    first.add(99)  # what happens to it later is nobody's business
    ctx.distribution("x", Histogram([3]))
    ctx.distribution("x", Histogram([4]), window="warm")
    ctx.distribution("x", Histogram(), window="empty")
    kept = {window: series.histogram for (_, window), series in ctx.series.items()}
    assert kept == {"": Histogram([1, 2, 3]), "warm": Histogram([4])}


@pytest.mark.parametrize(
    ("name", "histogram", "code"),
    [
        ("x", [1, 2], "not_a_histogram"),
        ("size", Histogram([1]), "unit_mismatch"),
        ("y", Histogram([1]), "undeclared_metric"),
    ],
)
def test_what_is_no_histogram_of_a_declared_time_is_refused(tmp_path, name, histogram, code):
    with pytest.raises(ExperimentFailed) as found:
        context(tmp_path, X, Metric(name="size", unit="MB")).distribution(name, histogram)
    assert found.value.code == code
    assert f"'{name}'" in found.value.message


@pytest.mark.parametrize("window", ["", "other"])
def test_a_metric_is_emitted_or_counted_never_both(tmp_path, window):
    """Also in different windows: the percentiles of a metric have one definition."""
    ctx = context(tmp_path, X, Metric(name="z", unit="s"))
    ctx.emit("x", 1)
    ctx.distribution("z", Histogram([1]))
    with pytest.raises(ExperimentFailed, match="both as values and as a histogram"):
        ctx.distribution("x", Histogram([1]), window=window)
    with pytest.raises(ExperimentFailed, match="both as values and as a histogram"):
        ctx.emit("z", 1, window=window)


def test_an_undeclared_histogram_stays_in_nanoseconds(tmp_path):
    ctx = context(tmp_path, strict=False)
    ctx.distribution("free", Histogram([1]))
    assert ctx.series["free", ""].metric.unit == "ns"


def test_doubts_are_kept_in_order_each_once_and_raise_nothing(tmp_path):
    ctx = context(tmp_path)
    for code, message in [("b", "1"), ("a", "2"), ("b", "1"), ("b", 3)]:
        ctx.invalid(code, message)
    assert ctx.invalidities == [("b", "1"), ("a", "2"), ("b", "3")]


def test_the_same_warning_is_kept_once(tmp_path):
    ctx = context(tmp_path)
    for _ in range(3):
        ctx.warn("a", "b")
    assert ctx.warnings == [("a", "b")]


def test_what_a_function_returns_is_sorted_into_numbers_and_facts(tmp_path):
    numpy = pytest.importorskip("numpy")
    ctx = context(tmp_path, strict=False)
    ctx.accept({"a": 1, "b": numpy.float32(2.5), "c": "text", "d": True, "e": None, "f": [1], "g": numpy.arange(3)})
    assert {name: list(item.values) for (name, _), item in ctx.series.items()} == {"a": [1.0], "b": [2.5]}
    assert set(ctx.facts) == {"c", "d", "e", "f", "g"}
    ctx.accept(None)
    with pytest.raises(ExperimentFailed, match="returned a int"):
        ctx.accept(3)
