"""Jobs on a Ray cluster: one of the run's own on this machine, or one that is there."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.executors.cluster_engine import Ask, Node
from benchhouse.executors.ray_jobs import RayJobs
from benchhouse.executors.remote_cluster import FarExecutor
from benchhouse.schema.clusters import RaySettings
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId
from benchhouse.schema.resources import Resources

OWN = "local"


class RayExecutor(FarExecutor):
    """A slot is one Ray task that nobody but us retries."""

    title = "Ray"
    engine = "benchhouse.executors.ray_engine"
    library = "ray"

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.ray: RaySettings = assignment.scenario.ray if assignment.scenario else RaySettings()
        self.address = address(self.ray.address or assignment.site.ray.address)
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

    def patience_s(self) -> float | None:
        return self.ray.patience or self.assignment.site.ray.patience

    def nodes(self) -> Sequence[Node]:
        return super().nodes() if self.address != OWN else [this_machine()]

    def python(self, job: Job) -> tuple[str, ...]:
        return () if self.ray.runtime_env else job.python  # then it is whatever Python Ray has made

    def _where(self) -> str:
        return "a cluster of its own" if self.address == OWN else self.address


def address(asked: str | None) -> str:
    """Inside of a job that carries a whole run, Ray itself says where its cluster is."""
    given = os.environ.get("RAY_ADDRESS", "")
    if asked and not (asked.startswith("http") and given):
        return asked
    return given or OWN


def this_machine() -> Node:
    """What a cluster of our own will have; asked without starting one."""
    from benchhouse.executors.local import machine

    have = machine()
    return Node(name=os.uname().nodename, cpus=have.cpus, gpus=have.gpus, memory=have.memory)
