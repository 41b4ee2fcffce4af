"""`bench status`, from the ledger alone."""

import json


def test_runs_are_listed_newest_first(lab):
    lab.run("once")
    lab.run("once", name="other", workload={"n": [0, 1]})
    rows = json.loads(lab.bench("status", "--json").stdout)
    assert [(row["scenario"], row["state"], row["done"]) for row in rows] == [
        ("other", "finished", 2),
        ("s", "finished", 1),
    ]
    assert "no runs in" in lab.bench("-C", lab.root / "tmp", "status").stderr


def test_a_running_run_shows_its_process_and_trials(lab):
    lab.hold(0)
    process = lab.start("run", lab.scenario("slow", workload={"seconds": 0, "n": [0, 1]}))
    lab.wait_for_mark("slow-0-*")
    state = json.loads(lab.bench("status", "@last", "--json").stdout)
    assert (state["state"], state["owner_pid"], state["done"]) == ("running", process.pid, 0)
    assert state["running"]
    assert state["next"].endswith("--watch")
    process.kill()
    process.wait()
    state = json.loads(lab.bench("status", "s", "--json").stdout)
    assert (state["state"], state["owner_pid"]) == ("interrupted", None)
    assert state["next"] == f"bench run --resume {lab.run_id()}"


def test_watch_ends_with_the_run_and_failures_have_their_exit_code(lab):
    (lab.marks / "bad").touch()
    process = lab.start("run", lab.scenario("once", workload={"n": [0, 1]}))
    process.wait(120)
    done = lab.bench("status", "@last", "--watch", code=1)
    assert "failed: the file is there" in done.stdout


def test_trying_again_is_offered_only_where_it_can_help(lab):
    bad = lab.scenario("command", target={"argv": ["true"]}, workload={"values": {"level": 1}})
    done = lab.bench("run", bad, code=1)
    assert "unused_value" in done.stderr
    assert f"next:  mend the scenario, then:  bench run {bad}" in done.stderr
    assert "--rerun-failed" not in done.stderr + lab.bench("status", "@last", code=1).stderr
    done = lab.bench("run", lab.scenario("command", target={"argv": ["false"]}), code=1)
    assert f"next:  bench run --resume {lab.run_id()} --rerun-failed" in done.stderr


def test_unknown_runs_are_told(lab):
    assert "there is no run in this workspace yet" in lab.bench("status", "x", code=2).stderr
    lab.run("once")
    assert "no run 'x'" in lab.bench("status", "x", code=2).stderr
    assert "this workspace has 1" in lab.bench("status", "@last-3", code=2).stderr
