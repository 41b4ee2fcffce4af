"""How many load processes there are, where the scenario leaves that to the engine (`processes: auto`).

The rule: the requests a second that the load can come to, times the CPU that one costs, is the work; a process is given
half a core of it, so that it stays on time. There are never more processes than cores, nor more than half of the cores
where the server is on this machine, nor more than requests in flight.

What a closed loop comes to depends on the server. A client is taken to read 50 events a second, as of a quick stream
of tokens, and where its calls block, to make 1,000 calls a second: client libraries are for stores that answer in a
millisecond. The CPU of a request is measured on the spot (`calibration.py`), but only where the answer can matter.
That of a blocking call is the library's, which nothing but the load itself would show; an estimate stands for it.
"""

import math
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchhouse.load.shape import Shape
from benchhouse.load.source import RequestSource
from benchhouse.processes.quotas import usable_cores

CORE_SHARE = 0.5
EVENTS_PER_S = 50.0
CALLS_PER_S = 1000.0
CALL_S = 125e-6  # of the interpreter, by a call of a client library: 40 us for PostgreSQL, hundreds for some others
SMALL_EVENTS_PER_S = 3200.0  # 64 streams: one process does that on the slowest machine, and nothing is measured


@dataclass(frozen=True)
class Machine:
    """What the load processes may use of a machine."""

    cores: int
    serves: bool  # whether the server is on it too

    @property
    def spare(self) -> int:
        """Cores that are not the server's: it has half of them at least, and one in any case."""
        return max(self.cores // 2, 1) if self.serves else self.cores


@dataclass(frozen=True)
class ProcessCount:
    processes: int
    why: str  # a sentence, for people


def choose(
    shape: Shape,
    source: RequestSource,
    machine: Machine,
    *,
    nodes: int = 1,
    cost_s: Callable[[float], float] | None = None,
) -> ProcessCount:
    """The number of load processes on all `nodes` together, which are taken to be alike, and why.

    `cost_s` measures the CPU of a request by the events of its answer; None where calls block.
    """
    if source.alone:
        return ProcessCount(1, f"1 load process: {source.alone}")
    each, why = _for_one_node(shape, source, machine, nodes, cost_s)
    count = f"{each} load process{'es' if each > 1 else ''}{' a node' if nodes > 1 else ''}"
    return ProcessCount(min(nodes * each, shape.most_in_flight), f"{count}: {why}")


def _for_one_node(
    shape: Shape, source: RequestSource, machine: Machine, nodes: int, cost_s: Callable[[float], float] | None
) -> tuple[int, str]:
    rate = requests_per_s(shape, source.events / EVENTS_PER_S if cost_s else 1 / CALLS_PER_S)
    load = f"{rate:,.0f} requests/s" if shape.open_loop else f"{shape.most_in_flight:,} in flight"
    rate /= nodes
    small = rate * source.events <= SMALL_EVENTS_PER_S if cost_s else rate * CALL_S <= CORE_SHARE
    if small:
        return 1, f"{load} need no more"
    if machine.spare == 1:
        return 1, _limit(machine)
    cost, how = (cost_s(source.events), "measured") if cost_s else (CALL_S, "estimated")
    needed = min(max(math.ceil(rate * cost / CORE_SHARE), 1), max(shape.most_in_flight // nodes, 1))
    why = f"{load}, {cost * 1e6:,.0f} us of CPU a request ({how}), half a core a process"
    if needed > machine.spare:
        why += f"; {needed} would be better, but {_limit(machine)}"
    return min(needed, machine.spare), why


def requests_per_s(shape: Shape, answer_s: float) -> float:
    """What the load comes to at most: as asked for, or what its clients make of answers that take so long."""
    if shape.open_loop:
        return shape.law.peak(shape.rps, shape.schedule_s)
    return shape.most_in_flight / (answer_s + shape.think_time)


def _limit(machine: Machine) -> str:
    if machine.serves:
        half = f"half of its {machine.cores} cores" if machine.cores > 1 else "a share of its one core"
        return f"the server on this machine is left {half}"
    return f"there are no more than {machine.cores} cores" if machine.cores > 1 else "there is one core"


def this_machine(hosts: Iterable[str]) -> Machine:
    """Its cores that this process may use, and whether one of these servers is on it; one that nobody names may be."""
    names = list(hosts)
    return Machine(usable_cores(), not names or any(map(is_here, names)))


def is_here(server: str) -> bool:
    """Whether a host, by name, address or URL, is this machine. A path is, and so is what can't be resolved."""
    host = urlsplit(server).hostname if "//" in server else server
    try:
        addresses = socket.getaddrinfo(host or "localhost", 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return any(_is_own(family, address) for family, *_, address in addresses)


def _is_own(family: int, address: tuple[object, ...]) -> bool:
    """Only an own address can be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True
