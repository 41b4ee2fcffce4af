"""What a Spark task runs: found on the node by its name, so its Python needs benchhouse."""

import json
from pathlib import Path

from benchhouse.executors import cluster_node

IMPOSED = ("OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED")
"""What Spark sets for its Pythons: with it the same trial would be another one here than elsewhere."""


def run_slot(line: str) -> str:
    """Keep the slot that `line` describes until told to end; returns why it ended."""
    from pyspark import TaskContext

    given = json.loads(line)
    task = TaskContext.get()
    assert task
    folder = Path(given["folder"])
    if folder.is_dir():
        try:
            (folder / "begun").touch(exist_ok=False)
        except FileExistsError:  # Spark tries again what it lost; retries are ours
            return "it had begun before, and its executor was lost"
    placed = {"executor": "spark", "id": str(task.taskAttemptId()), "application": given["application"]}
    environment: dict[str, str] = given["environment"]
    if gpu := task.resources().get("gpu"):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.addresses)
    return cluster_node.keep_slot(given["folder"], given["python"], environment, placed, given["patience_s"], IMPOSED)
