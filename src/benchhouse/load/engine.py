"""Runs a load: in this process, or in several (`shards.py`)."""

import gc
import math
import resource
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import monotonic_ns
from typing import Any

from benchhouse.load.calibration import request_cost_s
from benchhouse.load.endpoint import EndpointServers, HttpEndpoint
from benchhouse.load.load_record import LoadRecord, SendSchedule, Tally
from benchhouse.load.nodes import LoadNodes, on_nodes
from benchhouse.load.process_count import choose, this_machine
from benchhouse.load.records import Spool, write_parquet
from benchhouse.load.shape import MAX_IN_FLIGHT, Shape
from benchhouse.load.shards import EDGE_NS, NotReached, Pulse, in_processes
from benchhouse.load.sockets import SocketLoad
from benchhouse.load.source import RequestSource
from benchhouse.load.threads import ThreadLoad
from benchhouse.load.traces import Traces
from benchhouse.schema.errors import BenchError

__all__ = ["NotReached", "first_connections", "run_load"]

_SPARE_FILES = 64
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def run_load(
    driver: Callable[[], Any],
    source: RequestSource,
    shape: Shape,
    tally: Callable[[], Tally],
    *,
    servers: EndpointServers = EndpointServers(),  # noqa: B008 - frozen
    records: Path | None = None,
    spread: LoadNodes | None = None,
) -> LoadRecord:
    """Run the load that `shape` describes with the driver, and return its record.

    `driver()` creates a driver: an HTTP driver is created once, a call driver in each thread. `records` is the Parquet
    file for one row per request, if the shape enables it. `spread` describes the other nodes.
    """
    load = LoadSpec(driver, source, shape, tally, servers, records)
    if spread is not None and shape.nodes != "own":
        load = load.plain()
        load.choose_processes(len(spread.nodes))
        whole = on_nodes(load, load.shape.shards, spread)
    else:
        load.prepare()
        if load.shape.shards == 1:
            whole = load.run(0, lambda: monotonic_ns() + EDGE_NS)
        else:
            pulse = Pulse(load.shape.shards)
            whole = in_processes(load.shape.shards, partial(load.run, pulse=pulse), pulse)
    whole.chosen = load.chosen
    if shape.records and records:
        http = (load.first or load.driver()).transport == "http"
        spools = sorted(records.parent.glob(f"{records.stem}.*.spool"))
        write_parquet(spools, records, load.trace if http else "")
    return whole


@dataclass
class LoadSpec:
    """Everything that a load process must know. It is prepared once on each node."""

    driver: Callable[[], Any]
    source: RequestSource
    shape: Shape
    tally: Callable[[], Tally]
    servers: EndpointServers
    records: Path | None
    first: Any = None
    endpoints: list[HttpEndpoint] = field(default_factory=list)
    trace: str = field(default_factory=partial(token_hex, 8))  # prefix of its request ids
    chosen: str = ""  # why the engine chose this number of load processes; empty if it did not choose

    def plain(self) -> "LoadSpec":
        """Return a copy that can be pickled: an HTTP driver itself replaces the function that creates it."""
        driver = self.driver()
        return replace(self, driver=partial(_same, driver)) if driver.transport == "http" else self

    def prepare(self) -> None:
        """Find the servers, decide `processes: auto`, and raise the limits. Raises BenchError if that is not
        possible."""
        self.first = self.driver()
        if self.first.transport == "http":
            self.endpoints = self.servers.endpoints(self.first.url)
        self.choose_processes()
        if self.endpoints:
            self.shape = _allow_files(self.shape)
            _check_ports(self.shape, len(self.endpoints))

    def choose_processes(self, nodes: int = 1) -> None:
        """Choose the number of load processes on this number of nodes, if the scenario leaves it to the engine."""
        if self.shape.processes != "auto":
            return
        driver = self.first or self.driver()
        http = driver.transport == "http"
        addresses = [str(endpoint.address[0]) for endpoint in self.endpoints]
        machine = this_machine(addresses or self.servers.urls or ([driver.url] if http else []))
        if self.shape.nodes not in ("own", "all"):  # nodes other than the experiment's, which is this one
            machine = replace(machine, serves=False)
        choice = choose(self.shape, self.source, machine, nodes=nodes, cost_s=request_cost_s if http else None)
        self.chosen = choice.why
        self.shape = self.shape.model_copy(update={"processes": choice.processes})

    def run(self, shard: int, wait_for_edge: Callable[[], int], pulse: Pulse | None = None) -> LoadRecord:
        """Run one load process. Return its record."""
        shape, endpoints = self.shape, self.endpoints
        most = first_connections(shape) if shape.open_loop else shape.most_in_flight
        book = LoadRecord(self.tally(), len(shape.objectives.clauses) if shape.objectives else 0)
        if pulse is not None:
            book.pulse = pulse.of(shard)
        if shape.records and self.records:
            book.spool = Spool(self.records.with_suffix(f".{shard}.spool"))
        mine = max(most // shape.shards + (shard < most % shape.shards), 1)
        book.drains = 0 if shape.open_loop or shape.requests is None else mine
        load: SocketLoad | ThreadLoad
        if endpoints:
            turned = shard % len(endpoints)  # each load process starts with a different endpoint
            load = SocketLoad(self.first, self.source, shape, book, endpoints[turned:] + endpoints[:turned])
            load.traces = Traces(self.trace) if book.spool else None
        else:
            load = ThreadLoad(self.driver, self.source, shape, book)
        if problem := load.prepare(mine):
            raise NotReached(problem)
        gc.collect()
        gc.disable()  # a collection during the run is a pause in every open stream
        try:
            load.run(SendSchedule(shape, wait_for_edge(), shard))
        finally:
            gc.enable()
        book.flush()
        book.close()
        book.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if book.spool:
            book.spool.close()
        book.spool = book.pulse = None
        return book


def _check_ports(shape: Shape, addresses: int) -> None:
    """Reject more connections to one address than this machine has ports for."""
    try:
        low, high = map(int, _PORT_RANGE.read_text().split())
    except (OSError, ValueError):
        return
    ports, needed = high - low + 1, math.ceil(shape.most_in_flight / addresses)
    if needed > ports:
        raise BenchError(
            f"{needed} connections to one address need as many local ports, and this machine gives {ports} "
            f"({_PORT_RANGE})",
            "widen the range (sysctl -w net.ipv4.ip_local_port_range='1024 65535'), give several addresses, or ask for "
            "fewer in flight",
        )


def _same(driver: Any) -> Any:
    """Return an existing driver as if it were created; a lambda could not be pickled."""
    return driver


def first_connections(shape: Shape) -> int:
    """Return the number of connections with which an open loop starts; it opens more if needed."""
    return min(shape.max_in_flight, max(16, int(2 * math.sqrt(shape.rps or 0))))


def _allow_files(shape: Shape) -> Shape:
    """Raise this process's limit of open files to what the load needs, or reject the load. Only the default limit of an
    open loop, which is hardly ever reached, is lowered instead."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = math.ceil(shape.most_in_flight / shape.shards) + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        if not shape.open_loop or shape.max_in_flight != MAX_IN_FLIGHT or hard < 2 * _SPARE_FILES:
            raise BenchError(
                f"{shape.most_in_flight} requests in flight need {needed} open files in each load process, "
                f"and one may have {hard}",
                "raise the limit (ulimit -n), ask for fewer in flight, or use more processes",
            )
        needed = hard
        shape = shape.model_copy(update={"max_in_flight": (hard - _SPARE_FILES) * shape.shards})
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return shape
