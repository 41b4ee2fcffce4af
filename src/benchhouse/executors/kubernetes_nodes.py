"""Convert what Kubernetes reports about nodes and the place of a pod to our own values."""

from collections.abc import Mapping
from typing import Any

from benchhouse.executors.cluster_engine import ClusterNode
from benchhouse.executors.kubernetes_status import first_container
from benchhouse.schema.pod_template import read_quantity

_LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "beta.kubernetes.io/instance-type": "instance_type",
    "node.kubernetes.io/instance-type": "instance_type",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "karpenter.sh/nodepool": "pool",
    "agentpool": "pool",
    "pool": "pool",
    "kubernetes.io/arch": "arch",
    "nvidia.com/gpu.product": "gpu",
}


def takes_pods(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions") or ()
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and not node["spec"].get("unschedulable")


def as_node(node: Mapping[str, Any], gpu: str) -> ClusterNode:
    """Return the total resources that a node can give to pods, free or not."""
    have = node["status"].get("allocatable") or {}
    return ClusterNode(
        name=node["metadata"]["name"],
        cpus=read_quantity(have.get("cpu", "0")),
        gpus=read_quantity(have.get(gpu, "0")),
        memory=int(read_quantity(have.get("memory", "0"))),
    )


def place_of(pod: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str] | None:
    """Return what evidence records about a pod's place beyond what the pod itself knows; None until its container runs.

    Times are from the cluster's clocks, so compare them only with each other.
    """
    container = first_container(pod)
    if "running" not in (container.get("state") or {}):
        return None
    resources = pod["spec"]["containers"][0].get("resources") or {}
    conditions = {item["type"]: item for item in pod["status"].get("conditions") or ()}
    facts = {
        "image": container.get("image", ""),
        "image_id": container.get("imageID", ""),
        "qos": pod["status"].get("qosClass", ""),
        "requests": _amounts(resources.get("requests") or {}),
        "limits": _amounts(resources.get("limits") or {}),
        "pod_created": pod["metadata"].get("creationTimestamp", ""),
        "pod_scheduled": (conditions.get("PodScheduled") or {}).get("lastTransitionTime", ""),
        "pod_started": container["state"]["running"].get("startedAt", ""),
    }
    facts |= {name: labels[key] for key, name in _LABELS.items() if labels.get(key)}
    return {key: value for key, value in facts.items() if value}


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in amounts.items())
