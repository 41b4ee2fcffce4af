"""Run a cluster's library in a process of its own, because it may take seconds to load and may end its process.

`python -m benchhouse.executors.NAME_engine` serves one executor in lines of JSON. Input: `open` (settings), `nodes`,
`start` (a slot), `stop` (slots). Output: `nodes`, `gone` (a slot and the reason), `refused` (message and hint), `lost`
(the cluster is gone, with the reason). When its input ends, it ends everything that it started.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from benchhouse.executors.cluster_node import ORDERS, append
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

_LOOK_S = 0.2
_replies = -1  # the file descriptor for answers of `serve` to its orchestrator
_OWN = ("RAY_", "DASK_", "SPARK_", "PYSPARK_", "SLURM_", "CUDA_VISIBLE_DEVICES", "HOSTNAME", "BENCHHOUSE_")


class SlotRequest(Model):
    """The resources of one slot, which are those of one trial on one node."""

    cpus: int = Field(1, description="Cores.")
    gpus: int = Field(0, description="GPUs.")
    memory: int | None = Field(None, description="Bytes; none: not counted.")
    nodes: int = Field(1, description="How many slots of this size, each on another node, one trial needs.")
    custom: dict[str, float] = Field(default_factory=dict, description="The cluster's own kinds, by name.")


class ClusterNode(Model):
    """The total resources of a cluster node, free or not."""

    name: str = Field(description="As people call it.")
    host: str = Field("", description="The machine, where several of them may share one.")
    cpus: float = Field(description="Cores.")
    gpus: float = Field(0, description="GPUs.")
    memory: int | None = Field(None, description="Bytes; none: unknown.")
    custom: dict[str, float] = Field(default_factory=dict, description="The cluster's own kinds, by name.")


class WorkerSlot(Model):
    """A place on a node that runs trials one after the other."""

    name: str = Field(description="Of the slot, one of the run's.")
    ask: SlotRequest = Field(description="What it needs.")
    folder: str = Field(description="Where its orders and reports are, seen by all nodes.")
    python: tuple[str, ...] = Field(description="Command prefix that ends in an interpreter with benchhouse.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables of the site.")
    gang: str = Field("", description="Where a trial needs several: the name of the first of them.")
    patience_s: float = Field(30.0, description="How long it goes on without a sign of its orchestrator.")


class ClusterGoneError(Exception):
    """The cluster is gone for good; the message gives the symptom."""


class ClusterEngine(Protocol):
    """The interface for Ray, Dask, and Spark. A slot is one long `cluster_node.keep_slot` call, never retried."""

    def open(self, settings: Mapping[str, Any]) -> None:
        """Start our own cluster or connect to one. Raise BenchError within 15 s if an address does not answer."""

    def nodes(self) -> Sequence[ClusterNode]: ...

    def start(self, slot: WorkerSlot, environment: Mapping[str, str]) -> None:
        """Request a slot and return; it begins when the cluster has room.

        The slots of a gang are requested one after the other and begin on different nodes, all or none if the cluster
        can ensure that.
        """

    def gone(self) -> Mapping[str, str]:
        """Return the slots that ended since the last call, with reasons. Raise ClusterGoneError. Calls are cheap."""

    def stop(self, slots: Sequence[str]) -> None:
        """End these slots with everything they started and withdraw those that have not started; `gone` lists them."""

    def close(self) -> None:
        """End all slots, and the cluster if we started it."""


def carried(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the orchestrator's variables that trials get too, as under Slurm, without those about this node."""
    return {name: value for name, value in environment.items() if not name.startswith(_OWN)}


def serve(engine: ClusterEngine) -> int:
    """Carry out orders until the input ends; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the orchestrator handles them; not SIG_IGN, which children inherit
    global _replies
    _replies = os.dup(1)
    os.dup2(2, 1)  # the orchestrator must not read what libraries print
    environment, buffer, opened = carried(os.environ), b"", False
    try:
        while True:
            readable, _, _ = select.select([0], [], [], _LOOK_S if opened else None)
            if readable:
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    return 0
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    _obey(engine, json.loads(line), environment)
                    opened = True
            for slot, reason in engine.gone().items() if opened else ():
                _reply({"gone": slot, "reason": reason})
    except BenchError as error:
        _reply({"refused": error.message, "hint": error.hint})
        return 1
    except ClusterGoneError as error:
        report_cluster_lost(str(error))
        return 1
    finally:
        engine.close()
        sys.stderr.flush()


def _obey(engine: ClusterEngine, order: dict[str, Any], environment: Mapping[str, str]) -> None:
    if "open" in order:
        engine.open(order["open"])
    if "open" in order or "nodes" in order:
        _reply({"nodes": [node.model_dump() for node in engine.nodes()]})
    if "start" in order:
        slot = WorkerSlot.model_validate(order["start"])
        engine.start(slot, {**environment, **slot.environment})
    if "stop" in order:
        engine.stop(order["stop"])


def report_cluster_lost(why: str) -> None:
    """Report that the cluster is gone; this process ends. Other threads call it if a call of the library hangs."""
    _reply({"lost": why})


def _reply(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the input will end too
        os.write(_replies, json.dumps(message).encode() + b"\n")


def unanswered(title: str, place: tuple[str, int], limit_s: float, speaks: Callable[[socket.socket], bool]) -> str:
    """Probe an address with the protocol of `title`; return why it is not there, or an empty string if it is.

    The libraries themselves wait a minute or forever.
    """
    try:
        with socket.create_connection(place, timeout=limit_s) as connection:
            return "" if speaks(connection) else f"something other than {title} is there"
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)


def first_line(error: Exception) -> str:
    """Return the first non-empty line of a library's exception, for a message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def request_slot_end(slot: WorkerSlot) -> None:
    """Write the order to end to a slot, because the thread or task of another job cannot be ended from outside."""
    with contextlib.suppress(OSError):
        append(Path(slot.folder) / ORDERS, {"end": "it was stopped"})
