"""`bench submit` returns at once, and the run goes on by itself."""

import json

from laboratory import wait_until


def test_a_submitted_run_goes_on_in_the_background(lab):
    lab.hold(0)
    lab.scenario("slow", workload={"seconds": 0, "n": [0, 1]})
    shown = json.loads(lab.bench("submit", "-c", "s.yaml", "--json").stdout)
    state = json.loads(lab.bench("status", shown["run_id"], "--json").stdout)
    assert (state["state"], state["owner_pid"]) == ("running", shown["pid"])
    lab.release()
    wait_until(lambda: [item["event"] for item in lab.events()][-1:] == ["finished"], "the run to finish")
    wait_until(lambda: not lab.left_running(), "its process to end")
    assert len(lab.trials()) == 2
    lab.is_tidy()


def test_a_submitted_run_can_be_stopped_and_resumed(lab):
    lab.hold(1)
    lab.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2]})
    lab.bench("submit", "s.yaml")
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial")
    lab.bench("stop", "@last")
    lab.release()
    lab.bench("run", "s.yaml")
    assert len(lab.trials()) == 3
    lab.is_tidy()


def test_a_scenario_is_needed(lab):
    assert "bench submit -c SCENARIO.yaml" in lab.bench("submit", code=2).stderr
