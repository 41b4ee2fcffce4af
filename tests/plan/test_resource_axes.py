"""Axes over what a trial is given: `resources.nodes` and its like."""

import pytest
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.resources import Resources


def given(plan):
    return [trial.resources for trial in plan.trials()]


@check_table(
    "text",
    [
        "resources: {nodes: [1, 2, 4], cpus: 2}",
        "resources: {cpus_per_task: 2}\naxes: [{grid: {resources.nodes: [1, 2, 4]}}]",
        "resources: {cpus: 2}\naxes: [{grid: {resources.nodes: {from: 1, to: 4, factor: 2}}}]",
    ],
)
def test_a_list_of_resources_is_an_axis(plan_of, text):
    plan = plan_of(f"experiment: sort\n{text}\n")
    assert given(plan) == plan.all_resources == [Resources(nodes=nodes, cpus=2) for nodes in (1, 2, 4)]
    assert plan.axes == ["resources.nodes"]
    assert len({trial.instance_digest for trial in plan.trials()}) == 3
    assert {str(trial.parameters) for trial in plan.trials()} == {str(next(plan.trials()).parameters)}


def test_what_does_not_vary_is_not_part_of_the_identity(plan_of):
    alone = plan_of("experiment: sort\nresources: {nodes: 2}\n")
    assert alone.digest == plan_of("experiment: sort\n").digest
    (point,) = alone.instances()
    assert point.digest() == next(alone.trials()).instance_digest
    varied = plan_of("experiment: sort\nresources: {nodes: [2, 3]}\n")
    assert [item.digest() for item in varied.instances()] == [trial.instance_digest for trial in varied.trials()]


def test_other_spellings_mean_the_same(plan_of):
    plan = plan_of("experiment: sort\nresources: {cpus_per_task: [1, 2], mem_gb: [1, 2]}\n")
    assert given(plan) == [Resources(cpus=cpus, memory=memory << 30) for cpus in (1, 2) for memory in (1, 2)]
    assert plan.axes == ["resources.cpus", "resources.memory"]


def test_weak_scaling_lets_the_size_grow_with_the_nodes(plan_of):
    text = "axes: [{zip: {resources.nodes: [1, 2, 4], size: [10, 20, 40]}}]"
    plan = plan_of(f"experiment: sort\n{text}\n")
    assert [(trial.resources.nodes, trial.parameters["size"]) for trial in plan.trials()] == [(1, 10), (2, 20), (4, 40)]


def test_points_can_be_left_out_by_their_resources(plan_of):
    text = "resources: {gpus: [0, 1]}\nworkload: {size: [1, 2]}\nexclude: [{resources.gpus: 1, size: 2}]"
    plan = plan_of(f"experiment: sort\n{text}\n")
    assert [(trial.resources.gpus, trial.parameters["size"]) for trial in plan.trials()] == [(0, 1), (0, 2), (1, 1)]


@check_table(
    "text, line, message",
    [
        ("resources: {nodes: [1, 0]}", 3, "nodes: 0"),
        ("resources: {nodes: []}", 3, "the axis 'nodes' is empty"),
        ("axes: [{grid: {resources.nodes: [1, x]}}]", 3, "nodes: 'x'"),
        ("axes: [{grid: {resources.noodles: [1, 2]}}]", 3, "unknown key 'noodles'"),
        ("resources: {nodes: 1}\naxes: [{grid: {resources.nodes: [1, 2]}}]", 4, "'resources.nodes' is varied here"),
        ("resources: {nodes: [1, 2]}\naxes: [{grid: {resources.nodes: [1, 2]}}]", 4, "'resources.nodes' varies twice"),
        ("scaling: strong", 3, "scaling: strong is about a curve, and no number varies"),
        ("scaling: weak\naxes: [{grid: {algorithm: [a, b]}}]", 3, "scaling: weak is about a curve"),
        ("resources: {cpus: [1, 1]}", 3, "this means the same as the value at 3:20"),
    ],
)
def test_impossible_resources_are_reported_with_their_line(plan_of, text, line, message):
    with pytest.raises(ProblemsError) as refused:
        plan_of(f"experiment: sort\n{text}\n")
    assert any(problem.line == line and message in problem.message for problem in refused.value.problems), refused.value
