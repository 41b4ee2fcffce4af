"""Kueue's Workload as a kind of the real API server, with the published fields that are read; nobody admits them.

Fields and condition types are those of apis/kueue/v1beta1/workload_types.go of kubernetes-sigs/kueue; v1beta2 has the
same. Kueue itself could not be run: a test writes what its controller would.
"""

import json
from typing import Any

from services.kubernetes_cluster import KubernetesCluster

TEXT = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def definition() -> dict[str, Any]:
    kept = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    condition = _object(type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TIME)
    check = _object(name=TEXT, state=TEXT, message=TEXT, lastTransitionTime=TIME)
    schema = _object(
        spec=_object(queueName=TEXT, podSets=kept),
        status=_object(
            conditions={"type": "array", "items": condition},
            admission=_object(clusterQueue=TEXT, podSetAssignments=kept),
            admissionChecks={"type": "array", "items": check},
        ),
    )
    version = {
        "name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": "workloads", "singular": "workload", "kind": "Workload", "listKind": "WorkloadList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "workloads.kueue.x-k8s.io",
            # Groups below k8s.io are kept for approved ones, as this is.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"},
        },
        "spec": {"group": "kueue.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def plant(cluster: KubernetesCluster, job: dict[str, Any], status: dict[str, Any], queue: str = "team") -> None:
    """The Workload of a Job as Kueue's controller would have it now; `status` is all of its status."""
    metadata = job["metadata"]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{metadata['name'][:40]}-0", "namespace": metadata["namespace"],
            "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
        },
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1}]},
    }  # fmt: skip
    cluster.kubectl("apply", "--filename", "-", document=workload)
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{metadata['namespace']}/workloads/{workload['metadata']['name']}"
    document = {**_read(cluster, path), "status": status}
    cluster.kubectl("replace", "--raw", f"{path}/status", "--filename", "-", document=document)


def _read(cluster: KubernetesCluster, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "--raw", path))
    return found


def condition(kind: str, status: str, time: str, message: str = "", reason: str = "") -> dict[str, str]:
    words = {"message": message or f"{kind} in ClusterQueue all", "reason": reason or kind}
    return {"type": kind, "status": status, "lastTransitionTime": time} | words
