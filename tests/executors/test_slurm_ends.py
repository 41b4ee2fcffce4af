"""On a real Slurm cluster: a job that has done all its work ends by itself, and Slurm's books say so."""

import json
from pathlib import Path

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import Cluster, needs_slurm
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import slurm as slurm

from benchhouse.executors import slurm as executor
from benchhouse.executors import slurm_calls as calls
from benchhouse.executors.slurm import SlurmExecutor
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment

pytestmark = needs_slurm
LINGER = """
import atexit, os, pathlib, signal, time

def linger():
    if os.getpid() == task:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        until = time.monotonic() + {seconds}
        while time.monotonic() < until and not pathlib.Path(os.environ["LAB"], "go").exists():
            time.sleep(0.05)

if pathlib.Path(f"/proc/{{os.getppid()}}/comm").read_text().startswith("slurmstepd"):
    task = os.getpid()
    atexit.register(linger)
"""


def let_tasks_linger(lab: Lab, seconds: float) -> None:
    """The process of a task takes so long to end after its last trial is sealed, or until there is a mark `go`."""
    (lab.root / "site" / "sitecustomize.py").write_text(LINGER.format(seconds=seconds))


def states(lab: Lab, cluster: Cluster) -> dict[str, str]:
    """Of every task of the last run, by its number, when Slurm is through with them."""
    name = f"--name=bench-{lab.run_id()}-0001"
    found: dict[str, str] = {}

    def look() -> bool:
        said = cluster.call("squeue", "--noheader", "--array", "--states=all", name, "--format=%K|%T")
        found.update(line.split("|") for line in said.splitlines())
        return bool(found) and set(found.values()) <= calls.ENDED

    wait_until(look, "Slurm to end the jobs")
    return found


def adopted(lab: Lab, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[SlurmExecutor, list[str]]:
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    made = SlurmExecutor(Assignment(run=RunFolder(lab.workspace / ".bench" / "runs" / lab.run_id())))
    return made, list(made.adopt())


@pytest.mark.parametrize("verb", ["run", "collect"])
def test_the_end_of_a_run_does_not_cancel_a_job_that_is_about_to_end(slurm, cluster, verb):
    let_tasks_linger(slurm, 2)
    path = slurm.scenario("once", repetitions=2)
    if verb == "run":
        slurm.bench("run", path)
    else:
        slurm.bench("submit", path)
        wait_until(lambda: len(slurm.folders()) == 2, "two sealed folders")
        slurm.bench("collect", "@last")
    assert json.loads(slurm.bench("status", "@last", "--json").stdout)["state"] == "finished"
    assert states(slurm, cluster) == {"0": "COMPLETED", "1": "COMPLETED"}


def test_a_job_that_has_nothing_to_do_and_does_not_end_is_cancelled(slurm, cluster, monkeypatch):
    let_tasks_linger(slurm, 600)
    slurm.bench("submit", slurm.scenario("once"))
    wait_until(slurm.folders, "a sealed folder")
    made, trials = adopted(slurm, cluster, monkeypatch)
    monkeypatch.setattr(executor, "_END_S", 0.2)
    made.cancel(trials)
    assert states(slurm, cluster) == {"0": "CANCELLED"}
    slurm.is_tidy()


def test_jobs_at_work_are_cancelled_at_once_beside_one_that_may_end_by_itself(slurm, cluster, monkeypatch):
    """The one that may end by itself does so only when the others have been cancelled."""
    let_tasks_linger(slurm, 600)
    slurm.hold(1)
    slurm.bench("submit", slurm.scenario("slow", workload={"seconds": 0}, axes=[{"grid": {"n": [0, 1, 2]}}]))
    wait_until(slurm.folders, "a sealed folder")
    slurm.wait_for_mark("slow-*", 3)
    made, trials = adopted(slurm, cluster, monkeypatch)
    really, told = calls.cancel, []

    def cancel(tasks: list[str]) -> None:
        told.append([task.partition("_")[2] for task in tasks])
        really(tasks)
        Path(slurm.marks, "go").touch()

    monkeypatch.setattr(calls, "cancel", cancel)
    made.cancel(trials)
    assert told == [["1", "2"]]
    assert states(slurm, cluster) == {"0": "COMPLETED", "1": "CANCELLED", "2": "CANCELLED"}
    slurm.is_tidy()
