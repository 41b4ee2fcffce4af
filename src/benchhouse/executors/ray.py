"""Run trials on a Ray cluster: one that the run starts on this machine, or an existing one."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.executors.kuberay import KubeRayJobs, to_come
from benchhouse.executors.remote_cluster import OWN, ClusterExecutor
from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.schema.clusters import RaySettings, RaySite
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.kuberay import KubeRay
from benchhouse.schema.protocols import Assignment, Job, JobId
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import resolve

_CLIENT = HttpClient(timeout_s=10.0, proxy=True, redirects=True)
_STOP_S = 120.0
_SCALE_UP_S = 1800.0  # a new cloud node for a pod takes minutes
_SENT = ("BENCH_", "PYTHONPATH")  # nothing else of our environment, because a job's variables are visible to everyone


class RayExecutor(ClusterExecutor):
    """An executor whose slots are Ray tasks; only benchhouse retries them."""

    title = "Ray"
    engine = "benchhouse.executors.ray_engine"
    library = "ray"
    has_gangs = True

    carrier: "RayJobs | KubeRayJobs | None" = None

    def __init__(self, assignment: Assignment) -> None:
        self.ray = assignment.scenario.ray if assignment.scenario else RaySettings()
        self.kuberay = is_for_one_run(self.ray, assignment.site.ray)
        where = address(None if self.kuberay else self.ray.address or assignment.site.ray.address)
        patience_s = self.ray.patience or assignment.site.ray.patience or (_SCALE_UP_S if self.kuberay else None)
        super().__init__(assignment, where, patience_s, self.ray.resources)
        if self.kuberay and where == OWN:
            self.carrier = KubeRayJobs(assignment, self.kuberay)
        elif where.startswith("http"):
            self.carrier = RayJobs(where)

    def settings(self) -> Mapping[str, Any]:
        return {"address": self.address, "runtime_env": resolve(self.ray.runtime_env, os.environ)}

    def check(self, resources: Resources) -> None:
        """Check the resources; for a cluster that takes the whole run, only what is known from outside."""
        if self.carrier:
            self.carrier.check(self.ask(resources))
        else:
            super().check(resources)

    def expected(self) -> Sequence[ClusterNode]:
        return to_come(self.kuberay) if self.kuberay else ()

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        if self.carrier:
            if self.kuberay:
                raise BenchError("KubeRay makes a cluster for a whole run", "bench submit hands the run over to it")
            raise BenchError(
                f"{self.address} is Ray's address for whole runs, not for trials",
                "bench submit hands the run over; to stay with it, give ray://HOST:10001, or HOST:6379 on a node of it",
            )
        return super().submit(jobs)

    def python(self, job: Job) -> tuple[str, ...]:
        return () if self.ray.runtime_env else job.python  # with runtime_env, the Python that Ray has created


def is_for_one_run(own: RaySettings, site: RaySite) -> KubeRay | None:
    """Return the KubeRay cluster for this run, or None. The scenario's own cluster or address overrides the site's."""
    cluster = own.cluster or (None if own.address else site.cluster)
    return cluster.kuberay if cluster else None


def address(configured: str | None) -> str:
    """Return the address of the cluster. Inside a job that carries a whole run, Ray itself provides it."""
    given = os.environ.get("RAY_ADDRESS", "")
    if configured and not (configured.startswith("http") and given):
        return configured
    return given or OWN


class RayJobs:
    """The Jobs API of one cluster, at the address of its dashboard: a whole run is one job, which needs no client.

    It is plain HTTP, because it needs only four requests and the submitting machine need not have Ray.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def check(self, ask: SlotRequest) -> None:
        """Raise BenchError if the API does not answer or denies access. The run itself checks the nodes."""
        self._ask("/api/version")

    def render(self, name: str, command: Sequence[str]) -> str:
        return f"# POST {self.address}/api/jobs/\n{dump_yaml(self._job(name, command))}"

    def carry(self, name: str, command: Sequence[str]) -> str:
        """Submit the command and return the id of its job. Ray accepts a name only once."""
        return str(self._ask("/api/jobs/", self._job(name, command))["submission_id"])

    def _job(self, name: str, command: Sequence[str]) -> dict[str, Any]:
        return {
            "entrypoint": shlex.join(command),
            "submission_id": name,
            "runtime_env": {"env_vars": {key: os.environ[key] for key in os.environ if key.startswith(_SENT)}},
        }

    def goes_on(self, job: str) -> bool:
        return str(self._ask(f"/api/jobs/{job}")["status"]) in ("PENDING", "RUNNING")

    def stop(self, job: str) -> None:
        """Stop a job: Ray sends SIGTERM, which ends a run like Ctrl-C, and kills what remains."""
        self._ask(f"/api/jobs/{job}/stop", {})
        deadline = time.monotonic() + _STOP_S
        while self.goes_on(job):
            if time.monotonic() > deadline:
                raise BenchError(f"Ray has not ended job {job} within {_STOP_S:g} s", "see the cluster's dashboard")
            time.sleep(0.3)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        url, headers = f"{self.address}{path}", {"Authorization": f"Bearer {key}"} if (key := token()) else {}
        try:
            answer = _CLIENT.get(url, headers) if body is None else _CLIENT.post_json(url, body, headers)
            if answer.ok:
                document: dict[str, Any] = answer.json()
                return document
        except NoAnswer as error:
            raise BenchError(
                f"no Ray cluster answers at {self.address}: {error.reason}", "is its dashboard up? http://HOST:8265"
            ) from error
        lines = answer.text(2000).strip().splitlines()
        hint = "its token: RAY_AUTH_TOKEN_PATH" if answer.status in (401, 403) else "see the cluster's dashboard"
        last = lines[-1] if lines else answer.reason
        raise BenchError(f"Ray at {self.address} refuses ({answer.status}): {last[:300]}", hint, Exit.BAD_INPUT)


def token() -> str:
    """Return the token from the places that Ray itself checks; empty if there is none."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given
    place = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(place) if place else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text().strip()
    except OSError:
        return ""
