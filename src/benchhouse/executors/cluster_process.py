"""The orchestrator's end of an engine: the process that has loaded the cluster's library, and the pipes to it."""

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from benchhouse.executors.cluster_capacity import no_worker
from benchhouse.executors.cluster_engine import ClusterNode, WorkerSlot
from benchhouse.executors.json_process import JsonProcess
from benchhouse.schema.errors import BenchError, Exit

_CLOSE_S = 60.0  # a cluster of our own ends in seconds; on a machine that is busy, in many
_LOST_CLOSE_S = 10.0  # libraries wait long for a cluster that is gone; there is nothing to end


class OpenEngine(Protocol):
    """One opened cluster, as an executor uses it."""

    nodes: list[ClusterNode]
    answered: bool  # whether they are the answer to the last request
    lost: str  # why the whole cluster is gone; empty: it is there

    def start(self, slot: WorkerSlot) -> None:
        """Ask for it and return."""

    def stop(self, slots: Sequence[str]) -> None:
        """End these; they show in `gone`."""

    def look(self, limit_s: float) -> list[ClusterNode]:
        """The nodes as they are now."""

    def ask_nodes(self) -> None:
        """Ask without waiting: `nodes` are those of now as soon as `answered`."""

    def gone(self) -> Mapping[str, str]:
        """Slots that have ended since the last call, with why; raises BenchError where no slot can ever begin."""

    def is_lost(self) -> bool: ...

    def close(self) -> None:
        """End all of the run that is left there, and the cluster where it is its own."""

    def give_back(self) -> None:
        """It was only looked at."""


class EngineProcess(JsonProcess):
    """One opened cluster; `parked` is one that an executor of this process has just given back."""

    _parked: dict[str, "EngineProcess"] = {}  # noqa: RUF012 - of the process: a run is checked, then begun

    def __init__(self, title: str, module: str, settings: Mapping[str, Any]) -> None:
        super().__init__([sys.executable, "-m", module], new_session=True)
        self.title = title
        self.key = _key(module, settings)
        self.nodes: list[ClusterNode] = []
        self.answered = False  # whether they are the answer to the last request
        self.lost = ""
        self._lost_at = 0.0
        self._gone: dict[str, str] = {}

    @classmethod
    def parked(cls, module: str, settings: Mapping[str, Any]) -> "EngineProcess | None":
        parked = cls._parked.pop(_key(module, settings), None)
        return parked if parked is not None and not parked.is_lost() else None

    @classmethod
    def open(cls, title: str, module: str, settings: Mapping[str, Any], open_s: float) -> "EngineProcess":
        """An engine whose cluster is open; raises BenchError where it can't be opened."""
        engine = cls(title, module, settings)
        try:
            engine.send({"open": settings})
            engine._await_nodes(open_s)
            if not engine.nodes:
                raise no_worker(title)
        except BaseException:
            engine.close()
            raise
        return engine

    def give_back(self) -> None:
        """Keep it for the next executor of the same settings; it ends with this process at the latest."""
        if self.is_lost() or self.key in self._parked:
            self.close()
        else:
            self._parked[self.key] = self

    def start(self, slot: WorkerSlot) -> None:
        self.send({"start": slot.model_dump(mode="json")})

    def stop(self, slots: Sequence[str]) -> None:
        self.send({"stop": list(slots)})

    def look(self, limit_s: float) -> list[ClusterNode]:
        """The nodes as they are now."""
        self.ask_nodes()
        self._await_nodes(limit_s)
        return self.nodes

    def ask_nodes(self) -> None:
        """Ask without waiting: `nodes` are those of now as soon as `answered`."""
        self.answered = False
        self.send({"nodes": True})

    def gone(self) -> Mapping[str, str]:
        """Slots that have ended since the last call, with why; `lost` says why where the whole cluster is."""
        self.is_lost()
        gone, self._gone = self._gone, {}
        return gone

    def is_lost(self) -> bool:
        while not self.lost and self._take_in(0.0):
            pass
        return bool(self.lost)

    def close(self) -> None:
        """End it, and the cluster where it is its own; one that is lost has been closing since it said so."""
        self.end(max(0.0, self._lost_at + _LOST_CLOSE_S - time.monotonic()) if self.lost else _CLOSE_S)

    def _await_nodes(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self.answered and not self.lost:
            if not self._take_in(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                raise BenchError(f"{self.title} has not answered within {limit_s:g} s", "is its cluster up?")
        if self.lost:
            raise BenchError(f"{self.title} has ended: {self.lost}", "is its cluster up?")

    def _take_in(self, wait_s: float) -> bool:
        """Read what it has sent; False when that is nothing."""
        if not select.select([self], [], [], wait_s)[0]:
            return False
        messages, is_gone = self.read()
        for message in messages:
            if "nodes" in message:
                self.nodes = [ClusterNode.model_validate(node) for node in message["nodes"]]
                self.answered = True
            elif "gone" in message:
                self._gone[message["gone"]] = message["reason"]
            elif "lost" in message:
                self._lose(message["lost"])
            elif "refused" in message:
                raise BenchError(message["refused"], message["hint"], Exit.BAD_INPUT)
        if is_gone and not self.lost:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self._lose(self.last_line()[:300] or "its process ended without a message")
        return True

    def _lose(self, why: str) -> None:
        self.lost, self._lost_at = why, time.monotonic()


def _key(module: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([module, settings], sort_keys=True)
