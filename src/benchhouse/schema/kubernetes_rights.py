"""What an account must be allowed to do on Kubernetes: one list for the Role, `bench site check` and the tests."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Right:
    """Verbs on one kind of object, and what they are for."""

    group: str
    """API group; empty: the core."""
    resource: str
    """Plural, with its part: `pods/log`."""
    verbs: tuple[str, ...]
    purpose: str
    level: Literal["run", "check", "cluster"] = "run"
    """run: no run without it; check: only `bench site check` reads it; cluster: lies outside of any namespace."""

    @property
    def api(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


RIGHTS = (
    Right("batch", "jobs", ("create", "get", "list", "watch", "delete", "patch"), "start and end the pods of a run"),
    Right("", "pods", ("get", "list", "watch", "delete"), "follow the pods of a run"),
    Right("", "pods/log", ("get",), "keep what a pod printed as evidence"),
    Right("", "configmaps", ("create", "delete"), "hold a run's objects together, so that none is left"),
    Right("", "events", ("list",), "tell why a pod waits or was ended"),
    Right("", "persistentvolumeclaims", ("get",), "find the volume"),
    Right("", "namespaces", ("get",), "see whether the namespace is there", "check"),
    Right("", "resourcequotas", ("list",), "see what is left of quotas", "check"),
    Right("", "limitranges", ("list",), "see the limits of a pod", "check"),
    Right("kueue.x-k8s.io", "localqueues", ("get", "list"), "find the queue of Kueue", "check"),
    Right("", "nodes", ("get", "list"), "note the pool, zone and type of a trial's node", "cluster"),
    Right("scheduling.k8s.io", "priorityclasses", ("get",), "find the priority class", "cluster"),
    Right("node.k8s.io", "runtimeclasses", ("get",), "find the runtime class", "cluster"),
)
