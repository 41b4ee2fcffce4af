"""Which points a scenario has, and in which order."""

import pytest
from pydantic import BaseModel
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.experiment import experiment


class Aim(BaseModel, extra="forbid"):
    target: str = ""


def test_a_list_in_the_workload_is_an_axis_and_the_last_varies_fastest(points_of):
    assert points_of("workload: {size: [1, 2], algorithm: [heap, merge]}") == [
        {"size": 1, "algorithm": "heap"},
        {"size": 1, "algorithm": "merge"},
        {"size": 2, "algorithm": "heap"},
        {"size": 2, "algorithm": "merge"},
    ]


def test_a_scenario_without_axes_has_one_point(points_of):
    assert points_of("workload: {size: 5}") == [{}]


def test_a_list_for_a_list_typed_field_is_a_value(plan_of):
    plan = plan_of("workload: {pivots: [1, 2], size: 5}")
    assert [instance.parameters["pivots"] for instance in plan.instances()] == [[1, 2]]


def test_a_list_typed_field_varies_in_a_grid(plan_of):
    plan = plan_of("axes: [{grid: {pivots: [[1], [2, 3]]}}]")
    assert [instance.parameters["pivots"] for instance in plan.instances()] == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("{from: 1, to: 4, step: 1}", [1, 2, 3, 4]),
        ("{from: 1, to: 4.5, step: 1}", [1, 2, 3, 4]),
        ("{from: 0, to: 0.3, step: 0.1}", [0, 0.1, 0.2, 0.3]),
        ("{from: -0.3, to: 0.3, step: 0.3}", [-0.3, 0, 0.3]),
        ("{from: 1, to: 64, factor: 4}", [1, 4, 16, 64]),
        ("{from: 1, to: 63, factor: 4}", [1, 4, 16]),
        ("{from: 1, to: 1000, factor: 10}", [1, 10, 100, 1000]),
        ("{from: 0, to: 1, count: 5}", [0, 0.25, 0.5, 0.75, 1]),
        ("{from: 1000000000000001, to: 1000000000000003, step: 1}", [10**15 + 1, 10**15 + 2, 10**15 + 3]),
        ("{from: 5, to: 5, step: 1}", [5]),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "workload: {{share: {{range: {0}}}}}",
        "axes: [{{grid: {{share: {0}}}}}]",
        "axes: [{{zip: {{share: {{range: {0}}}}}}}]",
    ],
)
def test_a_range_holds_the_values_that_people_would_write(given, values, form, points_of):
    found = [point["share"] for point in points_of(form.format(given))]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_blocks_of_axes_multiply(points_of):
    text = """
workload: {both: [true, false]}
axes:
  - grid: {size: [1, 2]}
  - zip: {algorithm: [heap, merge], share: [0.1, 0.2]}
  - points: [{pause: 1}, {pause: 2}]
"""
    points = points_of(text)
    assert len(points) == 2 * 2 * 2 * 2
    assert points[0] == {"both": True, "size": 1, "algorithm": "heap", "share": 0.1, "pause": 1}
    assert points[-1] == {"both": False, "size": 2, "algorithm": "merge", "share": 0.2, "pause": 2}
    assert {(point["algorithm"], point["share"]) for point in points} == {("heap", 0.1), ("merge", 0.2)}


def test_points_may_list_their_keys_in_any_order(points_of):
    text = "axes: [{points: [{size: 1, algorithm: heap}, {algorithm: merge, size: 2}]}]"
    assert points_of(text) == [{"size": 1, "algorithm": "heap"}, {"size": 2, "algorithm": "merge"}]


@check_table(
    "rule, left",
    [
        ("{size: 1}", [(2, "heap"), (2, "merge")]),
        ("{size: 1.0, algorithm: heap}", [(1, "merge"), (2, "heap"), (2, "merge")]),
        ("{size: [1, 2], algorithm: heap}", [(1, "merge"), (2, "merge")]),
        ("{workload.size: 2}", [(1, "heap"), (1, "merge")]),
    ],
)
def test_exclude_takes_one_value_or_any_of_several(rule, left, points_of):
    points = points_of(f"workload: {{size: [1, 2], algorithm: [heap, merge]}}\nexclude: [{rule}]")
    assert [(point["size"], point["algorithm"]) for point in points] == left


