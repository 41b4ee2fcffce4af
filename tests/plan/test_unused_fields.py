"""What a scenario says and its executor or runtime would pass over is refused with its line, or told."""

import json

import pytest
from tables import check_table

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


@check_table("executor", ["slurm", "dask"])
@check_table("keys", [IMAGE, {"runtime": {"image": "/images/tool.sif"}}])
def test_a_sif_image_of_jobs_is_entered_by_apptainer(plan, executor, keys):
    done = plan(executor=executor, **keys)
    assert done.code == 0 and "jobs run in /images/tool.sif, by Apptainer" in done.err
    assert "apptainer: the image /images/tool.sif is not there" in done.out


def test_an_image_that_nothing_enters_is_refused_at_its_line(plan):
    done = plan(artifacts={"container": "docker://tool:1"})
    assert done.code == 2 and "s.yaml:5:" in done.err
    assert "jobs on slurm would not run in this image" in done.err and "--runtime apptainer" in done.err


def test_the_runtime_of_the_site_enters_the_image(plan, tmp_path):
    (tmp_path / "site.yaml").write_text("site: test\nruntime: apptainer\n")
    done = plan(**IMAGE)
    assert done.code == 0 and "apptainer: the image /images/tool.sif is not there" in done.out


@check_table("options, keys", [(["--runtime", "process"], {}), ([], {"runtime": {"kind": "venv"}})])
def test_a_runtime_that_ignores_the_image_is_reported(plan, options, keys):
    done = plan(*options, binds=["/data:/data"], **IMAGE, **keys)
    assert done.code == 0, done.err
    kind = "venv" if keys else "process"
    assert f"no effect with executor 'slurm' and runtime '{kind}': artifacts.container, binds" in done.err


