"""On a real Slurm cluster that loses jobs and nodes: every planned trial is in exactly one state at each look."""

import json
import signal
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import Cluster, collect, collect_until_done, needs_slurm, status, submit, use_cluster

from benchhouse.api.workspace import Workspace

pytestmark = needs_slurm


@pytest.fixture(scope="module")
def frail() -> Iterator[Cluster]:
    """A cluster for this file alone, because its nodes are lost."""
    made = Cluster(Path(tempfile.mkdtemp(prefix="bench-frail-", dir="/tmp")) / "slurm")
    made.folder.parent.chmod(0o755)
    made.start(port=25700)
    if made.unavailable.exists():
        pytest.skip(made.unavailable.read_text())
    yield made
    made.stop()
    made.folder.parent.rmdir()


@pytest.fixture
def slurm(lab: Lab, frail: Cluster) -> Lab:
    return use_cluster(lab, frail, "cpu")


def held_trials(lab: Lab, trials: int, first_held: int = 0, **more: Any) -> None:
    """Submit trials that run until the laboratory releases them, from the one with that number on."""
    lab.hold(first_held)
    submit(lab, lab.scenario("slow", workload={"seconds": 0, "n": list(range(trials))}, **more))


def look(lab: Lab) -> dict[str, Any]:
    found = status(lab)
    assert sum(found["states"].values()) == found["trials"], found
    assert found["done"] == sum(found["outcomes"].values())
    return found


@pytest.mark.slow("Slurm ends and forgets cancelled jobs at its own pace")
def test_trials_whose_jobs_were_cancelled_stay_in_sight(slurm, frail):
    held_trials(slurm, 6, first_held=1, slurm={"throttle": 3})
    run = slurm.run_id()
    wait_until(slurm.folders, "a sealed folder")
    frail.wait_for_tasks(run, "COMPLETED", 1)  # until then Slurm shows the task of that folder as running
    running = frail.wait_for_tasks(run, "RUNNING", 3)
    wait_until(lambda: look(slurm)["states"] == {"succeeded": 1, "running": 3, "waiting": 2}, "three that run")
    frail.call("scancel", running[0], frail.tasks_in(run, "PENDING")[-1])  # Slurm forgets the second one at once
    frail.wait_for_tasks(run, "CANCELLED", 1)
    found = look(slurm)
    assert (found["states"]["cancelled"], found["queue"]["unsealed"]) == (2, {"cancelled": 2})
    assert [item["outcome"] for item in found["failures"]] == ["cancelled"] * 2
    reasons = [item["reason"] for item in found["failures"]]
    assert all("ended as CANCELLED" in reason for reason in reasons)
    assert sum("before it began" in reason for reason in reasons) == 1
    assert collect(slurm)["under_way"] == 3
    assert look(slurm)["states"]["cancelled"] == 2

    frail.call("scancel", "--name", f"bench-{run}-0001")
    wait_until(lambda: not frail.jobs(run), "the end of all jobs")
    found = look(slurm)
    assert (found["state"], found["next"]) == ("to be collected", f"bench collect {run}")
    assert found["states"] == {"succeeded": 1, "cancelled": 5}
    assert collect(slurm)["under_way"] == 0
    assert look(slurm)["states"] == {"succeeded": 1, "cancelled": 5}
    slurm.is_tidy()


def test_trials_of_a_lost_node_are_lost_until_they_are_tried_again(slurm, frail):
    held_trials(slurm, 4, slurm={"throttle": 3}, retries={"max_retries": 2, "backoff": "0.1s"})
    run = slurm.run_id()
    frail.wait_for_tasks(run, "RUNNING", 3)
    node = frail.tasks(run)[frail.tasks_in(run, "RUNNING")[0]][1]
    on_it = {task for task, place in frail.tasks(run).items() if place == ("RUNNING", node)}
    frail.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until(lambda: set(frail.tasks_in(run, "NODE_FAIL")) == on_it, "Slurm to give up the node")
    found = look(slurm)
    assert found["states"]["lost"] == len(on_it) == found["queue"]["unsealed"]["lost"]
    assert not {item["trial_id"] for item in found["failures"]} & set(found["running"])
    assert all("NODE_FAIL" in item["reason"] for item in found["failures"])
    collect(slurm)
    assert "lost" not in look(slurm)["states"], "they are submitted again"
    slurm.release()
    collect_until_done(slurm, frail)
    found = look(slurm)
    assert (found["states"], found["retries"]) == ({"succeeded": 4}, len(on_it))
    slurm.is_tidy()


def test_an_interrupted_run_begins_nothing_more(slurm, frail):
    """Two of its three trials were not even submitted when it was interrupted: the site takes one job at a time."""
    use_cluster(slurm, frail, "cpu", slurm={"max_jobs": 1})
    slurm.hold(0)
    process = slurm.start("run", slurm.scenario("slow", workload={"seconds": 0}, repetitions=3))
    slurm.wait_for_mark("slow-*")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert look(slurm)["states"] == {"cancelled": 1, "not begun": 2}
    assert collect(slurm)["under_way"] == 0
    assert not frail.jobs(slurm.run_id())
    found = look(slurm)
    assert (found["state"], found["states"]) == ("interrupted", {"cancelled": 1, "not begun": 2})
    slurm.is_tidy()


def test_repetitions_until_sure_take_one_submission_a_look(slurm, frail, monkeypatch):
    until = {"until": {"ci": "90%", "metric": "peak_rss_mb", "min": 3, "max": 6}}
    work = {"target": {"argv": ["true"]}, "workload": {"executions": 1}, "monitors": False}
    assert submit(slurm, slurm.scenario("command", repetitions=until, **work))["under_way"] == 3
    assert look(slurm)["states"].get("not begun") == 3
    monkeypatch.setenv("SLURM_CONF", frail.conf)
    monkeypatch.setenv("BENCH_CACHE_DIR", slurm.environment()["BENCH_CACHE_DIR"])
    Workspace(slurm.workspace)["@last"].wait(0.2)
    assert look(slurm)["states"] == {"succeeded": 5, "not needed": 1}
    submissions = (slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.sh")
    assert len(list(submissions)) == 2, "one for the first three trials, and one for those that confirm"


def test_the_time_of_a_run_counts_from_its_submission_and_ends_its_jobs(slurm, frail):
    held_trials(slurm, 2, budget={"wall": "1h"})
    run = slurm.run_id()
    frail.wait_for_tasks(run, "RUNNING", 2)
    record = slurm.workspace / ".bench" / "runs" / run / "events.jsonl"
    events = [json.loads(line) for line in record.read_text().splitlines()]
    for event in events:
        event["time"] = (datetime.fromisoformat(event["time"]) - timedelta(hours=1)).isoformat()
    record.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert collect(slurm)["under_way"] == 0
    found = look(slurm)
    assert (found["state"], found["stopped_by"], found["states"]) == ("interrupted", "budget", {"cancelled": 2})
    assert not frail.jobs(run)
    slurm.is_tidy()
