"""Run a whole run as a RayJob: KubeRay creates a cluster for it, runs it there, and removes the cluster afterward."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.executors.cluster_capacity import refuse_unless_fits
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, path_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kuberay import KubeRay, RayWorkers
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import (
    QUEUE_LABEL,
    RUN_LABEL,
    SCENARIO_LABEL,
    chosen,
    label,
    pinned_image,
    pod_template,
    quantities,
)
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.secrets import holds_secret

_API = "ray.io/v1"
_OVER = ("Complete", "Failed", "ValidationFailed")  # status.jobDeploymentStatus
_STOP_S = 120.0
_AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}  # KubeRay's own limit


class KubeRayJobs:
    """RayJobs of one namespace. Each runs a run's own command, which finds its cluster through $RAY_ADDRESS."""

    def __init__(self, assignment: Assignment, cluster: KubeRay) -> None:
        self.assignment, self.cluster = assignment, cluster
        self.settings = chosen(
            assignment.site.kubernetes, assignment.scenario.kubernetes if assignment.scenario else None
        )
        self._client: KubeClient | None = None

    def check(self, ask: SlotRequest) -> None:
        """Raise BenchError if the run could not continue there because of settings, sizes, the volume, or KubeRay."""
        self._refuse_settings()
        refuse_unless_fits("Ray", ask, to_come(self.cluster))
        client, namespace = self._opened(), self._namespace
        try:
            client.get(path_of(_API, namespace, "rayjobs"), limit="1")
        except KubernetesRefused as error:
            if error.status != 404:
                raise
            raise BenchError(
                f"the cluster of the context {client.access.context!r} has no RayJobs: KubeRay is not installed there",
                "install its operator, 1.1 or newer, or give the address of a Ray cluster: ray: {address: ...}",
            ) from error

    def render(self, name: str, command: Sequence[str]) -> str:
        self._refuse_settings()
        return as_yaml([self.manifest(name, command)])

    def carry(self, name: str, command: Sequence[str]) -> str:
        """Create the RayJob and return its name. An existing one is the same: its creator died before recording it."""
        self._refuse_settings()
        try:
            self._opened().create(path_of(_API, self._namespace, "rayjobs"), self.manifest(name, command))
        except KubernetesRefused as error:
            if error.reason != "AlreadyExists":
                raise
        return name

    def goes_on(self, job: str) -> bool:
        try:
            found = self._opened().get(path_of(_API, self._namespace, "rayjobs", job))
        except KubernetesRefused as error:
            if error.status == 404:
                return False
            raise
        return (found.get("status") or {}).get("jobDeploymentStatus") not in _OVER

    def stop(self, job: str) -> None:
        """Delete the RayJob and wait until its operator has stopped the job and removed the cluster."""
        path = path_of(_API, self._namespace, "rayjobs", job)
        self._opened().delete(path)
        deadline = time.monotonic() + _STOP_S
        while True:
            try:
                self._opened().get(path)
            except KubernetesRefused as error:
                if error.status == 404:
                    return
                raise
            if time.monotonic() > deadline:
                raise BenchError(
                    f"KubeRay has not ended RayJob {job} within {_STOP_S:g} s",
                    f"is its operator up? kubectl -n {self._namespace} describe rayjob {job}",
                )
            time.sleep(0.5)

    # -- the manifest --------------------------------------------------------------------------------------------

    def manifest(self, name: str, command: Sequence[str]) -> dict[str, Any]:
        settings, cluster = self.settings, self.cluster
        spec: dict[str, Any] = {
            "entrypoint": shlex.join([settings.python, *command[1:]]),
            "jobId": name,
            "submissionMode": "HTTPMode",  # by the operator: no additional pod that counts toward a quota
            "runtimeEnvYAML": dump_yaml({"env_vars": self._variables()}),
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(settings.time),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": int(settings.keep),
            "suspend": bool(settings.queue),  # Kueue starts it
            "rayClusterSpec": ray_cluster(cluster, settings, self._labels()),
        }
        labels = self._labels() | ({QUEUE_LABEL: settings.queue} if settings.queue else {})
        metadata: dict[str, Any] = {"name": name.lower(), "labels": labels}
        if settings.namespace:
            metadata["namespace"] = settings.namespace
        return {"apiVersion": _API, "kind": "RayJob", "metadata": metadata, "spec": spec}

    def _labels(self) -> dict[str, str]:
        scenario = label(self.assignment.scenario.scenario) if self.assignment.scenario else ""
        return {RUN_LABEL: self.assignment.run.run_id} | ({SCENARIO_LABEL: scenario} if scenario else {})

    def _variables(self) -> dict[str, str]:
        """Return our variables without secrets: the whole namespace sees them. The cache is on the volume."""
        sent = {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("BENCH_") and not holds_secret(name, os.environ)
        }
        shared = self.settings.volume.path if self.settings.volume else "/"
        if not Path(sent.get("BENCH_CACHE_DIR", "")).is_relative_to(shared):
            sent["BENCH_CACHE_DIR"] = str(Path(shared) / "cache")
        return sent

    def _refuse_settings(self) -> None:
        settings, home = self.settings, self.assignment.run.path.absolute()
        pinned_image(settings)
        if settings.volume is None:
            raise BenchError(
                "a run on KubeRay needs a volume that its pods and this machine share",
                "kubernetes: {volume: {claim: CLAIM, path: /where/it/is/here}}",
            )
        if not home.is_relative_to(settings.volume.path):
            raise BenchError(
                f"the workspace is not on the volume {settings.volume.claim}, which is at {settings.volume.path}",
                f"use one there: bench -C {settings.volume.path}/DIR ...",
            )
        if settings.code != "image":
            raise BenchError("on KubeRay benchhouse is in the image, beside Ray", "kubernetes: {code: image}")
        if settings.queue and self.cluster.scales:
            raise BenchError(
                f"the queue {settings.queue} admits a cluster as it is, and these workers may become more",
                "give min: the value of max:, or no queue",
            )

    @property
    def _namespace(self) -> str:
        return self.settings.namespace or self._opened().access.namespace

    def _opened(self) -> KubeClient:
        self._client = self._client or KubeClient(find_access(self.settings.context))
        return self._client


def to_come(cluster: KubeRay) -> list[ClusterNode]:
    """Return the workers that may exist at most."""
    return [
        ClusterNode(name=f"a pod of {group.name}", cpus=group.cpus, gpus=group.gpus, memory=group.memory)
        for group in cluster.workers
        for _ in range(group.max)
    ]


def ray_cluster(cluster: KubeRay, settings: KubernetesSite, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return `rayClusterSpec`. The head offers no cores, so that the orchestrator is alone there."""
    head = {"name": "ray-head", "resources": quantities(cluster.head.cpus, cluster.head.memory, 0, settings)}
    spec: dict[str, Any] = {
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": pod_template(settings, head, labels, api=cluster.scales),
        },
        "workerGroupSpecs": [_workers(group, settings, labels) for group in cluster.workers],
    }
    if cluster.version:
        spec["rayVersion"] = cluster.version
    if cluster.scales:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {
            "idleTimeoutSeconds": int(cluster.idle),
            "resources": {"requests": dict(_AUTOSCALER), "limits": dict(_AUTOSCALER)},
        }
    return spec


def _workers(group: RayWorkers, settings: KubernetesSite, labels: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "ray-worker", "resources": quantities(group.cpus, group.memory, group.gpus, settings)}
    return {
        "groupName": group.name,
        "replicas": group.least,
        "minReplicas": group.least,
        "maxReplicas": group.max,
        "rayStartParams": {},
        "template": pod_template(settings, container, labels),
    }
