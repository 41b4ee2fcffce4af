"""Dask as an engine: slots are Dask tasks, each sent to a worker that has room for it by our own count.

Dask gives each task one thread, whatever it needs, and would queue tasks in its scheduler. Slots therefore wait here,
and each is submitted when a worker's threads, memory, and resources, minus those of our other slots there, suffice.
"""

import contextlib
import shutil
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.executors import cluster_engine
from benchhouse.executors.cluster_capacity import misses, this_machine
from benchhouse.executors.cluster_engine import (
    ClusterGoneError,
    ClusterNode,
    SlotRequest,
    WorkerSlot,
    first_line,
    request_slot_end,
    serve,
)
from benchhouse.executors.remote_cluster import OWN
from benchhouse.executors.task_slots import run_dask_slot
from benchhouse.schema.errors import BenchError

_ANSWER_S = 8.0
_GONE_S = 15.0  # a scheduler that restarts within this time is found again
_LOOK_S = 1.0
_LONGEST_HELLO = 1 << 20
_OVER = ("finished", "error", "cancelled", "lost")
_NAMES = {"cpus": ("cpus", "CPU", "cpu"), "gpus": ("gpus", "GPU", "gpu"), "memory": ("memory", "MEMORY")}


@dataclass
class Held:
    """A slot that was submitted to Dask."""

    slot: WorkerSlot
    worker: str
    future: Any


class DaskEngine:
    def __init__(self) -> None:
        self.client: Any = None
        self.cluster: Any = None
        self.scratch: Path | None = None
        self.address = ""
        self.workers: dict[str, dict[str, Any]] = {}  # by address, as the scheduler lists them
        self.waiting: dict[str, tuple[WorkerSlot, dict[str, str]]] = {}
        self.held: dict[str, Held] = {}
        self._next_look, self._connected = 0.0, time.monotonic()

    def open(self, settings: Mapping[str, Any]) -> None:
        self.address = settings["address"]
        if "://" in self.address and (why := unanswered(self.address, settings["security"])):
            raise _no_answer(self.address, why)
        import dask
        import distributed

        self.scratch = Path(tempfile.mkdtemp(prefix="bench-dask-"))
        dask.config.set(
            {"distributed.comm.timeouts.connect": f"{_ANSWER_S:g}s", "temporary-directory": str(self.scratch)}
        )
        self.client = self._client(distributed, settings["security"])
        self._look(now=True)

    def nodes(self) -> Sequence[ClusterNode]:
        self._look(now=True)
        return [described(address, info) for address, info in self.workers.items()]

    def start(self, slot: WorkerSlot, environment: Mapping[str, str]) -> None:
        self.waiting[slot.name] = (slot, dict(environment))
        self._look(now=True)
        self._hand_over()

    def gone(self) -> Mapping[str, str]:
        self._check_scheduler()
        self._look()
        over = {}
        for name, held in list(self.held.items()):
            if held.future.status in _OVER:
                over[name] = _reason(held.future)
            elif held.worker not in self.workers:
                over[name] = f"Dask's worker {held.worker} has left the cluster"
                held.future.cancel()
            else:
                continue
            del self.held[name]
        self._hand_over()
        return over

    def stop(self, slots: Sequence[str]) -> None:
        """End slots: those that have started get an order to end, and Dask forgets them."""
        for name in slots:
            self.waiting.pop(name, None)
            if name in self.held:
                request_slot_end(self.held[name].slot)
                self.held[name].future.cancel()

    def close(self) -> None:
        for held in self.held.values():
            request_slot_end(held.slot)
        for connection in (self.client, self.cluster):
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.close(timeout=5)
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _client(self, distributed: Any, security: Mapping[str, str] | None) -> Any:
        if self.address == OWN:
            have = this_machine()
            # In this process: no port to which a neighbor could send code, and no second copy of the library.
            self.cluster = distributed.LocalCluster(
                n_workers=1, threads_per_worker=int(have.cpus), processes=False, dashboard_address=None,
                memory_limit=have.memory or 0,
                resources={"gpus": have.gpus} if have.gpus else None,
            )  # fmt: skip
            return distributed.Client(self.cluster, set_as_default=False)
        where = {"address": self.address} if "://" in self.address else {"scheduler_file": self.address}
        if security:
            where["security"] = distributed.Security(
                tls_ca_file=security["ca_file"],
                tls_client_cert=security["client_cert"],
                tls_client_key=security["client_key"],
                require_encryption=True,
            )
        try:
            return distributed.Client(**where, timeout=_ANSWER_S, set_as_default=False)
        except Exception as error:  # many exception types, all with messages for people
            if self.address.startswith("tls") and not security:
                raise BenchError(
                    f"{self.address} can't be reached without certificates: {first_line(error)}",
                    "name the file that lists them: dask: {security: /path/security.yaml}",
                ) from error
            raise _no_answer(self.address, first_line(error)) from error

    def _look(self, *, now: bool = False) -> None:
        """Request the workers from the scheduler now and then; without an answer, the known ones remain."""
        if not now and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        if self.client.status == "running":
            try:
                info = self.client.scheduler_info(n_workers=-1)
            except TypeError:  # before 2025 it always listed all
                info = self.client.scheduler_info()
            if "workers" in info:  # an answer, even if all workers have left
                self.workers = dict(info["workers"])

    def _check_scheduler(self) -> None:
        now = time.monotonic()
        if self.client.status == "running":
            self._connected = now
        elif self.client.status == "closed" or now - self._connected > _GONE_S:
            raise ClusterGoneError("its scheduler no longer answers")

    def _hand_over(self) -> None:
        """Submit slots in order, so that small ones never delay a large one indefinitely. A gang is submitted whole."""
        for name, (slot, _) in list(self.waiting.items()):
            if name not in self.waiting:  # submitted with its gang
                continue
            gang = [item for item in self.waiting if item == name or (slot.gang and self._gang(item) == slot.gang)]
            workers = self._roomiest(slot.ask)
            if not workers or len(gang) < slot.ask.nodes:
                return
            for member, worker in zip(gang, workers, strict=True):
                self._submit(*self.waiting.pop(member), worker)

    def _gang(self, name: str) -> str:
        return self.waiting[name][0].gang

    def _submit(self, slot: WorkerSlot, environment: Mapping[str, str], worker: str) -> None:
        future = self.client.submit(
            run_dask_slot, slot.folder, list(slot.python), environment, slot.patience_s,
            workers=[worker], allow_other_workers=False, pure=False, retries=0, key=f"bench-{slot.name}",
            resources=counted(slot.ask, self.workers[worker].get("resources") or {}),
        )  # fmt: skip
        self.held[slot.name] = Held(slot, worker, future)

    def _roomiest(self, ask: SlotRequest) -> list[str]:
        """Return one worker per node of the request, each on another host; empty if there are not enough."""
        room = {address: self._free(address, info) for address, info in self.workers.items()}
        fitting = [address for address, free in room.items() if not misses(ask, free)]
        hosts: dict[str, str] = {}
        for address in sorted(fitting, key=lambda address: -room[address].cpus):
            hosts.setdefault(room[address].host or address, address)
        chosen = list(hosts.values())[: ask.nodes]
        return chosen if len(chosen) == ask.nodes else []

    def _free(self, address: str, info: Mapping[str, Any]) -> ClusterNode:
        """Return a worker's resources minus those of our slots there."""
        node = described(address, info)
        taken = [held.slot.ask for held in self.held.values() if held.worker == address]
        custom = {name: amount - sum(ask.custom.get(name, 0) for ask in taken) for name, amount in node.custom.items()}
        free = {"cpus": node.cpus - sum(ask.cpus for ask in taken), "gpus": node.gpus - sum(ask.gpus for ask in taken)}
        memory = None if node.memory is None else node.memory - sum(ask.memory or 0 for ask in taken)
        return node.model_copy(update={**free, "memory": memory, "custom": custom})


