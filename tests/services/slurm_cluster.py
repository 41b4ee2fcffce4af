"""A real Slurm cluster on this machine, shared by all test processes of one run; the last of them ends it."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until

from benchhouse.executors.slurm_calls import ENDED

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm-cluster.sh"


def can_be_had() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


needs_slurm = pytest.mark.skipif(not can_be_had(), reason="a Slurm cluster on one machine needs root on Debian")


class Cluster:
    """Its configuration, and calls to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = str(folder / "etc" / "slurm.conf")

    @property
    def unavailable(self) -> Path:
        """Says why, where it could not be started."""
        return Path(f"{self.folder}.unavailable")

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return kept | {"SLURM_CONF": self.conf}

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def tasks(self, run_id: str) -> dict[str, tuple[str, str]]:
        """The state and the node of every array task of a run, by the id of the task."""
        rows = self.call("squeue", "-h", "-r", "-t", "all", "-o", "%j|%i|%T|%N").splitlines()
        found = [row.split("|") for row in rows if re.match(rf"bench-{re.escape(run_id)}-\d+\|", row)]
        return {task: (state, node) for _, task, state, node in found}

    def tasks_in(self, run_id: str, state: str) -> list[str]:
        return sorted(task for task, (found, _) in self.tasks(run_id).items() if found == state)

    def wait_for_tasks(self, run_id: str, state: str, count: int) -> list[str]:
        """Wait until this number of tasks is in that state, and return their ids."""
        wait_until(lambda: len(self.tasks_in(run_id, state)) == count, f"{count} tasks that are {state}")
        return self.tasks_in(run_id, state)

    def jobs(self, run_id: str) -> set[str]:
        """The names of the jobs of a run, also those of its services, that wait or run."""
        return {name for name in self.call("squeue", "-h", "-o", "%j").split() if run_id in name}

    def start(self, *more: str, port: int, **variables: str) -> None:
        # The reference scenario asks for 32 GB of a node.
        environment = os.environ | {"SLURM_PORT": str(port), "NODE_MEMORY_MB": "40000"} | variables
        command = [str(SCRIPT), "start", str(self.folder), *more]
        done = subprocess.run(command, env=environment, check=False, timeout=300, capture_output=True, text=True)
        if done.returncode:
            self.stop()
            said = done.stderr.strip() or f"exit code {done.returncode}"
            self.unavailable.write_text(f"no Slurm cluster could be started here: {said[-300:]}")

    def stop(self) -> None:
        subprocess.run([str(SCRIPT), "stop", str(self.folder)], check=True, timeout=120)

    def daemon_of(self, node: str) -> int:
        """The pid of its slurmd, which may know its node before it has written that down."""
        path = self.folder / "run" / f"slurmd.{node}.pid"
        wait_until(lambda: path.exists() and path.read_text().strip(), f"the slurmd of {node}")
        return int(path.read_text())

    def lose(self, node: str) -> None:
        """Kill all that runs on a node at once, as when its power fails: what has its name is in one namespace."""
        space = Path(f"/proc/{self.daemon_of(node)}/ns/uts").readlink()
        while pids := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _lives_in(pid, space)]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def bring_back(self, node: str, ahead_s: int = 0) -> None:
        """Start the slurmd of a node that was killed, with a monotonic clock that is so far ahead of the machine's."""
        (self.folder / "run" / f"slurmd.{node}.pid").unlink(missing_ok=True)
        environment = self.environment | {"NODE_AHEAD": str(ahead_s)}
        subprocess.run([str(SCRIPT), "node", str(self.folder), node], env=environment, check=True, timeout=60)
        self.daemon_of(node)


def _lives_in(pid: int, space: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/uts").readlink() == space
    except OSError:  # it has ended
        return False


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if not can_be_had():
        pytest.skip("a Slurm cluster on one machine needs root on Debian")
    whole = getattr(request.config, "workerinput", {}).get("testrunuid", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"bench-slurm-{whole[:12]}"
    made = Cluster(folder)
    with Path(f"{folder}.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while somebody starts it
        if not Path(made.conf).exists():
            fcntl.flock(users, fcntl.LOCK_EX)
            if not Path(made.conf).exists() and not made.unavailable.exists():
                made.start(port=27100 + os.getpid() % 280 * 20)
            fcntl.flock(users, fcntl.LOCK_SH)
        if made.unavailable.exists():
            pytest.skip(made.unavailable.read_text())
        yield made
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process still uses it
        made.stop()
        Path(f"{folder}.lock").unlink(missing_ok=True)


@pytest.fixture
def slurm(lab: Lab, cluster: Cluster) -> Lab:
    """A laboratory whose scenarios go to the cluster."""
    return use_cluster(lab, cluster)


def use_cluster(lab: Lab, cluster: Cluster, partition: str = "all", **site: Any) -> Lab:
    """Write a site profile by which the scenarios of the laboratory go to the cluster."""
    lab.variables["SLURM_CONF"] = cluster.conf
    more = {"poll": "1s", "partition": partition} | site.pop("slurm", {})
    text = json.dumps({"site": "test", "executor": "slurm", "slurm": more} | site)
    (lab.workspace / "site.yaml").write_text(text)
    return lab


def submit(lab: Lab, *args: object) -> dict[str, Any]:
    return json.loads(lab.bench("submit", *args, "--json").stdout)


def status(lab: Lab) -> dict[str, Any]:
    return json.loads(lab.bench("status", "@last", "--json", code=None).stdout)


def collect(lab: Lab) -> dict[str, Any]:
    return json.loads(lab.bench("collect", "@last", "--json").stdout)


def collect_until_done(lab: Lab, cluster: Cluster) -> dict[str, Any]:
    """Collect the last run whenever none of its tasks waits or runs, until nothing is under way."""
    over = ENDED | {"COMPLETING"}
    while True:
        wait_until(lambda: {state for state, _ in cluster.tasks(lab.run_id()).values()} <= over, "the end of all tasks")
        if not (collected := collect(lab))["under_way"]:
            return collected
