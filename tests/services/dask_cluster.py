"""Real Dask clusters on this machine: a scheduler and two workers as processes, and a small one that speaks TLS.

One test process runs all tests of it (conftest), so that there is one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from laboratory import wait_until
from services.kin import end_with_parent

PATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300s"}
_HOSTS = {"left": "127.0.0.2", "right": "127.0.0.3"}
_TLS = """
import os, sys
from distributed import LocalCluster, Security

security = Security.temporary()
cluster = LocalCluster(
    n_workers=1, threads_per_worker=2, processes=False, protocol="tls", host="127.0.0.1", dashboard_address=None,
    security=security,
)
folder = sys.argv[1]
for name, value in (
    ("ca.pem", security.tls_ca_file), ("cert.pem", security.tls_client_cert), ("key.pem", security.tls_client_key)
):
    with open(f"{folder}/{name}", "w") as file:
        file.write(value)
with open(f"{folder}/address.new", "w") as file:
    file.write(cluster.scheduler_address)
os.replace(f"{folder}/address.new", f"{folder}/address")
sys.stdin.read()
"""


def spawn(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "BENCH"))}
    with log.open("ab") as words:
        return subprocess.Popen(
            command, env=kept | PATIENT, stdin=subprocess.PIPE, stdout=words, stderr=words,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip


class DaskCluster:
    """Worker `one` has two threads and a nanny, worker `two` has one thread and a licence. `left` and `right` can be
    added: they have a host name and an address of their own, and a `pair`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="daskt-"))
        self.file = self.folder / "scheduler.json"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._run("scheduler", "scheduler", "--port", "0", "--scheduler-file", str(self.file))
        wait_until(self.file.exists, "Dask's scheduler", 300)
        self.add("one")
        self.add("two")
        self.address: str = self._address()

    def add(self, name: str) -> None:
        """Start a worker, and wait until the scheduler has it."""
        more = {"one": ["--nthreads", "2"], "two": ["--nthreads", "1", "--no-nanny", "--resources", "licence=1"]}
        own = more.get(name, ["--nthreads", "1", "--no-nanny", "--resources", "pair=1"])
        before = self._log("scheduler").count(f"name: {name}")
        self._run(
            name, "worker", "--scheduler-file", str(self.file), "--name", name, *own,
            "--local-directory", str(self.folder / "scratch"), host=_HOSTS.get(name, "127.0.0.1"),
        )  # fmt: skip
        wait_until(lambda: self._log("scheduler").count(f"name: {name}") > before, f"Dask's worker {name}", 300)

    def kill(self, name: str) -> None:
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, kind: str, *more: str, host: str = "127.0.0.1") -> None:
        program = [sys.executable, "-m", "dask", kind, "--host", host, "--no-dashboard", *more]
        apart = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name] if name in _HOSTS else []
        self.processes[name] = spawn([*apart, *program], self.folder / f"{name}.log")

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _address(self) -> str:
        found: str = json.loads(self.file.read_text())["address"]
        return found


class TlsCluster:
    """Scheduler and worker in one process, which can be killed as a whole; `security` is the file for its clients."""

    def __init__(self, folder: Path) -> None:
        self.process = spawn([sys.executable, "-c", _TLS, str(folder)], folder / "cluster.log")
        wait_until((folder / "address").exists, "Dask with TLS", 300)
        self.address = (folder / "address").read_text()
        self.security = folder / "security.yaml"
        lines = [
            f"{key}: {folder / name}.pem"
            for key, name in (("ca_file", "ca"), ("client_cert", "cert"), ("client_key", "key"))
        ]
        self.security.write_text("\n".join(lines) + "\n")

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[DaskCluster]:
    pytest.importorskip("distributed")
    made = DaskCluster()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def tls_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    pytest.importorskip("cryptography")
    made = TlsCluster(tmp_path_factory.mktemp("tls"))
    try:
        yield made
    finally:
        made.kill()
