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
    level: Literal["run", "evidence", "check", "cluster"] = "run"
    """run: no run without it; evidence: a run goes on without it and knows less; check: only `bench site check` reads
    it; cluster: lies outside of any namespace, and can be done without."""

    @property
    def api(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


RIGHTS = (
    Right("batch", "jobs", ("create", "get", "delete"), "start and end the pods of a run"),
    Right("", "pods", ("list", "watch", "delete"), "follow and end the pods of a run"),
    Right("", "configmaps", ("create", "delete"), "hold a run's objects together, so that none is left"),
    Right("", "pods/log", ("get",), "keep what a pod printed as evidence", "evidence"),
    Right("", "events", ("list",), "tell why a pod waits or was ended", "evidence"),
    Right("", "persistentvolumeclaims", ("get",), "find the volume", "check"),
    Right("", "namespaces", ("get",), "see whether the namespace is there", "check"),
    Right("", "resourcequotas", ("list",), "see what is left of quotas", "check"),
    Right("", "limitranges", ("list",), "see the limits of a pod", "check"),
    Right("kueue.x-k8s.io", "localqueues", ("get", "list"), "find the queue of Kueue", "check"),
    Right("", "nodes", ("list",), "note the pool, zone and type of a trial's node", "cluster"),
    Right("scheduling.k8s.io", "priorityclasses", ("get",), "find the priority class", "cluster"),
    Right("node.k8s.io", "runtimeclasses", ("get",), "find the runtime class", "cluster"),
)
