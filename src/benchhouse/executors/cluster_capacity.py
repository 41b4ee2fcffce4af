"""Check whether a cluster has room for a trial: before the run, and during it, when nodes may have left."""

import os
import time
from collections.abc import Callable, Sequence

from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.executors.local import machine
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quantities import show_bytes, show_seconds

PATIENCE_S = 120.0
_ASK_S = 5.0


class CapacityWatch:
    """Measures how long a waiting run has had no node that could hold a slot, and reports it.

    A run may wait for a full cluster without limit, because other users' work ends; an empty cluster may stay empty.
    """

    def __init__(self, title: str, patience_s: float, say: Callable[[str], None]) -> None:
        self.title, self.patience_s, self._say = title, patience_s, say
        self._ask_s = min(_ASK_S, patience_s / 4)
        self._since: float | None = None
        self._asked_at = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time to request the nodes again."""
        if time.monotonic() - self._asked_at < self._ask_s:
            return False
        self._asked_at = time.monotonic()
        return True

    def look(self, ask: SlotRequest, nodes: Sequence[ClusterNode]) -> str:
        """Return why to stop waiting, or an empty string while a slot is still possible."""
        if len(_fitting(ask, nodes)) >= ask.nodes:
            if self._since is not None:
                self._say(f"a node of the {self.title} cluster is there again")
            self._since = None
            return ""
        now = time.monotonic()
        lack = "no node is left" if not nodes else "no node that is left can hold a trial"
        if ask.nodes > 1:
            lack = f"{len(_fitting(ask, nodes))} of the {ask.nodes} nodes that a trial needs are left"
        if self._since is None:
            self._since = now
            self._say(
                f"{lack} in the {self.title} cluster: waiting {show_seconds(self.patience_s)} at most for one "
                f"({self.title.lower()}: {{patience: ...}}); Ctrl-C keeps what is done"
            )
        waited_s = now - self._since
        return f"{lack}, and none came within {show_seconds(self.patience_s)}" if waited_s > self.patience_s else ""


def refuse_unless_fits(title: str, ask: SlotRequest, nodes: Sequence[ClusterNode]) -> None:
    """Raise BenchError, which lists the nodes' resources, if none of the nodes could ever hold a slot."""
    fitting = _fitting(ask, nodes)
    if fitting and len(fitting) < ask.nodes:
        raise BenchError(
            f"a trial asks for {ask.nodes} nodes, and {len(fitting)} of the {title} cluster can give what it needs on "
            f"each: {', '.join(node.name for node in fitting)}",
            "ask for fewer or for less under resources:, or run on another executor",
        )
    least = min((misses(ask, node) for node in nodes), key=len, default=["a node"])
    if not least:
        return
    have = "; ".join(dict.fromkeys(_has(node) for node in nodes)) or "there is none"
    raise BenchError(
        f"no node of the {title} cluster can give what a trial asks for: {', '.join(least)} (nodes: {have})",
        "ask for less under resources:, or run on another executor",
    )


def no_worker(title: str) -> BenchError:
    return BenchError(
        f"the {title} cluster has no live worker, so there is no place for a trial",
        "start a worker of it, or run on another executor: --executor local",
    )


def this_machine() -> ClusterNode:
    """Return the resources of this machine, which are those of a run's own cluster."""
    have = machine()
    return ClusterNode(name=os.uname().nodename, cpus=have.cpus, gpus=have.gpus, memory=have.memory)


def misses(ask: SlotRequest, node: ClusterNode) -> list[str]:
    """Return the requested resources that the node lacks; empty if the slot fits."""
    missing = []
    if ask.cpus > node.cpus:
        missing.append(f"{ask.cpus} cores")
    if ask.gpus > node.gpus:
        missing.append(f"{ask.gpus} GPU{'s' * (ask.gpus > 1)}")
    if ask.memory and node.memory is not None and ask.memory > node.memory:
        missing.append(f"{show_bytes(ask.memory)} of memory")
    missing += [f"{amount:g} {name}" for name, amount in ask.custom.items() if amount > node.custom.get(name, 0)]
    return missing


def _fitting(ask: SlotRequest, nodes: Sequence[ClusterNode]) -> list[ClusterNode]:
    """Return the nodes that can hold a slot, but only one per host if a trial needs several nodes."""
    fitting = [node for node in nodes if not misses(ask, node)]
    return list({node.host or at: node for at, node in enumerate(fitting)}.values()) if ask.nodes > 1 else fitting


def _has(node: ClusterNode) -> str:
    parts = [f"{node.cpus:g} cores", f"{node.gpus:g} GPUs"]
    if node.memory is not None:
        parts.append(show_bytes(node.memory))
    parts += [f"{amount:g} {name}" for name, amount in node.custom.items()]
    return f"{node.name} has {', '.join(parts)}"
