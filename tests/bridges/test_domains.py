"""Inputs of ours in ado's words."""

from typing import Literal

from pydantic import BaseModel
from tables import check_table

from benchhouse.bridges.domains import inputs_of, semantic, skipping
from benchhouse.schema.experiment import from_function


class Nested(BaseModel):
    inner: int = 1


class Goal(BaseModel):
    name: str
    size: int = 4


def many(
    count: int,
    share: float = 0.5,
    flag: bool = False,
    kind: Literal["a", "b"] = "a",
    word: str = "x",
    perhaps: int | None = 3,
    nested: Nested | None = None,
    names: list[str] = (),
): ...


def aimed(target: Goal, n: int): ...


def bare(target, n: int): ...


def found(function):
    return {item.name: item for item in inputs_of(from_function(function, "x", "1"))}


def test_inputs_have_a_domain_a_default_or_are_required():
    inputs = found(many)
    kinds = {name: item.domain["variableType"].removesuffix("_VARIABLE_TYPE") for name, item in inputs.items()}
    assert kinds == {
        "count": "CONTINUOUS",
        "share": "CONTINUOUS",
        "flag": "BINARY",
        "kind": "CATEGORICAL",
        "word": "OPEN_CATEGORICAL",
        "perhaps": "CONTINUOUS",
    }
    assert [name for name, item in inputs.items() if item.required] == ["count"]
    assert (inputs["kind"].domain["values"], inputs["share"].default) == (["a", "b"], 0.5)


def test_fields_of_the_target_are_told_from_those_of_the_workload():
    assert {name: item.required for name, item in found(aimed).items()} == {
        "target.name": True, "target.size": False, "n": True,
    }  # fmt: skip
    assert list(found(bare)) == ["target.name", "n"]


@check_table("ours, theirs", [("1", "1.0.0"), ("1.2", "1.2.0"), ("1.02.3", "1.2.3"), ("1.0rc1", None), ("red", None)])
def test_a_version_is_written_in_the_format_of_ado(ours, theirs):
    assert semantic(ours) == theirs


def test_one_that_can_not_be_offered_spoils_no_other(caplog):
    with skipping("bad"):
        raise TypeError("odd")
    assert "bad is not offered to ado: TypeError: odd" in caplog.text
