"""A real standalone Spark on this machine: a master and a worker with two cores, as processes that can be killed."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import wait_until
from services.kin import end_with_parent
from services.on_demand import provide
from services.ray_nodes import free_ports

CORES = 2
_LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkCluster:
    def __init__(self) -> None:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder = Path(tempfile.mkdtemp(prefix="sparkt-"))
        port, ui = free_ports(2)
        self.master, self.ui = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{ui}"
        self.processes = [self._run("master.Master", "--port", str(port), "--webui-port", str(ui))]
        wait_until(lambda: self._told(), "Spark's master", 300)
        self.add_worker()

    @property
    def settings(self) -> dict[str, Any]:
        """What a scenario says of it; all of it stays on this machine."""
        here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {"master": self.master, "ui": self.ui, "conf": here}

    def executors(self) -> list[int]:
        """Processes of executors, the oldest first."""
        group, found = str(self.processes[1].pid), []
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdigit() and b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                    fields = (path / "stat").read_text().rpartition(")")[2].split()
                    found += [(int(fields[19]), int(path.name))] if fields[2] == group else []
            except OSError:
                continue
        return [pid for _, pid in sorted(found)]

    def add_worker(self) -> None:
        work = ["--cores", str(CORES), "--memory", "2g", "--webui-port", "0", "--work-dir", str(self.folder / "work")]
        self.processes[1:] = [self._run("worker.Worker", *work, self.master)]
        wait_until(lambda: self._told().get("aliveworkers"), "Spark's worker", 300)

    def kill_worker(self) -> None:
        """With its executors; the master stays."""
        self._kill(self.processes[1:])

    def kill(self) -> None:
        self._kill(self.processes)

    def _kill(self, processes: "list[subprocess.Popen[bytes]]") -> None:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, *more: str) -> "subprocess.Popen[bytes]":
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "BENCH"))}
        own = {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self.folder)}
        own |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _LEAN}
        command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        with (self.folder / "log").open("ab") as words:
            return subprocess.Popen(
                [*command, *more], env=kept | own, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip

    def _told(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.ui}/json/", timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, ValueError):
            return {}


def has_spark() -> None:
    if not shutil.which("java"):
        pytest.skip("there is no Java here")
    provide("spark", "pyspark")


@pytest.fixture(scope="module")
def spark_cluster() -> Iterator[SparkCluster]:
    has_spark()
    made = SparkCluster()
    try:
        yield made
    finally:
        made.stop()
