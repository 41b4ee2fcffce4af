"""The rights that an account needs on Kubernetes, shared by the Role, `bench site check`, and the tests."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Right:
    """Verbs on one kind of object, and their purpose."""

    group: str
    """API group; empty for the core group."""
    resource: str
    """Plural name, with its part if any: `pods/log`."""
    verbs: tuple[str, ...]
    purpose: str
    level: Literal["run", "evidence", "queue", "services", "endpoints", "ray", "schedules", "check", "cluster"] = "run"
    """When the right is needed. run: for every run. evidence: runs work without it, but record less. queue: like
    evidence, if the profile names a queue. services: only for servers that are attached to a run and come from their
    own image. endpoints: only for servers that already exist. ray: only for whole runs on KubeRay. schedules: only to
    apply the output of `bench schedule render`. check: only for `bench site check`. cluster: outside of any namespace,
    and optional.
    """

    @property
    def api(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


RIGHTS = (
    Right("batch", "jobs", ("create", "get", "delete"), "start and end the pods of a run"),
    Right("", "pods", ("list", "watch", "delete"), "follow and end the pods of a run"),
    Right("", "configmaps", ("create", "delete"), "hold a run's objects together, so that none is left"),
    Right("", "pods/log", ("get",), "keep what a pod printed as evidence", "evidence"),
    Right("", "events", ("list",), "tell why a pod waits or was ended", "evidence"),
    Right("apps", "statefulsets", ("create",), "run servers from images of their own", "services"),
    Right("", "secrets", ("create",), "give such servers what nobody may read in a manifest", "services"),
    Right("", "services", ("create",), "give such servers names", "services"),
    Right("", "services", ("get",), "find servers that are already there", "endpoints"),
    Right("serving.kserve.io", "inferenceservices", ("get",), "find those of KServe", "endpoints"),
    Right("inference.networking.k8s.io", "inferencepools", ("get",), "find the pools of llm-d", "endpoints"),
    Right("gateway.networking.k8s.io", "gateways", ("get",), "find the address of such a pool", "endpoints"),
    Right("kueue.x-k8s.io", "workloads", ("list",), "tell when Kueue let a run go, and why it waits", "queue"),
    Right("ray.io", "rayjobs", ("create", "get", "list", "delete"), "hand whole runs to KubeRay", "ray"),
    Right("batch", "cronjobs", ("create", "get", "patch", "delete"), "apply and delete schedules", "schedules"),
    Right("", "persistentvolumeclaims", ("get",), "find the volume", "check"),
    Right("", "namespaces", ("get",), "see whether the namespace is there", "check"),
    Right("", "resourcequotas", ("list",), "see what is left of quotas", "check"),
    Right("", "limitranges", ("list",), "see the limits of a pod", "check"),
    Right("kueue.x-k8s.io", "localqueues", ("get", "list"), "find the queue of Kueue", "check"),
    Right("", "nodes", ("list",), "note the pool, zone and type of a trial's node", "cluster"),
    Right("scheduling.k8s.io", "priorityclasses", ("get",), "find the priority class", "cluster"),
    Right("node.k8s.io", "runtimeclasses", ("get",), "find the runtime class", "cluster"),
)
