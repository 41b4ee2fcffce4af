"""`bench plan`, and the example config that the requirements give."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm_vllm_baseline.yaml"


@pytest.fixture
def work(monkeypatch, tmp_path):
    """$WORK as the example expects it, with a dataset."""
    (tmp_path / "work" / "data").mkdir(parents=True)
    (tmp_path / "work" / "data" / "prompts.jsonl").write_text('{"prompt": "why"}\n')
    monkeypatch.setenv("WORK", str(tmp_path / "work"))


def test_the_example_config_is_planned_as_it_stands(bench, work):
    done = bench("plan", EXAMPLE, "--json")
    plan = json.loads(done.out)
    assert done.code == 0
    assert (plan["points"], plan["repetitions"], plan["trials"]) == (18, 3, 54)
    assert plan["axes"] == ["prompt_len", "gen_tokens", "batch", "concurrency"]
    assert plan["resources"] == {"nodes": 1, "gpus": 1, "cpus": 8, "memory": 32 << 30}
    shown = bench("plan", EXAMPLE)
    assert "54 = 18 points x 3 repetitions" in shown.out
    assert "serving.load" in shown.out
    assert "each trial starts the recipe vllm as its server" in shown.err
    assert "partition, account: runs on Slurm" in shown.err and "vllm.sif, by Apptainer" in shown.err
    here = bench("plan", EXAMPLE, "--executor", "local")
    assert "no effect on this machine: partition, account, artifacts.container, binds" in here.err


def test_each_use_of_an_unset_variable_is_named_with_its_place(bench, monkeypatch):
    monkeypatch.delenv("WORK", raising=False)
    for verb in ("plan", "validate", "run"):
        done = bench(verb, EXAMPLE)
        assert done.code == 2
        for place in ("19:14", "20:12", "22:5", "23:5"):
            assert f"{EXAMPLE}:{place}: the environment variable WORK is not set" in done.err
        assert "4 problems" in done.err


def test_running_the_example_config_says_what_is_missing(bench, work, tmp_path):
    done = bench("run", EXAMPLE, "--executor", "local")
    assert done.code == 2
    assert "this machine can't give what a trial asks for" in done.err
    assert "1 GPUs" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    (tmp_path / "work" / "data" / "prompts.jsonl").unlink()
    done = bench("run", EXAMPLE)
    assert done.code == 2
    assert ":20:12: the dataset" in done.err and "prompts.jsonl does not exist" in done.err
    assert "it can be planned for, and not run" in bench("plan", EXAMPLE).err


def test_a_service_that_nobody_drives_can_be_planned_and_not_run(bench, tmp_path):
    (tmp_path / "s.yaml").write_text("scenario: s\nworkload: {component: inference, service: no-such, x: [1, 2]}\n")
    shown = bench("plan", "s.yaml")
    assert shown.code == 0
    assert "no installed experiment drives inference/no-such: this scenario can be planned, not run" in shown.err
    assert shown.err.endswith("next:  bench list experiments\n")
    assert bench("run", "s.yaml").code == 2


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        'scenario: s\nexperiment: command\ntarget: {name: t, argv: ["true"]}\nworkload: {executions: [1, 2, 3]}\n'
        "warmup: 1\nrepetitions: 2\nlimits: {wall: 90s, memory: 1GiB}\n"
    )
    return path


def test_a_plan_shows_points_trials_limits_and_the_next_command(bench, scenario):
    done = bench("plan", "s.yaml", "--points", "2")
    assert done.code == 0
    assert "9 = 3 points x 2 repetitions + 1 warm-ups each, interleaved, seed 0" in done.out
    assert "wall 1 m 30 s, memory 1.0 GiB" in done.out
    assert "unknown (no history in this workspace)" in done.out
    assert "... and 1 more points" in done.err
    assert done.err.endswith("next:  bench run s.yaml\n")


def test_the_next_command_runs_where_the_plan_was_for(bench, scenario):
    done = bench("plan", "s.yaml", "--executor", "local", "--runtime", "process")
    assert done.err.endswith("next:  bench run s.yaml --executor local --runtime process\n")


def test_a_dry_run_names_the_point_of_each_job_also_where_its_axis_is_a_key_within_a_key(bench, tmp_path):
    axes = "axes: [{grid: {values.n: [1000, 4000]}}]\nexecutor: slurm\n"
    (tmp_path / "s.yaml").write_text(f"scenario: s\nexperiment: command\ntarget: {{shell: 'head -c {{n}} f'}}\n{axes}")
    told = bench("plan", "s.yaml", "--dry-run").out
    assert "# values.n=1000, repetition 0" in told and "# values.n=4000, repetition 0" in told


def test_minus_c_names_the_file_too(bench, scenario):
    assert bench("plan", "-c", "s.yaml", "--json").out == bench("plan", "s.yaml", "--json").out


def test_a_plan_without_a_file_says_how_to_give_one(bench):
    done = bench("plan")
    assert done.code == 2
    assert "bench plan SCENARIO.yaml" in done.err


def test_a_dry_run_prints_the_exact_job(bench, scenario):
    done = bench("plan", "s.yaml", "--dry-run")
    assert done.code == 0
    assert "benchhouse.worker" in done.out


@pytest.mark.parametrize(("verb", "job"), [("plan", "#SBATCH --job-name"), ("run", "benchhouse.worker")])
def test_a_dry_run_of_an_image_that_is_not_there_prints_the_jobs_and_fails(bench, scenario, tmp_path, verb, job):
    image = tmp_path / "tool.sif"
    scenario.write_text(scenario.read_text() + f"runtime: {{kind: apptainer, image: {image}}}\n")
    done = bench(verb, "s.yaml", "--dry-run", "--executor", "slurm" if verb == "plan" else "local")
    assert done.code == 2 and job in done.out
    assert f"cannot run: jobs would not find what they need:\n  - the image {image} is not there" in done.err
    for words in ("bench images pull docker://NAME --name tool.sif", "bench images build", f"bench images add {image}"):
        assert words in done.err


def test_planning_writes_nothing(bench, scenario, tmp_path):
    bench("plan", "s.yaml")
    bench("plan", "s.yaml", "--dry-run")
    bench("validate", "s.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


NEEDS_SLURM = pytest.mark.skipif(
    find_spec("benchhouse.executors.slurm") is None, reason="there is no executor 'slurm' yet"
)


@NEEDS_SLURM
def test_the_example_config_becomes_a_script_for_meluxina(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("WORK", str(tmp_path))
    for name in ("results", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "prompts.jsonl").write_text('{"prompt": "why"}\n')
    done = bench("plan", EXAMPLE, "--site", "meluxina", "--runtime", "process", "--dry-run")
    assert done.code == 0, done.err
    for line in (
        "--partition=gpu",
        "--account=pXXXXX",
        "--qos=default",
        "--nodes=1",
        "--gres=gpu:1",
        "--cpus-per-task=8",
    ):
        assert line in done.out
    assert "--mem" in done.out and "--time" in done.out
    checked = subprocess.run(["bash", "-n"], input=done.out, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


@NEEDS_SLURM
def test_what_no_node_of_meluxina_has_is_refused_when_it_is_planned(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("WORK", "/work")
    text = EXAMPLE.read_text().replace("partition: gpu", "partition: gpus").replace("gpus: 1", "gpus: 8")
    (tmp_path / "s.yaml").write_text(text)
    done = bench("plan", "s.yaml", "--site", "meluxina", "--runtime", "process")
    assert done.code == 2 and "did you mean 'gpu'?" in done.err and "s.yaml:2:12" in done.err
    (tmp_path / "s.yaml").write_text(text.replace("partition: gpus", "partition: gpu"))
    assert "no node of partition 'gpu' has more than 4" in bench("plan", "s.yaml", "--site", "meluxina").err
