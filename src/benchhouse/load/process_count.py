"""The number of load processes if the scenario leaves it to the engine (`processes: auto`).

The rule: the work is the maximum rate of requests times the CPU time per request. Each process gets work for half a
core, so that it stays on time. There are never more processes than cores, than half of the cores if the server is on
this machine, or than requests in flight.

The rate of a closed loop depends on the server. A client is assumed to read 50 events per second, like a fast stream of
tokens; if its calls block, it is assumed to make 1,000 calls per second: client libraries are for stores that answer in
a millisecond. The CPU time per request is measured at once (`calibration.py`), but only if the result can matter. For a
blocking call, the library uses that time, which only the load itself would show; an estimate is used instead.
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
CALL_S = 125e-6  # interpreter time per call of a client library: 40 us for PostgreSQL, hundreds for some others
SMALL_EVENTS_PER_S = 3200.0  # 64 streams: one process handles that on the slowest machine, so nothing is measured


@dataclass(frozen=True)
class Machine:
    """The part of a machine that load processes may use."""

    cores: int
    serves: bool  # whether the server is also on this machine

    @property
    def spare(self) -> int:
        """Cores that are not the server's: the server gets at least half, and always one."""
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
    """Return the number of load processes on all `nodes` together, which are assumed to be alike, and the reason.

    `cost_s` measures the CPU time of a request from the number of events in its answer; None if calls block.
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
    """Return the maximum rate of the load: as configured, or what its clients reach if answers take `answer_s`."""
    if shape.open_loop:
        return shape.law.peak(shape.rps, shape.schedule_s)
    return shape.most_in_flight / (answer_s + shape.think_time)


def _limit(machine: Machine) -> str:
    if machine.serves:
        half = f"half of its {machine.cores} cores" if machine.cores > 1 else "a share of its one core"
        return f"the server on this machine is left {half}"
    return f"there are no more than {machine.cores} cores" if machine.cores > 1 else "there is one core"


def this_machine(hosts: Iterable[str]) -> Machine:
    """Return the cores that this process may use, and whether a server is on this machine; True if none is named."""
    names = list(hosts)
    return Machine(usable_cores(), not names or any(map(is_here, names)))


def is_here(server: str) -> bool:
    """Whether a host, by name, address, or URL, is this machine. True for a path, and for a host that can't be
    resolved."""
    host = urlsplit(server).hostname if "//" in server else server
    try:
        addresses = socket.getaddrinfo(host or "localhost", 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return any(_is_own(family, address) for family, *_, address in addresses)


def _is_own(family: int, address: tuple[object, ...]) -> bool:
    """Whether the address belongs to this machine: only its own addresses can be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True
