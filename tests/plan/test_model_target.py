"""The model of a folder is the target: which input takes it, and what contradicts it."""

import pytest
from pydantic import BaseModel
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.plan.model_target import bind_model
from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.schema.experiment import from_function

MODEL = parse_yaml("model:\n  id: org/one\n", "model.yaml")


class Server(BaseModel, extra="forbid"):
    name: str = ""
    model: str
    port: int = 1


def plain(model_name: str, size: int = 1): ...
def served(target: Server, model: str = ""): ...
def untyped(target, size: int = 1): ...
def both(model_id: str, net: str = ""): ...
def lacking(size: int = 1): ...


def bound(function, text, mapped=""):
    file = parse_scenario(f"scenario: s\nexperiment: e\n{text}", "s.yaml", {})
    code = from_function(function, "e", "1") if function else None
    made = bind_model(file, "org/one", MODEL, code, mapped).scenario
    return made.target, made.targets, made.workload


@check_table(
    "function, text, mapped, expected",
    [
        (plain, "workload: {size: 3}", "", ({"name": "org/one"}, [], {"model_name": "org/one", "size": 3})),
        (served, "target: {port: 2}", "", ({"name": "org/one", "model": "org/one", "port": 2}, [], {})),
        (untyped, "", "", ({"name": "org/one"}, [], {})),
        (both, "", "", ({"name": "org/one"}, [], {"model_id": "org/one"})),
        (both, "", "net", ({"name": "org/one"}, [], {"net": "org/one"})),
        (both, "", "no_input_of_it", ({"name": "org/one"}, [], {"model_id": "org/one"})),
        (both, "workload: {net: org/one}", "", ({"name": "org/one"}, [], {"net": "org/one"})),
        (lacking, "workload: {size: [1, 2]}\ntarget: org/one", "", ("org/one", [], {"size": [1, 2]})),
        (served, "targets: [{name: a, port: 2}, {name: b}]", "",
         (None, [{"model": "org/one", "name": "a", "port": 2}, {"model": "org/one", "name": "b"}], {})),
        (plain, "workload: {model_name: [org/one]}", "", ({"name": "org/one"}, [], {"model_name": ["org/one"]})),
    ],
)  # fmt: skip
def test_the_model_is_put_into_the_input_that_takes_it(function, text, mapped, expected):
    assert bound(function, text, mapped) == expected


@check_table(
    "function, text, place",
    [
        (plain, "workload: {model_name: org/two}", "s.yaml:3:24"),
        (plain, "workload: {model_name: [org/one, org/two]}", "s.yaml:3:34"),
        (plain, "axes: [{grid: {model_name: [org/one, org/two]}}]", "s.yaml:3:38"),
        (plain, "axes: [{points: [{model_name: x}]}]", "s.yaml:3:31"),
        (served, "target: {model: org/two}", "s.yaml:3:17"),
        (served, "workload: {target.model: org/two}", "s.yaml:3:26"),
        (served, "targets: [{model: org/one}, {model: org/two}]", "s.yaml:3:37"),
        (untyped, "target: org/two", "s.yaml:3:9"),
        (None, "workload: {model: org/two}", "s.yaml:3:19"),
        (None, "target: {model_id: org/two}", "s.yaml:3:20"),
    ],
)
def test_another_model_than_the_folders_is_refused_with_both_places(function, text, place):
    with pytest.raises(ProblemsError, match=rf"{place}: .*'org/one' \(model.yaml:2\)"):
        bound(function, text)


def test_an_experiment_without_an_input_for_it_is_told():
    with pytest.raises(ProblemsError, match=r"s.yaml:2:13: e has no input for the model of this folder \(model.yaml:2"):
        bound(lacking, "")
