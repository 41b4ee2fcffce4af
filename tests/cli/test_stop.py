"""`bench stop` ends a run and everything it started."""

import json

from laboratory import wait_until


def test_a_running_run_is_stopped_with_all_it_started(lab):
    process = lab.start("run", lab.scenario("mischief", workload={"act": ["stubborn", "ok"]}))
    wait_until(lambda: len(lab.left_running()) >= 6, "a stubborn family")
    done = lab.bench("stop", "@last", "--json")
    assert json.loads(done.stdout)["stopped_pid"] == process.pid
    assert process.wait(120) == 130
    lab.is_tidy()
    assert lab.events()[-1]["event"] == "interrupted"


def test_a_run_that_does_not_run_is_only_swept(lab_with_run):
    lab = lab_with_run
    done = lab.bench("stop", "@last")
    assert "was not running" in done.stdout
    assert done.stderr == f"next:  bench report {lab.run_id()}\n"
