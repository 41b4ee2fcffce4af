"""On a real Slurm cluster that loses jobs and nodes: every planned trial is in exactly one state at each look."""

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import Cluster, needs_slurm

from benchhouse.api.workspace import Workspace

pytestmark = needs_slurm


@pytest.fixture(scope="module")
def frail() -> Iterator[Cluster]:
    """A cluster of its own: nodes are lost here, which others work on."""
    made = Cluster(Path(tempfile.mkdtemp(prefix="bench-frail-", dir="/tmp")) / "slurm")
    made.folder.parent.chmod(0o755)
    made.start(port=25700)
    if made.unavailable.exists():
        pytest.skip(made.unavailable.read_text())
    yield made
    made.stop()
    made.folder.parent.rmdir()


@pytest.fixture
def run(lab: Lab, frail: Cluster) -> "Run":
    lab.variables["SLURM_CONF"] = frail.conf
    (lab.workspace / "site.yaml").write_text("site: t\nexecutor: slurm\nslurm: {poll: 2s, partition: cpu}\n")
    return Run(lab, frail)


class Run:
    """The last run of a laboratory, looked at from outside."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self.lab, self.cluster = lab, cluster

    def submit(self, trials: int, first_held: int = 0, **more: Any) -> None:
        self.lab.hold(first_held)
        axes = [{"grid": {"n": list(range(trials))}}]
        self.lab.bench("submit", self.lab.scenario("slow", workload={"seconds": 0}, axes=axes, **more))

    def look(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.lab.bench("status", "@last", "--json", code=None).stdout)
        assert sum(status["states"].values()) == status["trials"], status
        assert status["done"] == sum(status["outcomes"].values())
        return status

    def states(self) -> dict[str, int]:
        states: dict[str, int] = self.look()["states"]
        return states

    def collect(self) -> int:
        under_way: int = json.loads(self.lab.bench("collect", "@last", "--json").stdout)["under_way"]
        return under_way

    def tasks(self, state: str) -> list[tuple[str, str]]:
        """Those that Slurm has in that state, each with its node."""
        told = self.cluster.call("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%N|%j").splitlines()
        rows = [row.split("|") for row in told if f"bench-{self.lab.run_id()}-" in row]
        return [(task, node) for task, known, node, _ in rows if known == state]

    def wait_for(self, state: str, count: int) -> list[tuple[str, str]]:
        wait_until(lambda: len(self.tasks(state)) == count, f"{count} tasks that are {state}")
        return self.tasks(state)

    def carry_to_its_end(self) -> None:
        self.lab.release()
        wait_until(self._is_over, "the end of the run")

    def _is_over(self) -> bool:
        self.look()
        return self.collect() == 0


def test_trials_whose_jobs_were_cancelled_stay_in_sight(run: Run) -> None:
    run.submit(5, slurm={"throttle": 2})
    (running, _), _ = run.wait_for("RUNNING", 2)
    wait_until(lambda: run.states() == {"running": 2, "waiting": 3}, "two that run")
    run.cluster.call("scancel", running, run.tasks("PENDING")[-1][0])  # of the second one, Slurm keeps nothing
    run.wait_for("CANCELLED", 1)
    status = run.look()
    assert (status["states"]["cancelled"], status["queue"]["unsealed"]) == (2, {"cancelled": 2})
    assert [item["outcome"] for item in status["failures"]] == ["cancelled"] * 2
    assert all("ended as CANCELLED" in item["reason"] for item in status["failures"])
    assert sum("before it began" in item["reason"] for item in status["failures"]) == 1
    assert "2 to be collected (2 without evidence)" in run.lab.bench("status", "@last", code=1).stdout
    run.collect()
    assert run.states()["cancelled"] == 2
    run.carry_to_its_end()
    assert run.states() == {"cancelled": 2, "succeeded": 3}


def test_a_run_whose_jobs_were_all_cancelled_is_to_be_collected(run: Run) -> None:
    run.submit(2)
    run.wait_for("RUNNING", 2)
    run.cluster.call("scancel", "--name", f"bench-{run.lab.run_id()}-0001")
    run.wait_for("CANCELLED", 2)
    status = run.look()
    assert (status["state"], status["states"]) == ("to be collected", {"cancelled": 2})
    assert status["next"] == f"bench collect {run.lab.run_id()}"
    assert run.collect() == 0
    assert run.states() == {"cancelled": 2}


def test_trials_of_a_lost_node_are_lost_until_they_are_tried_again(run: Run) -> None:
    run.submit(4, slurm={"throttle": 3}, retries={"max_retries": 2, "backoff": "0.1s"})
    node = run.wait_for("RUNNING", 3)[0][1]
    on_it = [task for task, place in run.tasks("RUNNING") if place == node]
    run.cluster.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until(lambda: {task for task, _ in run.tasks("NODE_FAIL")} == set(on_it), "Slurm to give up the node")
    status = run.look()
    assert status["states"]["lost"] == len(on_it) == status["queue"]["unsealed"]["lost"]
    assert not {item["trial_id"] for item in status["failures"]} & set(status["running"])
    assert all("NODE_FAIL" in item["reason"] for item in status["failures"])
    run.collect()
    assert "lost" not in run.states(), "they are on their way again"
    run.carry_to_its_end()
    status = run.look()
    assert (status["states"], status["retries"]) == ({"succeeded": 4}, len(on_it))
    run.lab.is_tidy()


def test_stopping_a_run_writes_down_what_had_ended(run: Run) -> None:
    run.submit(4, first_held=1)
    running = [task for task, _ in run.wait_for("RUNNING", 3)]
    wait_until(run.lab.folders, "a sealed folder")
    run.cluster.call("scancel", running[0])
    run.wait_for("CANCELLED", 1)
    run.lab.bench("stop", "@last")
    assert run.states() == {"succeeded": 1, "cancelled": 3}
    reasons = sorted(item["reason"].partition(" ")[0] for item in run.look()["failures"])
    assert reasons == ["bench", "bench", "job"]
    assert json.loads(run.lab.bench("collect", "@last", "--json").stdout)["trials"] == 1


def test_an_interrupted_run_begins_nothing_more(run: Run) -> None:
    """Two of its three trials were not even submitted when it was interrupted: the site takes one job at a time."""
    (run.lab.workspace / "site.yaml").write_text("site: t\nexecutor: slurm\nslurm: {partition: cpu, max_jobs: 1}\n")
    run.lab.hold(0)
    process = run.lab.start("run", run.lab.scenario("slow", workload={"seconds": 0}, repetitions=3))
    run.lab.wait_for_mark("slow-*")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert run.states() == {"cancelled": 1, "not begun": 2}
    assert run.collect() == 0
    assert not run.tasks("RUNNING") and not run.tasks("PENDING")
    assert (run.look()["state"], run.states()) == ("interrupted", {"cancelled": 1, "not begun": 2})
    run.lab.release()
    run.lab.bench("run", "--resume", "@last")
    assert run.states() == {"succeeded": 3}


def test_waiting_for_a_run_goes_on_until_all_that_is_needed_is_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    until = {"until": {"ci": "90%", "metric": "peak_rss_mb", "min": 3, "max": 6}}
    work = {"target": {"argv": ["true"]}, "workload": {"executions": 1}, "monitors": False}
    run.lab.bench("submit", run.lab.scenario("command", repetitions=until, **work))
    assert run.states().get("not begun") == 3
    monkeypatch.setenv("SLURM_CONF", run.cluster.conf)
    monkeypatch.setenv("BENCH_CACHE_DIR", run.lab.environment()["BENCH_CACHE_DIR"])
    Workspace(run.lab.workspace)["@last"].wait(0.2)
    assert run.states() == {"succeeded": 5, "not needed": 1}


def test_the_time_of_a_run_counts_from_its_submission_and_ends_its_jobs(run: Run) -> None:
    run.submit(2, budget={"wall": "2s"})
    run.wait_for("RUNNING", 2)
    wait_until(lambda: run.collect() == 0, "the end of the budget")  # as a cron job would look
    status = run.look()
    assert (status["state"], status["stopped_by"]) == ("interrupted", "budget")
    assert status["states"] == {"cancelled": 2}
    assert not run.tasks("RUNNING")
    run.lab.is_tidy()
