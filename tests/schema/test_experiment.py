"""Experiments: declared or plain, and how they are called."""

import pytest
from pydantic import BaseModel, ValidationError
from tables import check_table

from benchhouse import BenchError, Metric, Resources, experiment
from benchhouse.schema.experiment import from_function


class Load(BaseModel):
    size: int = 3


def test_a_declared_experiment_keeps_what_was_declared():
    @experiment("a.b", version="2024-05", metrics=[Metric(name="n")], resources=Resources(cpus=2), services=["x"])
    def run(workload: Load) -> int:
        """First line.

        More.
        """
        return workload.size

    assert (run.name, run.version, run.description, run.services) == ("a.b", "2024-05", "First line.", ("x",))
    assert run.metric("n").unit == "1"
    assert run.metric("m") is None
    assert run(Load(size=7)) == 7
    assert run.strict_metrics


def test_the_parameters_of_a_plain_function_are_its_workload():
    plain = from_function(lambda size, scale=2.0: {"n": size * scale}, "plain", "1")
    fields = plain.workload_model.model_fields
    assert fields["size"].is_required()
    assert fields["scale"].default == 2.0
    assert plain.call({}, {"size": 4}, None) == {"n": 8.0}
    assert not plain.strict_metrics


def test_inputs_are_validated_and_handed_over_as_declared():
    @experiment("x", version="1")
    def run(target: Load, ctx, *, factor: int = 1):
        return target.size * factor, ctx

    assert run.call({"size": 2}, {"factor": 3}, "context") == (6, "context")
    with pytest.raises(ValidationError):
        run.call({"size": "x"}, {}, None)
    with pytest.raises(ValidationError, match="Extra inputs"):
        run.call({}, {"facto": 3}, None)


@pytest.mark.parametrize(
    ("target", "given"), [({"name": "m"}, "m"), ({"name": "m", "x": 1}, {"name": "m", "x": 1}), ({}, {})]
)
def test_an_untyped_target_is_its_name_or_a_mapping(target, given):
    assert from_function(lambda target: target, "f", "1").call(target, {}, None) == given


def test_an_annotation_that_names_something_unknown_is_told():
    def run(size: "Nowhere"): ...  # noqa: F821

    with pytest.raises(BenchError, match="an annotation names something unknown"):
        _ = from_function(run, "f", "1").workload_model


def test_a_workload_without_a_model_is_refused():
    with pytest.raises(BenchError, match="must be annotated with a pydantic model"):
        _ = from_function(lambda workload: None, "f", "1").workload_model


def test_a_metric_declared_twice_is_refused():
    with pytest.raises(BenchError, match="declared twice"):
        experiment("x", version="1", metrics=[Metric(name="a"), Metric(name="a")])(lambda: None)


@check_table("name", ["", "9a", "a b", "a\n", "ä", "a" * 101])
def test_a_metric_with_an_odd_name_is_refused(name):
    with pytest.raises(ValidationError):
        Metric(name=name)


def _plain(n: int, share: float = 0.5, name: str = "x", flag: bool = False, anything=None):
    return {"seen": [n, share, name, flag, anything]}


@pytest.mark.parametrize(
    "given",
    [
        {"n": 1},
        {"n": 1, "share": 0.25, "name": "y", "flag": True, "anything": [1]},
        {"n": "1"},
        {"n": 1, "share": 1},
        {"n": 1, "name": None},
        {"n": True},
        {"n": 1, "share": float("nan")},
        {"share": 0.5},
        {"n": 1, "unknown": 1},
    ],
    ids=str,
)
def test_arguments_that_need_no_model_are_what_the_model_would_make_of_them(given):
    made = from_function(_plain, "plain", "1.0")

    def asked():
        workload = made.workload_model.model_validate(given)
        return _plain(**{name: getattr(workload, name) for name in type(workload).model_fields})

    def outcome(call):
        try:
            found = call()["seen"]
        except ValueError as error:
            return type(error), str(error)
        return found, [type(item) for item in found]

    assert outcome(lambda: made.call({}, given, None)) == outcome(asked)


def test_a_default_that_can_change_is_not_shared_between_calls():
    def grow(items: list = []):  # noqa: B006 - as strangers write it
        items.append(1)
        return {"n": len(items)}

    made = from_function(grow, "grow", "1.0")
    assert [made.call({}, {}, None)["n"] for _ in range(2)] == [1, 1]
