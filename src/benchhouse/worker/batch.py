"""Facts about the job that a worker runs in, from the environment that a batch system or cluster provides."""

import contextlib
import json
import os
from datetime import datetime
from typing import Any

from benchhouse.worker import nodes

TASK = "SLURM_ARRAY_TASK_ID"
_VARIABLES = {
    "job_id": "SLURM_JOB_ID", "array_job_id": "SLURM_ARRAY_JOB_ID", "array_task_id": TASK,
    "job_name": "SLURM_JOB_NAME", "cluster": "SLURM_CLUSTER_NAME", "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT", "qos": "SLURM_JOB_QOS", "nodes": "SLURM_JOB_NODELIST",
    "restarts": "SLURM_RESTART_COUNT", "cpus_on_node": "SLURM_CPUS_ON_NODE",
    "job_start": "SLURM_JOB_START_TIME",
}  # fmt: skip
PLACED = "BENCHHOUSE_PLACED"  # set by an executor whose jobs run on other nodes: JSON, with at least executor and node


def job() -> str | None:
    """Return the job id in the format of Slurm's own programs: JOB, or JOB_INDEX of an array."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get(TASK)
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID")


def described(submitted: str | None, started: str) -> dict[str, Any]:
    """Return facts for meta.json; empty outside of a job. The queue time uses two clocks: if negative, they differ."""
    about: dict[str, Any] = {key: os.environ[name] for key, name in _VARIABLES.items() if name in os.environ}
    if submitted and about:
        waited = datetime.fromisoformat(started) - datetime.fromisoformat(submitted)
        about |= {"submitted": submitted, "queue_s": waited.total_seconds()}
    return about


def placed(executor: str, host: str) -> dict[str, str]:
    """Return where the executor put this trial: `executor`, `node`, and its own ids if it has any."""
    with contextlib.suppress(ValueError):
        place: dict[str, str] = json.loads(os.environ.get(PLACED, "{}"))
        if place.get("executor") == executor:
            return place | ({"nodes": ",".join(nodes.names())} if nodes.are_slots() else {})
    place = {"executor": executor, "node": os.environ.get("SLURMD_NODENAME") or host}
    return place | ({"id": name} if (name := job()) else {})
