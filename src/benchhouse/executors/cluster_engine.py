"""A cluster's own library, in a process of its own: it may take seconds to load, and end the process that uses it.

`python -m benchhouse.executors.NAME_engine` serves one executor in lines of JSON. In: `open` (settings), `nodes`,
`start` (a slot), `stop` (slots). Out: `nodes`, `gone` (a slot, with why), `refused` (message and hint), `lost` (the
cluster, with why). When its input ends, so does everything that it started.
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
_replies = -1  # the descriptor by which `serve` answers its orchestrator
_OWN = ("RAY_", "DASK_", "SPARK_", "PYSPARK_", "SLURM_", "CUDA_VISIBLE_DEVICES", "HOSTNAME", "BENCHHOUSE_")


class SlotRequest(Model):
    """What one slot needs, which is what one trial needs."""

    cpus: int = Field(1, description="Cores.")
    gpus: int = Field(0, description="GPUs.")
    memory: int | None = Field(None, description="Bytes; none: not counted.")
    nodes: int = Field(1, description="How many slots of this size, each on another node, one trial needs.")
    custom: dict[str, float] = Field(default_factory=dict, description="The cluster's own kinds, by name.")


class ClusterNode(Model):
    """What a node of the cluster has in all, whether or not it is free."""

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
    """The cluster has gone for good; its words say how that was seen."""


class ClusterEngine(Protocol):
    """What Ray, Dask or Spark must fill in. A slot is one long call of `cluster_node.keep_slot`, retried by nobody."""

    def open(self, settings: Mapping[str, Any]) -> None:
        """Start a cluster of our own, or find one; BenchError within 15 s where an address does not answer."""

    def nodes(self) -> Sequence[ClusterNode]: ...

    def start(self, slot: WorkerSlot, environment: Mapping[str, str]) -> None:
        """Ask for it and return; it begins when the cluster has room for it. Those of a gang begin on different nodes,
        and where the cluster can see to that, all or none; they are asked for one after the other."""

    def gone(self) -> Mapping[str, str]:
        """Slots that have ended since the last call, with why; cheap. Raises ClusterGoneError."""

    def stop(self, slots: Sequence[str]) -> None:
        """End these with everything they started, and take back those that have not begun; they show in `gone`."""

    def close(self) -> None:
        """End all slots, then the cluster where it is ours."""


def carried(environment: Mapping[str, str]) -> dict[str, str]:
    """The orchestrator's variables that its trials have as well, as under Slurm; not those that speak of this node."""
    return {name: value for name, value in environment.items() if not name.startswith(_OWN)}


def serve(engine: ClusterEngine) -> int:
    """Obey until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the orchestrator's to handle; not SIG_IGN, which children would keep
    global _replies
    _replies = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not for the orchestrator
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
    """The cluster is gone, and this process ends. Also from another thread, where a call of the library hangs."""
    _reply({"lost": why})


def _reply(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the input will end too
        os.write(_replies, json.dumps(message).encode() + b"\n")


def unanswered(title: str, place: tuple[str, int], limit_s: float, speaks: Callable[[socket.socket], bool]) -> str:
    """Why no `title` is there, by a probe of its protocol; empty where it is. Libraries wait a minute or forever."""
    try:
        with socket.create_connection(place, timeout=limit_s) as connection:
            return "" if speaks(connection) else f"something other than {title} is there"
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)


def first_line(error: Exception) -> str:
    """What a library's exception says, for a message: its first line that is not empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def request_slot_end(slot: WorkerSlot) -> None:
    """By its orders: a thread or a task of another slot's job can't be ended from outside."""
    with contextlib.suppress(OSError):
        append(Path(slot.folder) / ORDERS, {"end": "it was stopped"})
