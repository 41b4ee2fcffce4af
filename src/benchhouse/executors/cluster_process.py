"""The orchestrator's side of an engine: the process that has loaded the cluster's library, and the pipes to it."""

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

_CLOSE_S = 60.0  # our own cluster ends in seconds, or much later on a busy machine
_LOST_CLOSE_S = 10.0  # libraries wait long for a cluster that is gone, but nothing is left to end


class OpenEngine(Protocol):
    """One opened cluster, as an executor uses it."""

    nodes: list[ClusterNode]
    answered: bool  # whether `nodes` answers the last request
    lost: str  # why the whole cluster is gone; empty while it is there

    def start(self, slot: WorkerSlot) -> None:
        """Request a slot and return without waiting."""

    def stop(self, slots: Sequence[str]) -> None:
        """End these slots; `gone` lists them afterward."""

    def look(self, limit_s: float) -> list[ClusterNode]:
        """Return the current nodes, waiting up to `limit_s`."""

    def ask_nodes(self) -> None:
        """Request the nodes without waiting; `nodes` is current as soon as `answered` is true."""

    def gone(self) -> Mapping[str, str]:
        """Return the slots that ended since the last call, with reasons. Raise BenchError if no slot can ever begin."""

    def is_lost(self) -> bool: ...

    def close(self) -> None:
        """End everything that the run has left there, and the cluster if the run started it."""

    def give_back(self) -> None:
        """Return a cluster that was opened only to read its nodes."""


class EngineProcess(JsonProcess):
    """The process of one opened cluster; `_parked` holds those that executors of this process have just given back."""

    _parked: dict[str, "EngineProcess"] = {}  # noqa: RUF012 - per process: a run is checked, then started

    def __init__(self, title: str, module: str, settings: Mapping[str, Any]) -> None:
        super().__init__([sys.executable, "-m", module], new_session=True)
        self.title = title
        self.key = _key(module, settings)
        self.nodes: list[ClusterNode] = []
        self.answered = False  # whether `nodes` answers the last request
        self.lost = ""
        self._lost_at = 0.0
        self._gone: dict[str, str] = {}

    @classmethod
    def parked(cls, module: str, settings: Mapping[str, Any]) -> "EngineProcess | None":
        parked = cls._parked.pop(_key(module, settings), None)
        return parked if parked is not None and not parked.is_lost() else None

    @classmethod
    def open(cls, title: str, module: str, settings: Mapping[str, Any], open_s: float) -> "EngineProcess":
        """Start an engine and open its cluster. Raise BenchError if the cluster cannot be opened."""
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
        """Keep it for the next executor with the same settings. It ends with this process at the latest."""
        if self.is_lost() or self.key in self._parked:
            self.close()
        else:
            self._parked[self.key] = self

    def start(self, slot: WorkerSlot) -> None:
        self.send({"start": slot.model_dump(mode="json")})

    def stop(self, slots: Sequence[str]) -> None:
        self.send({"stop": list(slots)})

    def look(self, limit_s: float) -> list[ClusterNode]:
        """Return the current nodes, waiting up to `limit_s`."""
        self.ask_nodes()
        self._await_nodes(limit_s)
        return self.nodes

    def ask_nodes(self) -> None:
        """Request the nodes without waiting; `nodes` is current as soon as `answered` is true."""
        self.answered = False
        self.send({"nodes": True})

    def gone(self) -> Mapping[str, str]:
        """Return the slots that ended since the last call, with reasons; `lost` has the reason of a lost cluster."""
        self.is_lost()
        gone, self._gone = self._gone, {}
        return gone

    def is_lost(self) -> bool:
        while not self.lost and self._take_in(0.0):
            pass
        return bool(self.lost)

    def close(self) -> None:
        """End the engine, and the cluster if the run started it. A lost engine has been closing since its report."""
        self.end(max(0.0, self._lost_at + _LOST_CLOSE_S - time.monotonic()) if self.lost else _CLOSE_S)

    def _await_nodes(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self.answered and not self.lost:
            if not self._take_in(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                raise BenchError(f"{self.title} has not answered within {limit_s:g} s", "is its cluster up?")
        if self.lost:
            raise BenchError(f"{self.title} has ended: {self.lost}", "is its cluster up?")

    def _take_in(self, wait_s: float) -> bool:
        """Read what the engine has sent. Return False if nothing came."""
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
