"""Ray as an engine: slots are Ray tasks. It runs in its own process, because Ray ends the process if a cluster dies."""

import contextlib
import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.executors import cluster_engine, cluster_node
from benchhouse.executors.cluster_capacity import this_machine
from benchhouse.executors.cluster_engine import (
    ClusterGoneError,
    ClusterNode,
    WorkerSlot,
    first_line,
    report_cluster_lost,
    serve,
)
from benchhouse.executors.remote_cluster import OWN
from benchhouse.schema.errors import BenchError

_ANSWER_S = 10.0
_LOOK_S, _GONE_S = 5.0, 20.0
_TRIES = 3  # Ray gives up a node whose agents have not started within 15 s, which happens if all cores are busy
_SHORT = 30  # characters; Ray adds about sixty, and the name of a socket may have 107
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 0)[1:] + b"\x04\x00" + bytes(4)
"""The start of a gRPC client: the preface and empty settings. A server answers with its own settings."""

IMPOSED = ("OMP_NUM_THREADS",)
"""Variables that Ray sets to a task's number of cores. Trials get them only from `env_vars`, to be alike everywhere."""


@dataclass
class Gang:
    """Slots that share a placement group, in the order of its bundles."""

    group: Any
    slots: list[str] = field(default_factory=list)


class RayEngine:
    def __init__(self) -> None:
        self.ray: Any = None
        self.own: Path | None = None
        self.address = ""
        self.is_gone = False
        self.runtime_env: dict[str, Any] = {}
        self.slots: dict[Any, str] = {}  # by the reference to its result
        self.gangs: dict[str, Gang] = {}
        self._why_gone = ""
        self._over = threading.Event()

    def open(self, settings: Mapping[str, Any]) -> None:
        address: str = settings["address"]
        self.runtime_env = dict(settings["runtime_env"])
        own = address == OWN
        if not own and address != "auto" and (why := unanswered(*endpoint(address))):
            raise BenchError(
                f"no Ray cluster answers at {address}: {why}",
                "start one: ray start --head; or run here: --executor local",
            )
        if own:
            self._prepare_own()
        import ray

        self.ray = ray
        self.ray.cloudpickle.register_pickle_by_value(cluster_node)  # its Python need not have benchhouse
        for _ in range(_TRIES - 1 if own else 0):
            with contextlib.suppress(BenchError):
                self._connect(address, self._of_our_own())
                return
            self.ray.shutdown()
        self._connect(address, self._of_our_own() if own else {"address": address})

    def _connect(self, address: str, how: dict[str, Any]) -> None:
        try:
            self.ray.init(**how, log_to_driver=False, configure_logging=False)
        except Exception as error:
            raise BenchError(
                f"Ray can't be used at {address}: {first_line(error)}",
                "from a machine that is not a node of it use ray://HOST:10001; its token: RAY_AUTH_TOKEN_PATH",
            ) from error
        with contextlib.suppress(Exception):
            self.address = address if "://" in address else self.ray.get_runtime_context().gcs_address
            threading.Thread(target=self._watch, daemon=True).start()

    def nodes(self) -> Sequence[ClusterNode]:
        return [described(node) for node in self.ray.nodes() if node["Alive"]]

    def start(self, slot: WorkerSlot, environment: Mapping[str, str]) -> None:
        wanted: dict[str, Any] = {
            "num_cpus": slot.ask.cpus,
            "num_gpus": slot.ask.gpus,
            "resources": slot.ask.custom,
            "max_retries": 0,  # only benchhouse retries
            "name": f"bench {slot.name}",
            "memory": slot.ask.memory or None,
            "runtime_env": self.runtime_env or None,
        }
        if slot.gang:
            wanted["scheduling_strategy"] = self._place_in_gang(slot)
        task = self.ray.remote(run_slot).options(**{key: value for key, value in wanted.items() if value is not None})
        reference = task.remote(slot.folder, list(slot.python), dict(environment), slot.patience_s)
        self.slots[reference] = slot.name

    def _place_in_gang(self, slot: WorkerSlot) -> Any:
        """Return the strategy for a bundle of a group: bundles on different nodes, reserved all or none."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ask = slot.ask
        if slot.gang not in self.gangs:
            bundle = {"CPU": ask.cpus, "GPU": ask.gpus, "memory": ask.memory or 0} | ask.custom
            bundles = [{kind: amount for kind, amount in bundle.items() if amount} for _ in range(ask.nodes)]
            group = placement_group(bundles, strategy="STRICT_SPREAD", name=f"bench {slot.gang}")
            self.gangs[slot.gang] = Gang(group)
        gang = self.gangs[slot.gang]
        gang.slots.append(slot.name)
        return PlacementGroupSchedulingStrategy(
            placement_group=gang.group, placement_group_bundle_index=len(gang.slots) - 1
        )

    def gone(self) -> Mapping[str, str]:
        if self._why_gone:
            raise ClusterGoneError(self._why_gone)
        if not self.slots:
            return {}
        references = list(self.slots)
        try:
            ended, _ = self.ray.wait(references, num_returns=len(references), timeout=0)
        except Exception as error:
            self.is_gone = True
            raise ClusterGoneError(first_line(error)) from error
        gone = {self.slots.pop(reference): self._reason(reference) for reference in ended}
        if gone:
            self._remove_groups()
        return gone

    def _remove_groups(self) -> None:
        """Remove groups without remaining slots, which frees what they reserve."""
        from ray.util.placement_group import remove_placement_group

        left = set(self.slots.values())
        for name, gang in list(self.gangs.items()):
            if left.isdisjoint(gang.slots):
                del self.gangs[name]
                with contextlib.suppress(Exception):
                    remove_placement_group(gang.group)

    def stop(self, slots: Sequence[str]) -> None:
        for reference, name in self.slots.items():
            if name in slots:
                with contextlib.suppress(Exception):
                    self.ray.cancel(reference, force=True)

    def close(self) -> None:
        self._over.set()
        if self.ray and self.is_gone:
            with contextlib.suppress(Exception):  # ends what is left of our own cluster
                node = self.ray._private.worker._global_node
                node.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
        elif self.ray:
            self.stop(list(self.slots.values()))
            with contextlib.suppress(Exception):
                self.ray.shutdown()
        if self.own:
            shutil.rmtree(self.own, ignore_errors=True)

    def _reason(self, reference: Any) -> str:
        try:
            return str(self.ray.get(reference))
        except Exception as error:  # noqa: BLE001 - a worker or a node that died, a runtime_env that can't be made
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"{type(error).__name__}: {' '.join(lines)}"[:400]

    def _watch(self) -> None:
        """Report a lost head before Ray does: Ray waits a minute, then ends this process.

        This is a thread, because calls of Ray do not return for that long if this node died with the head.
        """
        seen = time.monotonic()
        while not self._over.wait(_LOOK_S):
            why = unanswered(*endpoint(self.address), limit_s=3.0)
            if not why:
                seen = time.monotonic()
            elif time.monotonic() - seen > _GONE_S:
                self._why_gone, self.is_gone = f"{self.address} has not answered for {_GONE_S:g} s: {why}", True
                break
        if not self._over.wait(_LOOK_S):  # `gone` has not reported it
            report_cluster_lost(self._why_gone)
            self.close()
            os._exit(1)  # the main thread hangs in a call of Ray, so nothing else ends this process

    def _prepare_own(self) -> None:
        """Create a folder with a short name, for names of sockets, and a token, before Ray looks for one."""
        where = tempfile.gettempdir()
        self.own = Path(tempfile.mkdtemp(prefix="bench-ray-", dir="/tmp" if len(where) > _SHORT else where))  # noqa: S108
        if "RAY_AUTH_MODE" not in os.environ:
            token = self.own / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}

    def _of_our_own(self) -> dict[str, Any]:
        have = this_machine()
        return {
            "address": "local",
            "num_cpus": int(have.cpus),
            "num_gpus": int(have.gpus),
            "include_dashboard": False,
            "_temp_dir": str(self.own),
            "_node_ip_address": "127.0.0.1",
        }


def run_slot(folder: str, python: list[str], environment: dict[str, str], patience_s: float) -> str:
    """Keep a slot on the node. Without `python`, use the interpreter that Ray has created for the task."""
    import ray

    cluster: Any = ray
    here = cluster.get_runtime_context()
    node_id = here.get_node_id()
    known = {node["NodeID"]: node for node in cluster.nodes()}
    placed = {
        "executor": "ray",
        "id": here.get_task_id(),
        "job_id": here.get_job_id(),
        "node_id": node_id,
        "worker_id": here.get_worker_id(),
        "node": node_name(known[node_id]) if node_id in known else socket.gethostname(),
    }
    if node_id in known:
        placed["address"] = known[node_id]["NodeManagerAddress"]
    if not python:
        environment = {name: value for name, value in environment.items() if name not in ("PATH", "VIRTUAL_ENV")}
    chosen = here.runtime_env.get("env_vars") or {}
    imposed = [name for name in IMPOSED if name not in chosen]
    return cluster_node.keep_slot(folder, python or [sys.executable], environment, placed, patience_s, imposed)


def described(node: Mapping[str, Any]) -> ClusterNode:
    has = node["Resources"]
    known = ("CPU", "GPU", "memory", "object_store_memory")
    custom = {name: amount for name, amount in has.items() if name not in known and not name.startswith("node:")}
    return ClusterNode(
        name=node_name(node),
        cpus=has.get("CPU", 0),
        gpus=has.get("GPU", 0),
        memory=int(has.get("memory", 0)),
        custom=custom,
    )


def node_name(node: Mapping[str, Any]) -> str:
    """Return the `--node-name` of a node, or its host name; Ray uses the address as the name if none was given."""
    named = node["NodeName"]
    return str(named if named and named != node["NodeManagerAddress"] else node["NodeManagerHostname"])


def endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.partition("://")[2 if "://" in address else 0].rstrip("/").rpartition(":")
    return host.strip("[]"), int(port)


def unanswered(host: str, port: int, limit_s: float = _ANSWER_S) -> str:
    """Return why no gRPC server is there, or an empty string if one is."""

    def speaks(connection: socket.socket) -> bool:
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return True
        connection.sendall(_HELLO)
        return connection.recv(9)[3:4] == b"\x04"

    return cluster_engine.unanswered("Ray", (host, port), limit_s, speaks)


if __name__ == "__main__":
    sys.exit(serve(RayEngine()))
