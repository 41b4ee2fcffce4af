"""Whichever executor ran it: the same outcomes, the same evidence, the same digests, and nothing left behind."""

import json
import os
import signal

import pytest
from executors.conformance import OUTCOMES, PLACES, SWEEP, Place
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster

from benchhouse.schema.trial import Instance

pytestmark = pytest.mark.timeout(900)  # a run is started up to four times, and each may start a cluster of its own


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param(request)
    return found


@pytest.mark.slow("clusters start an interpreter or a JVM for each trial")
def test_one_run_with_every_ending_has_the_same_outcomes_and_evidence(place: Place, lab: Lab):
    done = place.furnish(lab).bench("run", lab.scenario("mischief", **SWEEP), "--json", code=1, timeout_s=400)
    summary, trials, events = json.loads(done.stdout), lab.by("act"), lab.events()

    # Every ending has the same name, and a killed worker costs only its own trial, which is tried again.
    assert {act: trial.outcome for act, trial in trials.items()} == OUTCOMES
    assert summary["outcomes"]["lost"] == 1
    assert not summary["complete"]
    lost = [event for event in events if event["event"] == "ended" and event["outcome"] == "lost"]
    assert [event["attempt"] for event in lost] == [1, 2, 3]
    assert all(event["reason"] for event in lost)
    assert [item["outcome"] for item in trials["flaky"].meta["attempts"]] == ["failed", "failed", "succeeded"]

    # The evidence holds logs and tracebacks, and names the limit that ended a trial.
    assert "last words on stdout" in trials["raise"].stdout()
    assert "loud_error" in trials["raise"].meta["failure"]["traceback"]
    assert trials["raise"].code == "ValueError"
    assert trials["stubborn"].code == "wall_limit"
    assert trials["fill"].code == "memory_limit"
    assert trials["fill"].meta["limits"]["asked"] == {"wall": 10.0, "memory": 300_000_000}

    # The evidence names the place of a trial, and no digest depends on it.
    for act, trial in trials.items():
        placed = trial.meta["placed"]
        assert placed["executor"] == trial.spec["executor"] == place.name
        assert placed["node"]
        assert trial.meta["attempts"][-1]["job"] == placed.get("id")
        bound = Instance(experiment="mischief", version="1.0", target={}, parameters={"act": act, "n": 0})
        assert trial.spec["instance_digest"] == bound.digest()
    plan = json.loads(lab.bench("plan", "s.yaml", "--json", "--executor", "local").stdout)
    assert {trial.spec["plan_digest"] for trial in trials.values()} == {plan["plan_digest"]}

    # Nothing is left of trials that left daemons.
    lab.is_tidy()


@pytest.mark.slow("clusters start an interpreter or a JVM for each trial")
def test_a_run_that_was_interrupted_and_then_killed_is_resumed_to_its_end(place: Place, lab: Lab):
    lab.hold(1)
    scenario = place.furnish(lab).scenario("slow", workload={"seconds": 0, "n": [0, 1, 2]})
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial", 240)
    os.kill(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=240)
    assert process.returncode == 130, messages
    assert "bench run --resume" in messages
    status = json.loads(lab.bench("status", "@last", "--json", code=None).stdout)
    assert (status["state"], status["next"]) == ("interrupted", f"bench run --resume {lab.run_id()}")
    assert sum(status["states"].values()) == 3
    lab.is_tidy()

    for mark in lab.marks.glob("slow-[12]-*"):
        mark.unlink()
    resumed = lab.start("run", "--resume", "@last")
    lab.wait_for_mark("slow-[12]-*")
    resumed.kill()
    resumed.wait()
    if place.ends_at_once:
        wait_until(lambda: not lab.left_running(), "everything to end by itself", 240)
    lab.release()
    lab.bench("run", "--resume", "@last", timeout_s=400)
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 3
    lab.is_tidy()


def test_a_request_that_no_node_can_satisfy_is_refused_at_once(place: Place, lab: Lab):
    done = place.furnish(lab).bench("run", lab.scenario("once", resources={"cpus": 5000}), code=2)
    assert "ask for less under resources:" in done.stderr
    assert not lab.folders()
