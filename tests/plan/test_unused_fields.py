"""What a scenario says and its executor or runtime would pass over is refused with its line, or told."""

import json

import pytest

IMAGE = {"artifacts": {"container": "/images/tool.sif"}}
BENCHMARK = {"benchmark": "long", "experiment": "command", "workload": {"executions": 1}, "limits": {"wall": "3h"}}


@pytest.fixture
def plan(bench, tmp_path):
    """`plan(*options, key=value)`: the scenario, one key a line, as `bench plan` takes it."""

    def call(*options, **keys):
        own = {"scenario": "s", "executor": "slurm", "target": {"argv": ["true"]}}
        own |= {} if "uses" in keys else {"experiment": "command"}
        lines = [f"{key}: {json.dumps(value)}" for key, value in (own | keys).items()]
        (tmp_path / "s.yaml").write_text("\n".join(lines) + "\n")
        return bench("plan", "s.yaml", *options)

    return call


@pytest.mark.parametrize("executor", ["slurm", "dask"])
@pytest.mark.parametrize("keys", [IMAGE, {"runtime": {"image": "/images/tool.sif"}}])
def test_an_image_that_nothing_enters_is_refused_at_its_line(plan, executor, keys):
    done = plan(executor=executor, **keys)
    assert done.code == 2 and "s.yaml:5:" in done.err
    assert f"jobs on {executor} would not run in this image" in done.err and "--runtime apptainer" in done.err


def test_the_runtime_of_the_site_enters_the_image(plan, tmp_path):
    (tmp_path / "site.yaml").write_text("site: test\nruntime: apptainer\n")
    done = plan(**IMAGE)
    assert done.code == 0 and "apptainer: the image /images/tool.sif is not there" in done.out


@pytest.mark.parametrize(("options", "keys"), [(["--runtime", "process"], {}), ([], {"runtime": {"kind": "venv"}})])
def test_a_runtime_that_was_chosen_against_the_image_is_told(plan, options, keys):
    done = plan(*options, binds=["/data:/data"], **IMAGE, **keys)
    assert done.code == 0, done.err
    kind = "venv" if keys else "process"
    assert f"no effect with executor 'slurm' and runtime '{kind}': artifacts.container, binds" in done.err


def test_slurms_own_words_are_told_where_no_slurm_reads_them(plan):
    assert (
        "no effect with executor 'dask' and runtime 'process': partition, qos"
        in plan(executor="dask", partition="gpu", qos="short").err
    )
    assert "no effect" not in plan(partition="gpu", qos="short").err


def test_a_python_that_ray_makes_and_a_runtime_of_ours_exclude_each_other(plan):
    own = {"executor": "ray", "ray": {"runtime_env": {"pip": ["six"]}}}
    assert plan(**own).code == 0
    done = plan("--runtime", "venv", **own)
    assert done.code == 2 and "s.yaml:5:" in done.err and "not in the runtime 'venv'" in done.err


@pytest.mark.parametrize(
    ("keys", "array"),
    [
        ({}, "0-7"),
        ({"parallel": 1}, "0-7%1"),
        ({"parallel": 4}, "0-7%4"),
        ({"parallel": 4, "slurm": {"throttle": 3}}, "0-7%3"),
        ({"parallel": 4, "slurm": {"pack": 2, "together": 2}}, "0-3%2"),
    ],
)
def test_as_many_trials_run_at_a_time_as_the_scenario_allows(plan, keys, array):
    assert f"#SBATCH --array={array}\n" in plan("--dry-run", repetitions=8, **keys).out


def test_a_task_that_runs_more_trials_than_may_run_is_refused(plan):
    done = plan(parallel=2, slurm={"pack": 8, "together": 4})
    assert done.code == 2 and "4 trials of a task at a time are more than parallel: 2" in done.err


def test_the_time_of_a_job_follows_from_the_limits_of_its_benchmark(plan, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "long.yaml").write_text(json.dumps(BENCHMARK))
    assert "#SBATCH --time=3:02:00\n" in plan("--dry-run", uses="long").out
