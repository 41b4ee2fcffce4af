"""The orchestrator's end of an engine: the process that has loaded the cluster's library, and the pipes to it."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.executors.cluster_engine import Node, Slot
from benchhouse.executors.cluster_places import no_worker
from benchhouse.schema.errors import BenchError, Exit

_CLOSE_S = 60.0  # a cluster of our own ends in seconds; on a machine that is busy, in many
_LOST_CLOSE_S = 10.0  # libraries wait long for a cluster that is gone; there is nothing to end


class EngineProcess:
    """One opened cluster; `parked` is one that an executor of this process has just given back."""

    _parked: dict[str, "EngineProcess"] = {}  # noqa: RUF012 - of the process: a run is checked, then begun

    def __init__(self, title: str, module: str, settings: Mapping[str, Any]) -> None:
        self.title = title
        self.key = _key(module, settings)
        self.nodes: list[Node] = []
        self.answered = False  # whether they are an answer to what was asked last
        self.lost = ""
        self._gone: dict[str, str] = {}
        self._buffer = b""
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop it once it is full
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
        )

    @classmethod
    def parked(cls, module: str, settings: Mapping[str, Any]) -> "EngineProcess | None":
        found = cls._parked.pop(_key(module, settings), None)
        return found if found is not None and not found.is_lost() else None

    @classmethod
    def open(cls, title: str, module: str, settings: Mapping[str, Any], open_s: float) -> "EngineProcess":
        """An engine whose cluster is open; raises BenchError where it can't be opened."""
        made = cls(title, module, settings)
        try:
            made._send({"open": settings})
            made._await_nodes(open_s)
            if not made.nodes:
                raise no_worker(title)
        except BaseException:
            made.end()
            raise
        return made

    def give_back(self) -> None:
        """Keep it for the next executor of the same settings; it ends with this process at the latest."""
        if self.is_lost() or self.key in self._parked:
            self.end()
        else:
            self._parked[self.key] = self

    def start(self, slot: Slot) -> None:
        self._send({"start": slot.model_dump(mode="json")})

    def stop(self, slots: Sequence[str]) -> None:
        self._send({"stop": list(slots)})

    def look(self, limit_s: float) -> list[Node]:
        """The nodes as they are now."""
        self.ask_nodes()
        self._await_nodes(limit_s)
        return self.nodes

    def ask_nodes(self) -> None:
        """Ask, and go on; `nodes` are those of now as soon as it has answered."""
        self.answered = False
        self._send({"nodes": True})

    def gone(self) -> Mapping[str, str]:
        """Slots that have ended since the last call, with why; all, where the cluster is lost (`lost` says why)."""
        self.is_lost()
        found, self._gone = self._gone, {}
        return found

    def is_lost(self) -> bool:
        while not self.lost and self._hear(0.0):
            pass
        return bool(self.lost)

    def end(self) -> None:
        """End it, and the cluster where it is its own."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_LOST_CLOSE_S if self.lost else _CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._process.stdout.closed:
            self._process.stdout.close()
        self._words.close()

    def _await_nodes(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self.answered and not self.lost:
            if not self._hear(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                raise BenchError(f"{self.title} has not answered within {limit_s:g} s", "is its cluster up?")
        if self.lost:
            raise BenchError(f"{self.title} has ended: {self.lost}", "is its cluster up?")

    def _hear(self, wait_s: float) -> bool:
        """Take in what it has said; False when that is nothing."""
        assert self._process.stdout
        handle = self._process.stdout.fileno()
        if not select.select([handle], [], [], wait_s)[0]:
            return False
        chunk = os.read(handle, 1 << 16)
        if not chunk:
            self.lost = self.lost or self._last_words() or "its process ended without a word"
            return True
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            self._take_in(json.loads(line))
        return True

    def _take_in(self, message: dict[str, Any]) -> None:
        if "nodes" in message:
            self.nodes = [Node.model_validate(node) for node in message["nodes"]]
            self.answered = True
        elif "gone" in message:
            self._gone[message["gone"]] = message["reason"]
        elif "lost" in message:
            self.lost = message["lost"]
        elif "refused" in message:
            raise BenchError(message["refused"], message["hint"], Exit.BAD_INPUT)

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # what it says last will tell
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()


def _key(module: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([module, settings], sort_keys=True)
