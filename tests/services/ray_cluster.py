"""A real Ray cluster of several nodes on this machine: a head that runs no trials, and nodes that can be killed.

One test process runs all tests of it (conftest), so that there is one.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from services.kin import end_with_parent

PATIENT = {
    "RAY_raylet_start_wait_time_s": "60",  # not more: a raylet that gave up by itself is waited for as long
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_health_check_timeout_ms": "60000",
}
"""Ray's own waits of half a minute end a node whose machine is busy with other tests."""


class RayCluster:
    """Two nodes of two cores, `n1` and `n2`; `n2` also has a `widget`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rayt-", dir="/tmp"))
        token = self.folder / "token"
        token.write_text(secrets.token_hex(32))
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        aside = {"RAY_TMPDIR": str(self.folder)}  # else a `ray.init()` anywhere on this machine would find it
        self.log = self.folder / "cluster.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "BENCH"))}
        with self.log.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_nodes.py")), str(self.folder)],
                env=kept | self.variables | PATIENT | aside,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        told = self._heard()
        self.address: str = told["address"]
        self.dashboard: str = told["dashboard"]
        self.clients = f"ray://{self.address.partition(':')[0]}:{told['clients']}"

    def do(self, what: str, *words: str) -> dict[str, Any]:
        """`kill NODE`, `add NODE`."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([what, *words]) + "\n")
        self.process.stdin.flush()
        return self._heard()

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(120)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _heard(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the Ray cluster has ended: {self.log.read_text(errors='replace')[-2000:]}"
        found: dict[str, Any] = json.loads(line)
        return found


def started(tries: int = 4) -> RayCluster:
    """Where all cores are busy, Ray gives up a node whose agents have not begun within 15 s; then once more."""
    for _ in range(tries - 1):
        with contextlib.suppress(AssertionError):
            return RayCluster()
    return RayCluster()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    pytest.importorskip("ray")
    made = started()
    try:
        yield made
    finally:
        made.stop()
