"""The examples are valid, and one of each kind runs with small sizes."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from doc_pages import ROOT
from services.trainer import trainer_bin
from tables import check_table

EXAMPLES = ROOT / "examples"
SCENARIOS = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("training/*.yaml")])
QUICK = {  # what makes each one smaller, the number of trials that remain, and a metric that must be among the results
    "command_regex": (
        {"repetitions: 3": "repetitions: 1", "executions: 5": "executions: 1", "[1, 6, 9]": "[1]"},
        1,
        "packed",
    ),
    "command_json_lines": (
        {
            "repetitions: 3": "repetitions: 1",
            "executions: 5": "executions: 1",
            '["1000000\\n", "10000000\\n"]': '"1000\\n"',
        },
        1,
        "hash_mb_per_s",
    ),
    "file_io": (
        {"repetitions: 3": "repetitions: 1", "32MiB": "1MiB", "[write, read, randread]": "[write, randread]"},
        3,
        "cpu_per_op",
    ),
    "uses_benchmark": ({"repetitions: 3": "repetitions: 1"}, 2, "recall"),
}


@check_table("path", SCENARIOS)
def test_example_is_valid(path, bench, monkeypatch):
    monkeypatch.setenv("WORK", "/scratch")
    done = bench("-C", EXAMPLES, "validate", path)
    assert done.code == 0, done.err


@check_table("name", QUICK)
def test_a_quick_example_runs(name, bench, tmp_path):
    replacements, trials, metric = QUICK[name]
    text = (EXAMPLES / f"{name}.yaml").read_text()
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / f"{name}.yaml").write_text(text)
    if not (tmp_path / "benchmarks").exists():
        (tmp_path / "benchmarks").symlink_to(EXAMPLES / "benchmarks")
    done = bench("run", f"{name}.yaml", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["outcomes"] == {"succeeded": trials}
    assert metric in {row["metric"] for row in result["points"]}


@pytest.fixture
def training(tmp_path):
    """A copy of the examples of training, and the PATH of a Python that has torch and Ray."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "both"], check=True)
    (site,) = (tmp_path / "both").glob("lib/*/site-packages")
    torch, ours = trainer_bin().parent.glob("lib/*/site-packages"), sysconfig.get_path("purelib")
    (site / "both.pth").write_text("\n".join([*map(str, torch), ours]))
    shutil.copytree(EXAMPLES / "training", tmp_path / "training")
    return os.pathsep.join([str(tmp_path / "both" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.slow("it imports torch in every rank of two trainings")
def test_training_examples_run(training, bash, tmp_path):
    gpt = tmp_path / "training" / "gpt.yaml"
    gpt.write_text(gpt.read_text().replace("ranks: [1, 2]", "ranks: 2"))
    for name in ("gpt", "resnet"):
        done = bash(f"bench run training/{name}.yaml --json", tmp_path, PATH=training)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        result = json.loads(done.stdout)
        assert result["outcomes"] == {"succeeded": 1}
        assert {"step_time", "data_share", "loss"} <= {row["metric"] for row in result["points"]}
    assert len(list(tmp_path.glob("results/*/*/artifacts/profiles/*.trace.json.gz"))) == 2, "one for each rank of gpt"


@pytest.mark.timeout(900)
@pytest.mark.slow("it starts Ray and imports torch in two workers")
def test_the_example_of_ray_train_has_the_records_of_all_its_workers(training, bash, tmp_path):
    for _ in range(3):
        done = bash("bench run training/ray_train.yaml --new --json", tmp_path, PATH=training)
        if (
            "The current node timed out during startup" not in done.stdout
        ):  # Ray waits 30 s, however busy the machine is
            break
    assert done.returncode == 0, done.stdout + done.stderr
    metas = map(json.loads, [path.read_text() for path in tmp_path.glob("results/*/*/meta.json")])
    (facts,) = [meta["custom"] for meta in metas if meta["outcome"] == "succeeded"]
    assert (facts["world"], facts["records_from"]) == (2, "emitted")
    assert facts["warmup_steps"] + facts["measured_steps"] == 12
    assert "loss" in {row["metric"] for row in json.loads(done.stdout)["points"]}
    assert not list((tmp_path / "training").glob("ray_train_run*"))  # Ray Train writes to another folder
