"""MLflow and Weights & Biases by their own libraries: written by ours, read back by theirs."""

import json
import subprocess

import pytest
from services.export_readers import bench_with, program, read_with

pytestmark = pytest.mark.slow  # their imports take seconds

READ_MLFLOW = """
import json
from mlflow import MlflowClient
client = MlflowClient("sqlite:///ml.db")
place = client.get_experiment_by_name("greetings").experiment_id
print(json.dumps([
    {"name": run.info.run_name, "status": run.info.status, "metrics": run.data.metrics, "tags": run.data.tags,
     "params": run.data.params, "start": run.info.start_time,
     "trials": [m.value for m in sorted(client.get_metric_history(run.info.run_id, "wall_ms.mean/trial"),
                                        key=lambda m: m.step)],
     "files": sorted(item.path for item in client.list_artifacts(run.info.run_id, "evidence"))}
    for run in client.search_runs([place])
]))
"""
INTERRUPTED = """
import sys
from mlflow import MlflowClient
client = MlflowClient("sqlite:///ml.db")
place = client.create_experiment("greetings")
client.create_run(place, tags={"benchhouse.run_id": sys.argv[1], "benchhouse.instance": sys.argv[2]})
print("0")
"""


def test_mlflow_has_each_point_once_also_after_an_export_that_was_killed(greetings, numbers, tmp_path):
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    read_with(INTERRUPTED, tmp_path, row.run_id, row.instance_digest)
    asked = ("-C", greetings.root, "export", "@last", "--as", "mlflow", "-o", "sqlite:///ml.db", "--json")
    first, again = (json.loads(bench_with(tmp_path, *asked).stdout) for _ in range(2))
    assert (first["points"], first["known"]) == (2, 0)
    assert (again["points"], again["known"]) == (0, 2)
    runs = {run["name"]: run for run in read_with(READ_MLFLOW, tmp_path)}
    assert len(runs) == 2
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
    bench_with(tmp_path, "-C", greetings.root, "export", "@last", "--as", "wandb", "-o", tmp_path / "wb")
    command = [program("wandb"), "sync", "--dry-run"]
    listed = subprocess.run(command, cwd=tmp_path / "wb", capture_output=True, text=True, check=False)
    assert listed.returncode == 0 and "Would sync 2 run(s)" in listed.stderr + listed.stdout
    runs = sorted((tmp_path / "wb" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(runs) == 2
    kept = b"".join(path.read_bytes() for path in runs)
    for text in (b"name=plain", b"wall_ms.mean/ci_low", b"greetings"):
        assert text in kept
