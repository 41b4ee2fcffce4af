"""Read from Kueue's Workload objects when it admitted a Job, and what Jobs that are not admitted wait for."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from benchhouse.executors.kubernetes_waits import Wait
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, path_of
from benchhouse.schema.errors import BenchError

_GROUP = "kueue.x-k8s.io"
JOB_UID = f"{_GROUP}/job-uid"  # label of a Workload: the uid of its Job


class KueueQueue:
    """A LocalQueue of a namespace. Without Kueue, or without permission to read it, all answers are empty."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._api: str | None = None  # the API version to use; empty if there is none
        self._admissions: dict[str, dict[str, str]] = {}  # by Job

    def waits(self, jobs: Iterable[Object]) -> dict[str, Wait]:
        """Return what Jobs without pods wait for, by uid. `jobs` are their metadata."""
        return {uid: queue_wait(workload) for uid, workload in self._workloads(jobs).items()}

    def admission(self, job: Object) -> dict[str, str]:
        """Return when a Job was admitted, for evidence; requested once per Job."""
        if (uid := job["uid"]) not in self._admissions:
            facts = {"queue": self._name}
            if workload := self._workloads([job]).get(uid):
                facts |= admission_of(workload)
            with contextlib.suppress(BenchError):
                path = path_of("batch/v1", self._namespace, "jobs", job["name"])
                facts["job_started"] = (self._client.get(path).get("status") or {}).get("startTime", "")
            self._admissions[uid] = {key: value for key, value in facts.items() if value}
        return self._admissions[uid]

    def _workloads(self, jobs: Iterable[Object]) -> dict[str, Object]:
        uids = ",".join(sorted({job["uid"] for job in jobs if job}))
        try:
            if self._api is None:
                self._api = self._client.get(f"/apis/{_GROUP}")["preferredVersion"]["groupVersion"]
            if not self._api or not uids:
                return {}
            path = path_of(self._api, self._namespace, "workloads")
            found = self._client.get(path, labelSelector=f"{JOB_UID} in ({uids})")["items"]
        except KubernetesRefused:
            self._api, found = "", []
        return {item["metadata"]["labels"][JOB_UID]: item for item in found}


def admission_of(workload: Mapping[str, Any]) -> dict[str, str]:
    """Return when Kueue reserved quota for a Workload and admitted it, by Kueue's clock, and from which queue."""
    conditions = _conditions(workload)
    facts = {
        "queue": str((workload.get("spec") or {}).get("queueName") or ""),
        "cluster_queue": str(((workload.get("status") or {}).get("admission") or {}).get("clusterQueue") or ""),
    }
    for name, kind in (("quota_reserved", "QuotaReserved"), ("admitted", "Admitted")):
        condition = conditions.get(kind) or {}
        facts[name] = str(condition.get("lastTransitionTime") or "") if condition.get("status") == "True" else ""
    return {key: value for key, value in facts.items() if value}


def queue_wait(workload: Mapping[str, Any]) -> Wait:
    """Return what a Workload that is not admitted waits for."""
    queue = (workload.get("spec") or {}).get("queueName") or "of Kueue"
    conditions = _conditions(workload)
    quota = conditions.get("QuotaReserved") or {}
    if quota.get("status") == "True":
        checks = (workload.get("status") or {}).get("admissionChecks") or ()
        missing = ", ".join(check["name"] for check in checks if check.get("state") != "Ready")
        return Wait("AdmissionCheck", f"has quota in the queue {queue}, and waits for {missing or 'its admission'}")
    words = quota.get("message") or "Kueue has not looked at it yet"
    return Wait("QuotaReserved", f"waits for quota in the queue {queue}: {words}")


def _conditions(workload: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {item["type"]: item for item in (workload.get("status") or {}).get("conditions") or ()}
