"""An executor whose slots see no file of their orchestrator: an empty file system lies over workspace and cache.

It stands for nodes that share nothing. Slots are processes in mount namespaces of their own, which needs root; what
goes to and fro goes by a real bucket. A laboratory installs this file as a package (`tests/executors/conformance.py`).
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.executors.bucket_slot import carried
from benchhouse.executors.cluster_bucket import BucketMirror
from benchhouse.executors.cluster_capacity import this_machine
from benchhouse.executors.cluster_engine import ClusterNode, WorkerSlot
from benchhouse.executors.cluster_node import keep_slot
from benchhouse.executors.remote_cluster import ClusterExecutor
from benchhouse.schema.protocols import Assignment

BUCKET = "APART_BUCKET"
_EMPTY = 'mkdir -p "$2" && mount -t tmpfs none "$1" && mount -t tmpfs none "$2" && shift 2 && exec "$@"'


class ApartExecutor(ClusterExecutor):
    title = "Apart"

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment, "", None)
        address = f"{os.environ[BUCKET]}/{assignment.run.run_id}"
        self.mirror = BucketMirror(self.home, address, assignment.say, os.environ)

    def settings(self) -> Mapping[str, Any]:
        return {}

    def nodes(self) -> Sequence[ClusterNode]:
        return [this_machine()]

    def _require(self) -> None:
        assert self.mirror
        self.mirror.make_sure()

    def _open(self) -> "Processes":
        assert self.mirror
        return Processes(str(self.home.parents[3]), self.mirror.address)


class Processes:
    """The slots, as an executor knows a cluster."""

    def __init__(self, workspace: str, address: str) -> None:
        self.nodes, self.answered, self.lost = [this_machine()], True, ""
        self._workspace, self._address = workspace, address
        self._slots: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, slot: WorkerSlot) -> None:
        command = [sys.executable, __file__, self._address, slot.model_dump_json()]
        shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _EMPTY, "sh", self._workspace]
        shell.append(os.environ["BENCH_CACHE_DIR"])
        self._slots[slot.name] = subprocess.Popen([*shell, *command], cwd="/", stdout=subprocess.DEVNULL)

    def stop(self, slots: Sequence[str]) -> None:
        for name in slots:
            if process := self._slots.get(name):
                process.kill()

    def look(self, limit_s: float) -> list[ClusterNode]:
        return self.nodes

    def ask_nodes(self) -> None:
        """They stay the same."""

    def gone(self) -> Mapping[str, str]:
        ended = {name: process for name, process in self._slots.items() if process.poll() is not None}
        for name in ended:
            del self._slots[name]
        return {name: f"its process ended with code {process.returncode}" for name, process in ended.items()}

    def is_lost(self) -> bool:
        return False

    def close(self) -> None:
        self.stop(list(self._slots))
        for process in self._slots.values():
            process.wait()

    give_back = close


def main() -> None:
    address, slot = sys.argv[1], WorkerSlot.model_validate_json(sys.argv[2])
    placed = {"executor": "apart", "id": str(os.getpid())}
    with carried(address, Path(slot.folder)):
        keep_slot(slot.folder, slot.python, slot.environment, placed, slot.patience_s)


if __name__ == "__main__":
    main()
