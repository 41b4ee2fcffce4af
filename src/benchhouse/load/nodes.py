"""Load processes on other nodes: one helper per node forks them there; lines use a link, load records use files.

Each node's monotonic clock is compared with ours by round trips just before the start, so that one start edge is the
same moment everywhere, whatever the nodes' wall clocks show, and every stamp can be converted to our time.
"""

import json
import os
import pickle
import selectors
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, Protocol

from benchhouse.load.load_record import LoadRecord, Lost
from benchhouse.load.shards import NotReached, joined
from benchhouse.processes.python_command import python_command
from benchhouse.schema.errors import BenchError

EDGE_NS = 250_000_000  # from the moment that all are ready to the start
_CLOCK_QUERIES = 21  # the fastest answer counts
_END_S = 10.0


class Link(Protocol):
    """A line-based connection to `benchhouse.load.node` on some node."""

    @property
    def handle(self) -> int:
        """A descriptor to read from."""

    def send(self, data: bytes) -> None: ...

    def how(self) -> str:
        """Return how it ended, once it has ended."""

    def close(self) -> None:
        """End it. Returns when it has ended."""


class NodeCommand:
    """A link to a process that a command starts there, such as a step of a batch job."""

    def __init__(self, prefix: Sequence[str], arguments: Sequence[str]) -> None:
        """`prefix` is what a command must start with to run there."""
        command = [*prefix, *python_command(), "-m", "benchhouse.load.node", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._down, self._up = self._process.stdin, self._process.stdout

    @property
    def handle(self) -> int:
        return self._up.fileno()

    def send(self, data: bytes) -> None:
        self._down.write(data)

    def how(self) -> str:
        return f"code {self._process.wait()}"

    def close(self) -> None:
        with suppress(OSError):
            self._down.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()
        self._up.close()


@dataclass
class LoadNodes:
    """The other nodes for load processes, and facts about each after the load."""

    nodes: Sequence[str]
    link_to: Callable[[str, Sequence[str]], Link]  # starts `benchhouse.load.node` there, with these arguments
    folder: Path  # visible to all nodes; created and removed here
    facts: dict[str, Any] = field(default_factory=dict)


def on_nodes(load: Any, processes: int, spread: LoadNodes) -> LoadRecord:
    """Distribute the load processes over the nodes in turn, give them one start time, and merge their records exactly.
    If a node is lost, its processes are lost. `load` must support pickling."""
    if len(spread.nodes) > processes:
        raise BenchError(
            f"{len(spread.nodes)} nodes need at least as many load processes, and there are {processes}",
            f"processes: {len(spread.nodes)}",
        )
    spread.folder.mkdir(parents=True, mode=0o700)
    helpers: list[_Helper] = []
    try:
        try:
            content = pickle.dumps(load)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise BenchError(f"this load can't be sent to another node: {error}", "leave load nodes out") from error
        given = spread.folder / "load.pickle"
        given.touch(mode=0o600)
        given.write_bytes(content)
        for number, node in enumerate(spread.nodes):
            shards = list(range(number, processes, len(spread.nodes)))
            helpers.append(_Helper(node, shards, spread))
        if problems := [problem for helper in helpers if (problem := helper.wait_ready())]:
            raise NotReached(problems[0])
        for helper in helpers:
            helper.compare_clocks()
        edge_ns = monotonic_ns() + EDGE_NS
        for helper in helpers:
            helper.start(edge_ns)
        _listen(helpers)
        results = {number: result for helper in helpers for number, result in helper.results().items()}
        spread.facts.update({helper.node: helper.facts() for helper in helpers})
        return joined([results[number] for number in sorted(results)])
    finally:
        for helper in helpers:
            helper.end()
        shutil.rmtree(spread.folder, ignore_errors=True)


class _Helper:
    """The load processes of one node, controlled from here."""

    def __init__(self, node: str, shards: list[int], spread: LoadNodes) -> None:
        self.node, self.shards = node, shards
        self._file = spread.folder / f"{node}.pickle"
        self._link = spread.link_to(node, [str(spread.folder), node, ",".join(map(str, shards))])
        self._rest = b""
        self.over = False
        self._beats: dict[str, dict[str, Any]] = {}
        self._offset_ns = self._uncertain_ns = self._skew_ns = 0

    @property
    def handle(self) -> int:
        return self._link.handle

    def wait_ready(self) -> str:
        line = self._line() or f"the load processes on {self.node} ended before the start"
        return "" if line == "ready" else line.removeprefix("problem ")

    def compare_clocks(self) -> None:
        best = 1 << 62
        for _ in range(_CLOCK_QUERIES):
            began_ns, wall_ns = monotonic_ns(), time_ns()
            self._send("clock")
            answer = self._line().split()
            took_ns = monotonic_ns() - began_ns
            if len(answer) == 2 and took_ns < best:
                best = took_ns
                self._offset_ns = int(answer[0]) - began_ns - took_ns // 2
                self._skew_ns = int(answer[1]) - wall_ns - took_ns // 2
        self._uncertain_ns = best // 2

    def start(self, edge_ns: int) -> None:
        self._send(f"edge {edge_ns + self._offset_ns}")

    def hear(self) -> None:
        """Read the lines that it has sent; one of them may be the last."""
        block = self._block()
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            if line.startswith(b"beat "):
                with suppress(ValueError):
                    self._beats = json.loads(line.removeprefix(b"beat "))
            elif line == b"done":
                self.over = True
        self.over |= not block

    def results(self) -> dict[int, LoadRecord | Lost]:
        """Return the records by shard, in our own time. What the helper wrote counts; for a lost node, its last
        heartbeat."""
        try:
            results: dict[int, LoadRecord | Lost] = pickle.loads(self._file.read_bytes())  # noqa: S301 - from our own helper
        except (OSError, EOFError, pickle.UnpicklingError):
            how = f"on {self.node} ended with its node ({self._link.how()})"
            beats = {shard: self._beats.get(str(shard), {}) for shard in self.shards}
            return {shard: Lost(**beat | {"shard": shard, "how": how}) for shard, beat in beats.items()}
        for book in results.values():
            if isinstance(book, LoadRecord):
                book.shift(-self._offset_ns)
        return results

    def facts(self) -> dict[str, Any]:
        return {
            "processes": self.shards,
            "clock_uncertainty_us": self._uncertain_ns / 1e3,
            "wall_clock_skew_us": self._skew_ns / 1e3,
        }

    def end(self) -> None:
        self._link.close()

    def _send(self, line: str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(f"{line}\n".encode())

    def _block(self) -> bytes:
        """Return some bytes; empty at the end."""
        with suppress(ConnectionResetError):
            return os.read(self.handle, 1 << 16)
        return b""

    def _line(self) -> str:
        """Return the next line; empty at the end."""
        while b"\n" not in self._rest:
            block = self._block()
            if not block:
                return ""
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").strip()


def _listen(helpers: Sequence[_Helper]) -> None:
    """Read from all helpers until they are done or have ended."""
    with selectors.DefaultSelector() as selector:
        for helper in helpers:
            selector.register(helper.handle, selectors.EVENT_READ, helper)
        while selector.get_map():
            for key, _ in selector.select():
                key.data.hear()
                if key.data.over:
                    selector.unregister(key.fileobj)
