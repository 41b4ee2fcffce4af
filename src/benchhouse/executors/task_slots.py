"""The functions of Dask workers and Spark tasks, found by name: their Python needs benchhouse, nothing is pickled."""

import json
from pathlib import Path
from urllib.parse import urlsplit

from benchhouse.executors import cluster_node

# Variables that Dask's nanny and Spark set for their own Pythons. With them, a trial would differ between executors.
DASK_SETS = ("MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")
SPARK_SETS = ("OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED")


def run_dask_slot(folder: str, python: list[str], environment: dict[str, str], patience_s: float) -> str:
    """Keep a slot until told to end, and return why it ended."""
    from distributed import get_worker

    worker = get_worker()
    if _had_begun(folder):
        return f"Dask began it a second time, on {worker.address}: the first worker was lost"
    placed = {"executor": "dask", "id": str(worker.name), "worker": worker.address}
    placed |= {"scheduler": worker.scheduler.address, "address": urlsplit(worker.address).hostname or ""}
    return cluster_node.keep_slot(folder, python, environment, placed, patience_s, DASK_SETS)


def run_spark_slot(line: str) -> str:
    """Keep the slot that `line` describes until told to end, and return why it ended."""
    from pyspark import TaskContext

    given = json.loads(line)
    task = TaskContext.get()
    assert task
    if _had_begun(given["folder"]):
        return "it had begun before, and its executor was lost"
    placed = {"executor": "spark", "id": str(task.taskAttemptId()), "application": given["application"]}
    environment: dict[str, str] = given["environment"]
    if gpu := task.resources().get("gpu"):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.addresses)
    return cluster_node.keep_slot(
        given["folder"], given["python"], environment, placed, given["patience_s"], SPARK_SETS
    )


def _had_begun(folder: str) -> bool:
    """Return whether this slot began before. Dask and Spark rerun a lost worker's task, without a setting for it."""
    try:
        (Path(folder) / "begun").touch(exist_ok=False)
    except FileExistsError:
        return True
    except OSError:  # the folder cannot be seen here; keep_slot explains that
        return False
    return False
