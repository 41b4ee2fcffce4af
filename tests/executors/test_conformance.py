"""Whichever executor ran it: the same outcomes, the same evidence, the same digests, and nothing left behind."""

import json
import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest
from executors.conformance import OUTCOMES, PLACES, SWEEP, Place
from laboratory import Lab, Trial, wait_until
from services.slurm_cluster import cluster as cluster

from benchhouse.schema.trial import Instance


@dataclass
class Swept:
    """One run of all that can happen to a trial."""

    lab: Lab
    said: dict[str, Any]
    by: dict[str, Trial]
    events: list[dict[str, Any]]


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param(request)
    return found


@pytest.fixture(scope="module")
def swept(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    lab = place.furnish(Lab(tmp_path_factory.mktemp(place.name)))
    done = lab.bench("run", lab.scenario("mischief", **SWEEP), "--json", code=1, timeout_s=400)
    return Swept(lab, json.loads(done.stdout), lab.by("act"), lab.events())


def test_every_end_has_the_same_name(swept: Swept):
    assert {act: trial.outcome for act, trial in swept.by.items()} == OUTCOMES
    assert swept.said["outcomes"]["lost"] == 1
    assert not swept.said["complete"]


def test_a_killed_worker_costs_its_trial_only_and_is_tried_again(swept: Swept):
    lost = [event for event in swept.events if event["event"] == "ended" and event["outcome"] == "lost"]
    assert [event["attempt"] for event in lost] == [1, 2, 3]
    assert all(event["reason"] for event in lost)


def test_attempts_are_in_the_evidence(swept: Swept):
    tried = swept.by["flaky"].meta["attempts"]
    assert [item["outcome"] for item in tried] == ["failed", "failed", "succeeded"]


def test_logs_and_tracebacks_are_in_the_evidence(swept: Swept):
    failed = swept.by["raise"]
    assert "last words on stdout" in failed.stdout()
    assert "loud_error" in failed.meta["failure"]["traceback"]
    assert failed.code == "ValueError"


def test_limits_name_what_enforced_them(swept: Swept):
    assert swept.by["stubborn"].code == "wall_limit"
    assert swept.by["fill"].code == "memory_limit"
    assert swept.by["fill"].meta["limits"]["asked"] == {"wall": 10.0, "memory": 300_000_000}


def test_evidence_says_where_it_was_made(swept: Swept, place: Place):
    for trial in swept.by.values():
        placed = trial.meta["placed"]
        assert placed["executor"] == trial.spec["executor"] == place.name
        assert placed["node"]
        assert trial.meta["attempts"][-1]["job"] == placed.get("id")


def test_digests_don_t_depend_on_the_executor(swept: Swept):
    plan = json.loads(swept.lab.bench("plan", "s.yaml", "--json", "--executor", "local").stdout)
    assert {trial.spec["plan_digest"] for trial in swept.by.values()} == {plan["plan_digest"]}
    for act, trial in swept.by.items():
        bound = Instance(experiment="mischief", version="1.0", target={}, parameters={"act": act, "n": 0})
        assert trial.spec["instance_digest"] == bound.digest()


def test_nothing_is_left_of_trials_that_left_daemons(swept: Swept):
    swept.lab.is_tidy()


def test_what_no_node_can_give_is_refused_at_once(place: Place, lab: Lab):
    done = place.furnish(lab).bench("run", lab.scenario("once", resources={"cpus": 5000}), code=2)
    assert "ask for less under resources:" in done.stderr
    assert not lab.folders()


def test_ctrl_c_ends_everything_and_resume_finishes(place: Place, lab: Lab):
    lab.hold(1)
    scenario = place.furnish(lab).scenario("slow", workload={"seconds": 0, "n": [0, 1, 2]})
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial", 240)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 130, said
    assert "bench run --resume" in said
    status = json.loads(lab.bench("status", "@last", "--json", code=None).stdout)
    assert (status["state"], status["next"]) == ("interrupted", f"bench run --resume {lab.run_id()}")
    assert sum(status["states"].values()) == 3
    lab.is_tidy()
    lab.release()
    lab.bench("run", "--resume", "@last", timeout_s=400)
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 3


def test_a_killed_orchestrator_leaves_nothing_running(place: Place, lab: Lab):
    if place.outlives:
        pytest.skip("its jobs go on without us, and that is what it is for")
    process = place.furnish(lab).start("run", lab.scenario("slow", workload={"seconds": 600}))
    lab.wait_for_mark("slow-*")
    process.kill()
    process.wait()
    wait_until(lambda: not lab.left_running(), "everything to end by itself", 240)