def test_slurms_own_words_beside_another_executor_are_refused_at_their_lines(plan):
    done = plan(executor="dask", partition="gpu", qos="short")
    assert done.code == 2 and "partition is Slurm's, and executor: dask has none" in done.err
    assert "s.yaml:5:1" in done.err and "s.yaml:6:1" in done.err
    assert "no effect" not in plan(partition="gpu", qos="short").err


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """PATH with nothing in it but this folder."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture
def asked(bench, tmp_path):
    """`asked(verb, *options, **keys)`: a scenario that says no executor."""

    def call(verb, *options, **keys):
        own = {"scenario": "s", "experiment": "command", "target": {"argv": ["true"]}} | keys
        (tmp_path / "s.yaml").write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in own.items()) + "\n")
        return bench(verb, "-c", "s.yaml", *options)

    return call


@check_table("verb", ["submit", "run"])
def test_a_partition_without_slurm_is_refused_with_the_choice(asked, programs, tmp_path, verb):
    done = asked(verb, account="p1", partition="gpu")
    assert done.code == 2 and "s.yaml:5:1" in done.err
    assert "partition, account: this asks for Slurm, and there is no sbatch on this machine" in done.err
    assert "--executor local" in done.err and "site.yaml" in done.err
    assert not (tmp_path / ".bench").exists()


def test_a_partition_is_planned_for_slurm_wherever_that_is_done(asked, programs):
    done = asked("plan", partition="gpu")
    assert done.code == 0 and "slurm; " in done.out and "partition: runs on Slurm, and there is no sbatch" in done.err
    (programs / "sbatch").symlink_to("/bin/true")
    assert "note: partition: runs on Slurm\n" in asked("plan", partition="gpu").err
    assert "#SBATCH --partition=gpu" in asked("plan", "--dry-run", partition="gpu").out


@check_table("by_site", [False, True])
def test_fields_that_the_chosen_executor_ignores_are_reported(asked, programs, tmp_path, by_site):
    if by_site:
        (tmp_path / "site.yaml").write_text("site: laptop\nexecutor: local\n")
    done = asked("plan", *([] if by_site else ["--executor", "local"]), partition="gpu")
    assert done.code == 0 and "no effect on this machine: partition" in done.err


@check_table(
    "resources, lines",
    [
        ({"ntasks": 4, "cpus_per_task": 2}, ["--ntasks=4", "--cpus-per-task=2", "--nodes=1"]),
        ({"nodes": 2, "ntasks": 8}, ["--nodes=2", "--ntasks=8"]),
        ({"gres": "gpu:a100:2"}, ["--gres=gpu:a100:2"]),
        ({"gres": "gpu", "gpus": 1}, ["--gres=gpu:1"]),
        ({"gres": "nvme:2", "gpus": 3}, ["--gres=gpu:3,nvme:2"]),
    ],
)
def test_tasks_and_generic_resources_reach_slurm(plan, resources, lines):
    script = plan("--dry-run", resources=resources).out
    assert all(f"#SBATCH {line}\n" in script for line in lines), script
    assert ("--ntasks-per-node" in script) == ("ntasks" not in resources)


def test_gpus_that_vary_keep_the_type_that_gres_names(plan):
    script = plan("--dry-run", resources={"gres": "gpu:a100:1", "gpus": [1, 2]}, slurm={"pack": 2, "together": 2}).out
    assert "#SBATCH --gres=gpu:a100:2\n" in script


@check_table(
    "resources, message",
    [
        ({"ntasks": 4}, "4 tasks: dask starts a trial once"),
        ({"gres": "gpu:2"}, "gres: gpu:2: only Slurm has these"),
    ],
)
def test_resources_of_slurm_are_refused_by_other_executors(plan, resources, message):
    done = plan(executor="dask", resources=resources)
    assert done.code == 2 and message in done.err and "s.yaml:5:" in done.err and "--executor slurm" in done.err
    assert plan(executor="dask", resources={"ntasks": 1}).code == 0


@check_table(
    "resources, message",
    [
        ({"nodes": 2, "ntasks": 1}, "2 nodes for 1 tasks"),
        ({"gres": "gpu:2", "gpus": 1}, "gpus: 1 and gres: gpu:2 ask for different numbers"),
        ({"gres": "gpu:a:1,gpu:b:1"}, "GPUs of two types"),
        ({"gres": "gpu:2; rm -rf /"}, "is not NAME[:TYPE][:COUNT]"),
        ({"gres": ["gpu:1", "gpu:2"]}, "let `gpus` vary"),
    ],
)
def test_tasks_and_generic_resources_that_make_no_sense_are_refused(plan, resources, message):
    done = plan(resources=resources)
    assert done.code == 2 and message in done.err


def test_tasks_beyond_their_nodes_are_refused(plan):
    done = plan(resources={"ntasks": 5, "nodes": 2}, slurm={"ntasks_per_node": 2})
    assert done.code == 2 and "room for 4 on its nodes" in done.err


def test_a_python_that_ray_makes_and_a_runtime_of_ours_exclude_each_other(plan):
    own = {"executor": "ray", "ray": {"runtime_env": {"pip": ["six"]}}}
    assert plan(**own).code == 0
    done = plan("--runtime", "venv", **own)
    assert done.code == 2 and "s.yaml:5:" in done.err and "not in the runtime 'venv'" in done.err


@check_table(
    "keys, array",
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


def test_a_licence_of_a_model_that_nothing_is_about_is_refused_with_a_guess(bench, tmp_path):
    text = "scenario: s\nexperiment: serving.load\ntarget: {url: 'http://127.0.0.1:1', model: [small, large]}\n"
    text += "workload: {concurrency: 1}\nartifacts:\n  models: {small: MIT, %s: Apache-2.0}\n"
    (tmp_path / "s.yaml").write_text(text % "lrge")
    done = bench("plan", "s.yaml")
    assert done.code == 2 and "s.yaml:6:24: no trial of this scenario is about a model 'lrge'" in done.err
    assert "did you mean 'large'?" in done.err
    (tmp_path / "s.yaml").write_text(text % "large")
    assert bench("plan", "s.yaml").code == 0
