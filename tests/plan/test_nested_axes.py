"""Axes over keys inside a mapping: where their values go, how they are named, and what is refused."""

import pytest
from pydantic import BaseModel, Field
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.experiment import experiment


class Tuning(BaseModel, extra="forbid"):
    depth: int = Field(1, ge=1)
    mode: str = "fast"


class Engine(BaseModel, extra="forbid"):
    name: str = "e"
    options: dict[str, int | dict[str, int]] = {}


class Compression(BaseModel, extra="forbid"):
    size: int = 1
    values: dict[str, str | int | float] = {}
    tuning: Tuning | None = None


@experiment("compress", version="1.0")
def compress(target: Engine, workload: Compression) -> None:
    """Compress."""


@pytest.fixture
def instances_of(plan_of):
    return lambda text, **more: list(plan_of(text, code=compress, **more).instances())


@pytest.fixture
def mistakes_of(plan_of):
    def find(text, **more):
        with pytest.raises(ProblemsError) as caught:
            plan_of(text, code=compress, **more)
        return [f"{problem.line}:{problem.column} {problem.message}" for problem in caught.value.problems]

    return find


@check_table(
    "axes",
    [
        "{grid: {values.level: [1, 6, 9]}}",
        "{grid: {workload.values.level: [1, 6, 9]}}",
        "{zip: {values.level: [1, 6, 9], size: [1, 1, 1]}}",
        "{points: [{values.level: 1}, {values.level: 6}, {values.level: 9}]}",
    ],
)
def test_every_form_sets_the_key_inside_the_mapping(axes, plan_of):
    plan = plan_of(f"workload: {{values: {{tool: zip}}}}\naxes: [{axes}]", code=compress)
    expected = [{"tool": "zip", "level": level} for level in (1, 6, 9)]
    assert [one.parameters["values"] for one in plan.instances()] == expected
    assert plan.axes[0] == "values.level"
    assert plan.parameters == {"values": {"tool": "zip"}}  # shared by all points, so never written to


def test_a_list_in_the_workload_is_an_axis_there_too(instances_of):
    assert [one.parameters["values"] for one in instances_of("workload: {values.level: [1, 2]}")] == [
        {"level": 1},
        {"level": 2},
    ]


def test_a_nested_axis_is_the_same_plan_as_a_grid_of_whole_mappings(plan_of):
    nested = plan_of("axes: [{grid: {values.level: [1, 6]}}]", code=compress)
    assert nested.digest == plan_of("axes: [{grid: {values: [{level: 1}, {level: 6}]}}]", code=compress).digest


@check_table("key", ["target.options.cache", "options.cache"])
def test_a_key_inside_a_field_of_the_target_is_routed_like_a_plain_name(key, instances_of):
    found = instances_of(f"target: {{options: {{x: 1}}}}\naxes: [{{grid: {{{key}: [1, 2]}}}}]")
    assert [one.target["options"] for one in found] == [{"x": 1, "cache": 1}, {"x": 1, "cache": 2}]


def test_any_depth_and_several_keys_of_one_mapping(instances_of):
    text = "targets: [a, {name: b, options: {y: 3}}]\naxes: [{grid: {options.in.most: [1], options.x: [1, 2]}}]"
    assert [one.target["options"] for one in instances_of(text)] == [
        {"in": {"most": 1}, "x": 1},
        {"in": {"most": 1}, "x": 2},
        {"y": 3, "in": {"most": 1}, "x": 1},
        {"y": 3, "in": {"most": 1}, "x": 2},
    ]


def test_points_are_excluded_by_a_nested_key(instances_of):
    text = "axes: [{grid: {values.level: [1, 6, 9]}}]\nexclude: [{values.level: [1, 9]}]"
    assert [one.parameters["values"] for one in instances_of(text)] == [{"level": 6}]
    text = "targets: [{name: a, options: {x: 1}}, {name: b}]\nexclude: [{target.options.x: 1}]"
    assert [one.target["name"] for one in instances_of(text)] == ["b"]


def test_without_an_experiment_a_key_that_is_fixed_to_a_mapping_is_led_into(plan_of):
    text = "workload: {component: a, service: b, m: {x: 1}}\naxes: [{grid: {m.y: [1, 2], n.z: [3]}}]"
    found = [one.parameters for one in plan_of(text, code=None).instances()]
    assert [(one["m"], one["n.z"]) for one in found] == [({"x": 1, "y": 1}, 3), ({"x": 1, "y": 2}, 3)]


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        (
            "axes: [{grid: {tuning.depth: [1, 0, x]}}]",
            ["2:34 expected at least 1, found the number 0", "2:37 expected a whole number, found the text 'x'"],
        ),
        ("axes: [{zip: {tuning.depth: [0, 2], size: [1, 2]}}]", ["2:30 expected at least 1, found the number 0"]),
        ("axes: [{points: [{tuning.depth: 1}, {tuning.depth: 0}]}]", ["2:52 expected at least 1, found the number 0"]),
        ("axes: [{grid: {tuning.dpeth: [1, 2]}}]", ["2:16 unknown key 'dpeth'"]),
        ("axes: [{grid: {size.x: [1, 2]}}]", ["2:16 'size' holds no mapping, so there is no 'size.x'"]),
        ("axes: [{grid: {valeus.x: [1, 2]}}]", ["2:16 unknown key 'valeus.x'"]),
        ("workload: {values.level: 3}", ["2:12 'values.level' is an axis or nothing"]),
        (
            "workload: {values: {level: 1}}\naxes: [{grid: {values.level: [1, 2]}}]",
            ["3:16 'values.level' is varied here, and given a value in line 2"],
        ),
        (
            "workload: {values.level: 3}\naxes: [{grid: {values.level: [1, 2]}}]",
            ["3:16 'values.level' is varied here, and given a value in line 2"],
        ),
        (
            "target: {options: {a: 5}}\naxes: [{grid: {options.a.b: [1, 2]}}]",
            ["3:16 'target.options.a.b' can't vary: 'options.a' is fixed, and not to a mapping"],
        ),
        (
            "axes: [{grid: {values: [{x: 1}], values.level: [1, 2]}}]",
            ["2:34 'values.level' varies, and so does all of 'values'"],
        ),
        (
            "targets: [{name: a, options: {x: 1}}]\naxes: [{grid: {options.x: [1, 2]}}]",
            ["2:31 'options.x' is set by this target and varied by an axis"],
        ),
        (
            "axes: [{grid: {values.level: [1, 2]}}]\nexclude: [{values.level: 3}]",
            ["3:26 'values.level' never is 3, so this rule excludes nothing"],
        ),
        ("axes: [{grid: {values.level: [1, 2, 1]}}]", ["2:37 this means the same as the value at 2:31"]),
    ],
)
def test_a_mistake_is_reported_at_its_exact_place(text, mistakes, mistakes_of):
    assert mistakes_of(text) == mistakes


def test_a_mapping_that_a_benchmark_fixes_is_frozen_as_a_whole(mistakes_of):
    benchmark = "benchmark: b\nexperiment: compress\nworkload: {values: {x: 1}}\n"
    found = mistakes_of("uses: b\naxes: [{grid: {values.level: [1]}}]", benchmark=benchmark)
    assert found == ["3:16 'values.level' is fixed by the benchmark 'b'"]


def test_a_secret_inside_a_mapping_is_one_too(mistakes_of):
    assert mistakes_of("axes: [{grid: {values.token: [abc]}}]") == ["2:31 'values.token' is a secret in plain text"]
