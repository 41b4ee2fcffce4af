"""What a Dask worker runs: found there by its name, so its Python needs benchhouse, and nothing of ours is pickled."""

from pathlib import Path

from benchhouse.executors import cluster_node

IMPOSED = ("MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")
"""What Dask's nanny sets: with it the same trial would be a slower one here than elsewhere."""


def run_slot(folder: str, python: list[str], environment: dict[str, str], patience_s: float) -> str:
    """Keep a slot until told to end; returns why it ended."""
    from distributed import get_worker

    worker = get_worker()
    placed = {
        "executor": "dask",
        "id": str(worker.name),
        "worker": worker.address,
        "scheduler": worker.scheduler.address,
    }
    if not _first(Path(folder)):
        return f"Dask began it a second time, on {worker.address}: the first worker was lost"
    return cluster_node.keep_slot(folder, python, environment, placed, patience_s, IMPOSED)


def _first(folder: Path) -> bool:
    """Dask runs a task of a lost worker again, and there is no switch for that; retries are ours."""
    try:
        (folder / "begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # the folder is not to be seen here, which keep_slot explains
        return True
    return True
