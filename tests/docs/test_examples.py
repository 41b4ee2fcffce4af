"""The examples are valid, and the quick ones run."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from doc_pages import ROOT
from services.trainer import trainer_bin

EXAMPLES = ROOT / "examples"
SCENARIOS = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("training/*.yaml")])
QUICK = {  # trials, and a metric that must be among the results
    "hello": (6, "wall_ms"),
    "command_regex": (9, "packed"),
    "command_json_lines": (6, "hash_mb_per_s"),
    "file_io": (15, "cpu_per_op"),  # which a busy machine does not make INVALID
    "uses_benchmark": (6, "recall"),
}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_example_is_valid(path, bench, monkeypatch):
    monkeypatch.setenv("WORK", "/scratch")
    done = bench("-C", EXAMPLES, "validate", path)
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", QUICK)
def test_quick_example_runs(name, bash, tmp_path):
    (tmp_path / "benchmarks").symlink_to(EXAMPLES / "benchmarks")
    done = bash(f"bench run {EXAMPLES / name}.yaml --json", tmp_path)
    assert done.returncode == 0, done.stderr
    result, (trials, metric) = json.loads(done.stdout), QUICK[name]
    assert result["outcomes"] == {"succeeded": trials}
    assert metric in {row["metric"] for row in result["points"]}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trials"), [("gpt", 2), ("resnet", 1)])
def test_training_example_runs(name, trials, bash, tmp_path):
    path = os.pathsep.join([str(trainer_bin()), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = bash(f"bench run {EXAMPLES / 'training' / name}.yaml --json", tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcomes"] == {"succeeded": trials}
    assert {"step_time", "data_share", "loss"} <= {row["metric"] for row in result["points"]}
    assert len(list(tmp_path.glob("results/*/*/artifacts/profiles/*.trace.json.gz"))) == (3 if name == "gpt" else 0)


@pytest.mark.slow
def test_the_example_of_ray_train_has_the_records_of_all_its_workers(bash, tmp_path):
    both = tmp_path / "both"  # a Python that has torch and Ray
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", both], check=True)
    (packages,) = both.glob("lib/*/site-packages")
    torch, ours = trainer_bin().parent.glob("lib/*/site-packages"), sysconfig.get_path("purelib")
    (packages / "both.pth").write_text("\n".join([*map(str, torch), ours]))
    path = os.pathsep.join([str(both / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = bash(f"bench run {EXAMPLES / 'training' / 'ray_train.yaml'} --json", tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    (meta,) = tmp_path.glob("results/*/*/meta.json")
    facts = json.loads(meta.read_text())["custom"]
    assert (facts["world"], facts["records_from"]) == (2, "emitted")
    assert facts["warmup_steps"] + facts["measured_steps"] == 12
    assert "loss" in {row["metric"] for row in json.loads(done.stdout)["points"]}
    assert not list((EXAMPLES / "training").glob("ray_train_run*"))  # what Ray Train writes goes elsewhere