def test_exclude_tells_one_from_true(points_of):
    with pytest.raises(ProblemsError, match="'both' never is 1"):
        points_of("workload: {both: [true, false]}\nexclude: [{both: 1}]")


def test_exclude_within_a_zip_needs_all_its_keys(points_of):
    text = "axes: [{zip: {size: [1, 2, 2], share: [0.1, 0.1, 0.2]}}]\nexclude: [{size: 2, share: 0.1}]"
    assert points_of(text) == [{"size": 1, "share": 0.1}, {"size": 2, "share": 0.2}]


def test_exclude_takes_a_list_as_the_value_of_a_list_typed_axis(points_of):
    assert points_of("axes: [{grid: {pivots: [[1], [2]]}}]\nexclude: [{pivots: [1]}]") == [{"pivots": [2]}]


def test_targets_are_an_axis_and_names_are_enough(plan_of):
    plan = plan_of("targets: [a, {name: b, cores: 2}]\nworkload: {size: [1, 2]}")
    bound = [(instance.target, instance.parameters["size"]) for instance in plan.instances()]
    one, two = {"name": "a", "cores": 1}, {"name": "b", "cores": 2}
    assert bound == [(one, 1), (one, 2), (two, 1), (two, 2)]
    assert plan.axes == ["target.name", "size"]


@check_table(
    "axes",
    [
        "points: [{target: a, size: 1}, {size: 2, target: {name: a, cores: 2}}]",
        "zip: {target: [a, {name: a, cores: 2}], size: [1, 2]}",
        "zip: {size: [1, 2], target: [{name: a}, {name: a, cores: 2}]}",
    ],
)
def test_whole_targets_vary_together_with_other_keys(axes, plan_of):
    plan = plan_of(f"axes: [{{{axes}}}, {{grid: {{share: [0.5, 1]}}}}]\nexclude: [{{cores: 2, share: 0.5}}]")
    bound = [(item.target, item.parameters["size"], item.parameters["share"]) for item in plan.instances()]
    one, two = {"name": "a", "cores": 1}, {"name": "a", "cores": 2}
    assert bound == [(one, 1, 0.5), (one, 1, 1.0), (two, 2, 1.0)]
    assert sorted(plan.axes) == ["share", "size", "target.name"]


@check_table(
    "text, message",
    [
        ("axes: [{points: [{target: 3, size: 1}]}]", "2:27: the number 3 is no target"),
        ("axes: [{points: [{target: {core: 2}, size: 1}]}]", "unknown key 'core'"),
        ("axes: [{points: [{target: {cores: 2}, size: 1}]}, {grid: {cores: [1]}}]", "'cores' is set by this"),
        ("target: {name: z, cores: 4}\naxes: [{grid: {target: [{cores: 2}]}}]", "'cores' .* fixed under `target:`"),
        ("axes: [{grid: {target: [a, a]}}]", "the target 'a' is named twice"),
        ("workload: {target: [a, b]}", "unknown key 'target'"),
    ],
)
def test_wrong_or_conflicting_targets_are_reported_with_their_place(text, message, plan_of):
    with pytest.raises(ProblemsError, match=message):
        plan_of(text)


def test_an_input_called_target_is_not_taken_for_whole_targets(plan_of):
    @experiment("aim", version="1.0")
    def aim(workload: Aim) -> None: ...

    assert [item.parameters for item in plan_of("workload: {target: a}", aim).instances()] == [{"target": "a"}]
    with pytest.raises(ProblemsError, match="a workload's own 'target' can't vary"):
        plan_of("axes: [{grid: {target: [a, b]}}]", aim)


