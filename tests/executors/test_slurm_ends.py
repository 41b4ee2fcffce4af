"""On a real Slurm cluster: a task that has done all its work ends without being cancelled."""

from collections.abc import Sequence

from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm, submit
from services.slurm_cluster import slurm as slurm

from benchhouse.executors import slurm as executor
from benchhouse.executors import slurm_calls as calls
from benchhouse.executors.slurm import SlurmExecutor
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment

pytestmark = needs_slurm
SLOW_TO_END = """
import atexit, os, pathlib, signal, time

def wait():
    if os.getpid() == task:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        go = pathlib.Path(os.environ["LAB"], "go-" + os.environ["SLURM_ARRAY_TASK_ID"])
        while not go.exists():
            time.sleep(0.05)

if pathlib.Path(f"/proc/{os.getppid()}/comm").read_text().startswith("slurmstepd"):
    task = os.getpid()
    atexit.register(wait)
"""


def test_only_tasks_that_work_or_do_not_end_are_cancelled(slurm: Lab, cluster, monkeypatch):
    """Tasks 0 and 1 have sealed their trials; 0 ends once the tasks at work are cancelled, and 1 does not end."""
    (slurm.root / "site" / "sitecustomize.py").write_text(SLOW_TO_END)
    slurm.hold(2)
    submit(slurm, slurm.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2, 3]}))
    wait_until(lambda: len(slurm.folders()) == 2, "two sealed folders")
    slurm.wait_for_mark("slow-*", 4)
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    run = slurm.run_id()
    made = SlurmExecutor(Assignment(run=RunFolder(slurm.workspace / ".bench" / "runs" / run)))
    really, cancelled = calls.cancel, []

    def cancel(tasks: Sequence[str]) -> None:
        cancelled.append(sorted(task.partition("_")[2] for task in tasks))
        really(tasks)
        if cancelled == [["2", "3"]]:
            (slurm.marks / "go-0").touch()
            wait_until(lambda: cluster.tasks_in(run, "COMPLETED"), "the end of task 0")
            monkeypatch.setattr(executor, "_END_S", 0.0)

    monkeypatch.setattr(calls, "cancel", cancel)
    made.cancel(list(made.adopt()))
    assert [tasks for tasks in cancelled if tasks] == [["2", "3"], ["1"]]
    states = {task.partition("_")[2]: state for task, (state, _) in cluster.tasks(run).items()}
    assert states == {"0": "COMPLETED", "1": "CANCELLED", "2": "CANCELLED", "3": "CANCELLED"}
    slurm.is_tidy()
