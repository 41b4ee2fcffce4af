"""Jobs on a Ray cluster: one of the run's own on this machine, or one that is there."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.executors.cluster_engine import Ask
from benchhouse.executors.ray_jobs import RayJobs
from benchhouse.executors.remote_cluster import OWN, ClusterExecutor
from benchhouse.schema.clusters import RaySettings
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId
from benchhouse.schema.resources import Resources


class RayExecutor(ClusterExecutor):
    """A slot is one Ray task that nobody but us retries."""

    title = "Ray"
    engine = "benchhouse.executors.ray_engine"
    library = "ray"

    def __init__(self, assignment: Assignment) -> None:
        self.ray = assignment.scenario.ray if assignment.scenario else RaySettings()
        site = assignment.site.ray
        super().__init__(assignment, address(self.ray.address or site.address), self.ray.patience or site.patience)
        self.carrier = RayJobs(self.address) if self.address.startswith("http") else None

    def settings(self) -> Mapping[str, Any]:
        return {"address": self.address, "runtime_env": self.ray.runtime_env}

    def ask(self, resources: Resources) -> Ask:
        return super().ask(resources).model_copy(update={"custom": self.ray.resources})

    def check(self, resources: Resources) -> None:
        """Of a cluster that takes the whole run, only whether it is there; the run itself looks at its nodes."""
        if self.carrier:
            self.carrier.check()
        else:
            super().check(resources)

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        if self.carrier:
            raise BenchError(
                f"{self.address} is Ray's address for whole runs, not for trials",
                "bench submit hands the run over; to stay with it, give ray://HOST:10001, or HOST:6379 on a node of it",
            )
        return super().submit(jobs)

    def python(self, job: Job) -> tuple[str, ...]:
        return () if self.ray.runtime_env else job.python  # then it is whatever Python Ray has made


def address(configured: str | None) -> str:
    """Inside of a job that carries a whole run, Ray itself says where its cluster is."""
    given = os.environ.get("RAY_ADDRESS", "")
    if configured and not (configured.startswith("http") and given):
        return configured
    return given or OWN
