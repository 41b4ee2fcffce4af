"""The models of scenario and benchmark, beyond what `bench validate` is tested for."""

import pytest
from pydantic import ValidationError
from tables import check_table

from benchhouse.schema.resources import Limits, Resources, Retries
from benchhouse.schema.scenario import AxisBlock, Benchmark, Range, Scenario


def test_defaults_are_what_the_docs_say():
    scenario = Scenario(scenario="s")
    assert (scenario.repetitions, scenario.warmup, scenario.seed, scenario.order) == (1, 0, 0, "interleaved")
    assert (scenario.executor, scenario.runtime.kind, scenario.parallel) == ("local", "process", 1)


def test_a_scenario_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Scenario(scenario="s").seed = 5


@check_table("name", ["a", "A-b_c.9", "9", "x" * 100])
def test_names_that_are_folders_everywhere(name):
    assert Scenario(scenario=name).scenario == name


def test_resources_speak_slurm_too():
    assert Resources.model_validate({"cpus_per_task": 8, "mem_gb": 1.5}) == Resources(cpus=8, memory=3 << 29)


@check_table("wrong", [{"mem_gb": 0}, {"mem_gb": "1"}, {"mem_gb": True}, {"nodes": 0}, {"gpus": 1.0}, {"cpus": True}])
def test_resources_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        Resources.model_validate(wrong)


def test_resources_survive_the_way_to_the_worker():
    needs = Resources(cpus=2, gpus=1, memory=10**9)
    assert Resources.model_validate_json(needs.model_dump_json()) == needs
    limits = Limits.model_validate({"wall": "1m", "memory": "1GB", "cpus": 1})
    assert Limits.model_validate(limits.model_dump()) == limits


def test_retries_wait_longer_each_time_and_at_most_an_hour():
    retries = Retries(max_retries=9, backoff=2, factor=10)
    assert [retries.delay_s(attempt) for attempt in (1, 2, 3, 4, 9)] == [2, 2, 20, 200, 3600]


@check_table(
    "wrong",
    [
        {"from": 1, "to": 2},
        {"from": 1, "to": 2, "step": 1, "count": 2},
        {"from": 0, "to": 2, "factor": 2},
        {"from": -4, "to": -1, "factor": 2},
        {"from": 2, "to": 1, "step": 1},
        {"from": 1, "to": 2, "step": 0},
        {"from": 1, "to": 2, "factor": 1},
        {"from": 1, "to": 2, "count": 1},
        {"from": 0, "to": 1, "step": 1e-9},
        {"from": 1, "to": 10, "factor": 1.0000001},
        {"from": True, "to": 2, "step": 1},
        {"from": "1", "to": 2, "step": 1},
    ],
)
def test_a_range_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValidationError):
        Range.model_validate(wrong)


def test_a_block_names_what_varies_in_it():
    assert AxisBlock(grid={"a": [1], "b": [2]}).keys == ["a", "b"]
    assert AxisBlock(points=[{"a": 1, "b": 2}]).keys == ["a", "b"]


def test_a_benchmark_names_its_experiment_or_uses_another_and_never_both():
    assert Benchmark(benchmark="b", experiment="e").experiment == "e"
    assert Benchmark(benchmark="b", uses="c").uses == "c"
    for wrong in ({}, {"experiment": "e", "uses": "c"}):
        with pytest.raises(ValidationError, match="either experiment or uses"):
            Benchmark(benchmark="b", **wrong)
