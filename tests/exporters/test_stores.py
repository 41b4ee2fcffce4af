"""MLflow and Weights & Biases by their own libraries: written by ours, read back by theirs."""

import subprocess

import pytest
from services.export_readers import program, run_with

pytestmark = pytest.mark.slow("the libraries of MLflow and Weights & Biases take seconds to import")

MLFLOW = """
import json, sys
from mlflow import MlflowClient
import benchhouse as bh

workspace, run_id, instance = sys.argv[1:]
client = MlflowClient("sqlite:///ml.db")
place = client.create_experiment("greetings")
client.create_run(place, tags={"benchhouse.run_id": run_id, "benchhouse.instance": instance})  # a kill left it so
exports = [bh.Workspace(workspace).export("@last", "mlflow", "sqlite:///ml.db") for _ in range(2)]
print(json.dumps({"counts": [(item.points, item.known) for item in exports], "runs": [
    {"name": run.info.run_name, "status": run.info.status, "metrics": run.data.metrics, "tags": run.data.tags,
     "params": run.data.params,
     "trials": [item.value for item in sorted(client.get_metric_history(run.info.run_id, "wall_ms.mean/trial"),
                                              key=lambda item: item.step)],
     "files": sorted(item.path for item in client.list_artifacts(run.info.run_id, "evidence"))}
    for run in client.search_runs([place])
]}))
"""
WANDB = """
import sys
import benchhouse as bh

bh.Workspace(sys.argv[1]).export("@last", "wandb", "wb")
print("null")
"""


def test_mlflow_has_each_point_once_also_after_an_export_that_was_killed(greetings, numbers, tmp_path):
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    read = run_with(MLFLOW, tmp_path, greetings.root, row.run_id, row.instance_digest)
    assert read["counts"] == [[2, 0], [0, 2]]
    runs = {run["name"]: run for run in read["runs"]}
    assert len(read["runs"]) == 2
    plain = runs["name=plain"]
    assert plain["status"] == "FINISHED"
    assert plain["metrics"]["wall_ms.mean"] == row.mean and plain["metrics"]["wall_ms.mean/n"] == 3
    ends = (plain["metrics"]["wall_ms.mean/ci_low"], plain["metrics"]["wall_ms.mean/ci_high"])
    assert ends == row.interval
    assert plain["trials"] == row.values
    assert plain["params"]["target.name"] == "plain" and plain["params"]["executions"] == "2"
    assert plain["tags"]["unit.wall_ms"] == "ms; lower is better"
    assert plain["files"] == sorted(f"evidence/{trial}" for trial in row.trials)


def test_wandb_sync_would_take_the_offline_runs(greetings, tmp_path):
    """Their content can't be read back but by their server: here only that the names are in it."""
    run_with(WANDB, tmp_path, greetings.root)
    command = [program("wandb"), "sync", "--dry-run"]
    listed = subprocess.run(command, cwd=tmp_path / "wb", capture_output=True, text=True, check=False)
    assert listed.returncode == 0 and "Would sync 2 run(s)" in listed.stderr + listed.stdout
    runs = sorted((tmp_path / "wb" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(runs) == 2
    assert not [path for path in (tmp_path / "wb").rglob("*") if path.is_symlink()]
    everything = b"".join(path.read_bytes() for path in (tmp_path / "wb").rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in everything
    for text in (b"name=plain", b"wall_ms.mean/ci_low", b"greetings"):
        assert text in everything
