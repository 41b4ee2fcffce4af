"""`bench status`, from the ledger alone."""

import json

from laboratory import wait_until


def test_runs_are_listed_newest_first(lab):
    lab.run("once")
    lab.run("once", name="other", workload={"n": [0, 1]})
    listed = json.loads(lab.bench("status", "--json").stdout)
    rows = listed["runs"]
    assert listed["shared"] == []
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


def test_every_planned_trial_is_in_one_state(lab):
    def states():
        status = json.loads(lab.bench("status", "@last", "--json", code=None).stdout)
        assert sum(status["states"].values()) == status["trials"] == 3
        return status["states"]

    lab.hold(1)
    process = lab.start("run", lab.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2]}))
    lab.wait_for_mark("slow-1-*")
    wait_until(lambda: states() == {"succeeded": 1, "running": 1, "not begun": 1}, "one of each")
    assert "1 of 3: 1 succeeded; 1 not begun, 1 running" in lab.bench("status", "@last").stdout
    process.kill()
    process.wait()
    assert states() == {"succeeded": 1, "not begun": 2}
    lab.release()
    lab.bench("run", "--resume", "@last")
    assert states() == {"succeeded": 3}


def test_a_trial_that_is_tried_anew_is_no_longer_in_its_old_state(lab):
    """As after `bench stop` and `bench run --resume` on a cluster: cancelled, and not yet begun again."""
    lab.run("once", workload={"n": [0, 1]})
    events = lab.workspace / ".bench" / "runs" / lab.run_id() / "events.jsonl"
    ended = [json.loads(line) for line in events.read_text().splitlines() if '"ended"' in line]
    again = {"time": ended[0]["time"], "event": "ended", "trial_id": ended[0]["trial_id"], "attempt": 2}
    with events.open("a") as file:
        file.write(json.dumps(again | {"outcome": "cancelled"}) + "\n")
    status = json.loads(lab.bench("status", "@last", "--json", code=1).stdout)
    assert status["states"] == {"cancelled": 1, "succeeded": 1}
    with events.open("a") as file:
        file.write(json.dumps({"time": ended[0]["time"], "event": "resumed"}) + "\n")
    status = json.loads(lab.bench("status", "@last", "--json").stdout)
    assert (status["states"], status["done"]) == ({"succeeded": 1, "not begun": 1}, 1)


def test_watch_ends_with_the_run_and_failures_have_their_exit_code(lab):
    (lab.marks / "bad").touch()
    process = lab.start("run", lab.scenario("once", workload={"n": [0, 1]}))
    process.wait(120)
    done = lab.bench("status", "@last", "--watch", code=1)
    assert "failed: the file is there" in done.stdout


def test_lists_that_are_cut_say_how_many_more_there_are(lab):
    lab.bench("run", lab.scenario("command", target={"argv": ["false"]}, repetitions=8), code=1)
    shown = lab.bench("status", "@last", code=1).stdout
    assert shown.count("failed     ") == 5
    assert "and 3 more: --json names them all" in shown


def test_trying_again_is_offered_only_where_it_can_help(lab):
    bad = lab.scenario("command", target={"argv": ["true"]}, workload={"values": {"level": 1}})
    done = lab.bench("run", bad, code=1)
    assert "unused_value" in done.stderr
    assert f"next:  mend the scenario, then:  bench run {bad}" in done.stderr
    assert "--rerun-failed" not in done.stderr + lab.bench("status", "@last", code=1).stderr
    done = lab.bench("run", lab.scenario("command", target={"argv": ["false"]}), code=1)
    assert f"next:  bench run --resume {lab.run_id()} --rerun-failed" in done.stderr


def test_what_a_newer_version_wrote_and_this_one_can_not_read_is_told(lab):
    lab.run("once")
    run, folder = lab.run_id(), lab.workspace / ".bench" / "runs" / lab.run_id()
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"time": "2026-01-01T00:00", "event": "archived"}\n')
    for asked in (["status"], ["status", run], ["collect", run]):
        assert f"{run}: 1 event of a newer version not read" in lab.bench(*asked).stderr
    assert json.loads(lab.bench("status", run, "--json").stdout)["unread_events"] == 1
    assert json.loads(lab.bench("collect", run, "--json").stdout)["unread_events"] == 1
    record = json.loads((folder / "run.json").read_text())
    other = folder.with_name("20990101-000000-0000000")
    other.mkdir()
    (other / "run.json").write_text(json.dumps(record | {"weather": "fine"}))
    listed = lab.bench("status", code=1)
    assert run in listed.stdout and "not listed:" in listed.stderr and "weather" in listed.stderr
    assert "use the version that wrote it" in lab.bench("status", other.name, code=2).stderr


def test_unknown_runs_are_told(lab):
    assert "there is no run in this workspace yet" in lab.bench("status", "x", code=2).stderr
    lab.run("once")
    assert "no run 'x'" in lab.bench("status", "x", code=2).stderr
    assert "this workspace has 1" in lab.bench("status", "@last-3", code=2).stderr