def described(address: str, info: Mapping[str, Any]) -> ClusterNode:
    """Return a worker as a node: its threads are the cores, its memory limit is the memory."""
    resources: Mapping[str, float] = info.get("resources") or {}
    own = {name for names in _NAMES.values() for name in names}
    cpus, gpus, memory = (
        next((resources[name] for name in names if name in resources), None) for names in _NAMES.values()
    )
    return ClusterNode(
        name=str(info.get("name") or address),
        host=str(info.get("host") or ""),
        cpus=info["nthreads"] if cpus is None else min(cpus, info["nthreads"]),
        gpus=gpus or 0,
        memory=int(memory) if memory is not None else info.get("memory_limit") or None,
        custom={name: amount for name, amount in resources.items() if name not in own},
    )


def counted(ask: SlotRequest, resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources that Dask itself counts, for others on the cluster: the kinds that the worker declares."""
    declared = {kind: next((name for name in names if name in resources), None) for kind, names in _NAMES.items()}
    return ask.custom | {name: getattr(ask, kind) for kind, name in declared.items() if name and getattr(ask, kind)}


def _reason(future: Any) -> str:
    if future.status == "finished":
        return str(future.result(timeout=5))
    if future.status == "error":
        error = future.exception(timeout=5)
        return f"{type(error).__name__}: {error}"[:400]
    return f"Dask says that its task is {future.status}"


def _no_answer(address: str, why: str) -> BenchError:
    return BenchError(
        f"no Dask scheduler answers at {address}: {why}",
        "start one: dask scheduler, and dask worker ADDRESS; or run here: --executor local",
    )


def unanswered(address: str, security: Mapping[str, str] | None = None, limit_s: float = _ANSWER_S) -> str:
    """Return why no scheduler is there, or an empty string if one is. Dask itself waits forever for a silent one."""
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")

    def speaks(connection: socket.socket) -> bool:
        if protocol == "tls" and security:
            with _trusting(security).wrap_socket(connection) as inner:
                return _sends_greeting(inner)
        return protocol != "tcp" or _sends_greeting(connection)

    return cluster_engine.unanswered("Dask", (host.strip("[]"), int(port)), limit_s, speaks)


def _sends_greeting(connection: socket.socket) -> bool:
    """Return whether the other side sends Dask's greeting, which starts with its own length."""
    hello = b""
    while len(hello) < 8 and (more := connection.recv(8 - len(hello))):
        hello += more
    return len(hello) == 8 and 0 < struct.unpack("<Q", hello)[0] < _LONGEST_HELLO


def _trusting(security: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security["ca_file"])
    context.check_hostname = False  # as in Dask: any certificate of the authority belongs to the cluster
    context.load_cert_chain(security["client_cert"], security["client_key"])
    return context


if __name__ == "__main__":
    sys.exit(serve(DaskEngine()))