@check_table("rule", ["{target: b, size: 1}", "{target.name: b, size: 1}", "{cores: [2], size: 1}"])
def test_targets_are_excluded_by_name_or_field(rule, plan_of):
    plan = plan_of(f"targets: [a, {{name: b, cores: 2}}]\nworkload: {{size: [1, 2]}}\nexclude: [{rule}]")
    left = [(item.target["name"], item.parameters["size"]) for item in plan.instances()]
    assert left == [("a", 1), ("a", 2), ("b", 2)]


def test_a_field_of_the_target_varies_under_target_and_by_its_full_and_bare_name(plan_of):
    for text in (
        "target: {name: t, cores: [1, 2]}",
        "target: t\naxes: [{grid: {target.cores: [1, 2]}}]",
        "target: t\naxes: [{grid: {cores: [1, 2]}}]",
        "target: t\nworkload: {cores: [1, 2]}",
        "target: t\nworkload: {cores: {range: {from: 1, to: 2, step: 1}}}",
    ):
        plan = plan_of(text)
        assert [instance.target for instance in plan.instances()] == [
            {"name": "t", "cores": 1},
            {"name": "t", "cores": 2},
        ], text
        assert all("cores" not in instance.parameters for instance in plan.instances())


def test_a_target_that_sets_what_an_axis_varies_is_refused(plan_of):
    with pytest.raises(ProblemsError, match="'cores' is set by this target and varied by an axis"):
        plan_of("targets: [{name: a, cores: 1}]\naxes: [{grid: {cores: [1, 2]}}]")


def test_values_that_mean_the_same_are_one_point_and_refused_as_two(plan_of):
    for text in ("size: [1, 2, 1.0]", "pause: [60, 1m]", "share: [1, 0.5, 1.0]"):
        with pytest.raises(ProblemsError, match="this means the same as the value at"):
            plan_of(f"workload: {{{text}}}")
    with pytest.raises(ProblemsError, match="this means the same as the value at"):
        plan_of("targets: [here, {cores: 1}]")


def test_an_excluded_combination_need_not_fit(plan_of):
    text = "workload: {algorithm: [quick, heap], size: [5000, 10]}\n"
    with pytest.raises(ProblemsError, match="quick sorts at most 1000"):
        _ = plan_of(text).points
    assert plan_of(text + "exclude: [{algorithm: quick, size: 5000}]").points == 3


def test_without_an_experiment_everything_listed_is_an_axis(points_of):
    assert len(points_of("workload: {component: a, service: b, x: [1, 2], y: [3]}", code=None)) == 2


def test_a_target_that_is_named_twice_is_refused_at_the_second_name(plan_of):
    with pytest.raises(ProblemsError) as caught:
        plan_of("targets: [a, {name: b, cores: 2}, {cores: 3, name: b}, a]")
    assert [(found.line, found.column, found.message) for found in caught.value.problems] == [
        (2, 52, "the target 'b' is named twice"),
        (2, 56, "the target 'a' is named twice"),
    ]


@check_table("key", ["workload: {size: ", "target: {cores: "])
def test_a_range_without_its_key_word_gets_a_hint(key, plan_of):
    with pytest.raises(ProblemsError) as caught:
        plan_of(f"{key}{{from: 1, to: 10, factor: 10}}}}")
    (found,) = caught.value.problems
    assert "for a range write {range: {from: 1, to: 10, factor: 10}}" in found.expected


@check_table(
    "rule, place, said, suggestion",
    [
        ("{size: [1, 3]}", (3, 22), "'size' never is 3", ""),
        ("{size: 3}", (3, 18), "'size' never is 3", ""),
        ("{sise: 1}", (3, 12), "'sise' does not vary", "size"),
    ],
)
def test_a_rule_that_excludes_nothing_is_reported_with_its_place(rule, place, said, suggestion, plan_of):
    with pytest.raises(ProblemsError) as refused:
        plan_of(f"workload: {{size: [1, 2]}}\nexclude: [{rule}]")
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.suggestion) == (*place, suggestion)
    assert problem.message.startswith(said)


def test_an_axis_without_values_is_told_where_it_stands(plan_of):
    with pytest.raises(ProblemsError) as refused:
        plan_of("workload: {size: []}")
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.message) == (2, 18, "the axis 'size' is empty")
