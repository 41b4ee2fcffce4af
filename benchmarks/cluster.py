"""A Slurm cluster of four virtual nodes on this machine, for figures that need one: scripts/slurm-cluster.sh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "scripts" / "slurm-cluster.sh"


@dataclass(frozen=True)
class Cluster:
    """The cluster, and a workspace whose scenarios go there."""

    folder: Path
    workspace: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BENCH_"))}
        site = str(self.workspace / "packages")
        return kept | {
            "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"),
            "BENCH_CACHE_DIR": str(self.workspace / "cache"),
            "PYTHONPATH": os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")])),
        }

    def call(self, *command: object, timeout_s: float = 300) -> str:
        done = subprocess.run(
            [*map(str, command)], cwd=self.workspace, env=self.environment, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def bench(self, *arguments: object, timeout_s: float = 600) -> str:
        return self.call(sys.executable, "-m", "benchhouse", *arguments, timeout_s=timeout_s)

    def scenario(self, name: str, content: dict[str, Any]) -> Path:
        path = self.workspace / f"{name}.yaml"
        path.write_text(json.dumps({"scenario": name} | content))
        return path

    def wait_empty(self) -> None:
        """Until nothing of an earlier round is left in the queue."""
        while self.call("squeue", "-h", "-o", "%i").strip():
            time.sleep(0.1)

    def bring_back(self, node: str, ahead_s: int = 0) -> None:
        """With a monotonic clock that is so far ahead of the machine's."""
        self.call("env", f"NODE_AHEAD={ahead_s}", SCRIPT, "node", self.folder, node)


@contextmanager
def cluster(*, largest_array: int = 20_001, most_jobs: int = 100_000, cores: float | None = None) -> Iterator[Cluster]:
    """`cores`: what each node is held to, by a cgroup of its own."""
    if os.geteuid():
        print("a cluster on one machine needs root", file=sys.stderr)
        raise SystemExit(2)
    with tempfile.TemporaryDirectory(prefix="figures-") as name:
        Path(name).chmod(0o755)  # munge runs as a user of its own
        made = Cluster(Path(name) / "slurm", Path(name) / "ws")
        made.workspace.mkdir()
        (made.workspace / "site.yaml").write_text("site: lab\nexecutor: slurm\nslurm: {partition: all}\n")
        environment = os.environ | {"MAX_ARRAY": str(largest_array), "MAX_JOBS": str(most_jobs), "SLURM_PORT": "29300"}
        environment |= {"NODE_CORES": str(cores)} if cores else {}
        started = [str(SCRIPT), "start", str(made.folder)]
        subprocess.run(started, env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield made
        finally:
            subprocess.run([str(SCRIPT), "stop", str(made.folder)], check=True)
