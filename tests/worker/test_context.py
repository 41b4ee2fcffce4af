"""What an experiment may say, and what is refused."""

import math

import pytest

from benchhouse.schema.experiment import Experiment, ExperimentFailed, Metric
from benchhouse.worker.context import TrialContext


def context(tmp_path, *metrics, strict=True):
    experiment = Experiment("e", "1", lambda: None, metrics=metrics, strict_metrics=strict)
    return TrialContext(experiment, "t", 0, 0, tmp_path, tmp_path, None)


X = Metric(name="x", unit="ms")


@pytest.mark.parametrize("value", [1, 1.5, True, -0.0, 2**60])
def test_numbers_are_taken(tmp_path, value):
    ctx = context(tmp_path, X)
    ctx.emit("x", value)
    ctx.emit("x", value, unit="ms")
    assert list(ctx.series["x", ""].values) == [float(value)] * 2


@pytest.mark.parametrize(
    ("name", "value", "more", "code"),
    [
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
    ],
)
def test_everything_else_is_refused_by_name(tmp_path, name, value, more, code):
    with pytest.raises(ExperimentFailed) as found:
        context(tmp_path, X).emit(name, value, **more)
    assert found.value.code == code
    assert f"'{name}'" in found.value.message


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
