"""`bench status`, from the ledger alone."""

import json

from laboratory import wait_until
from shared_workspaces import copy_workspace


def test_runs_are_listed_newest_first(lab_with_run):
    lab = lab_with_run
    lab.run("once", name="other")
    listed = json.loads(lab.bench("status", "--json").stdout)
    rows = listed["runs"]
    assert listed["shared"] == []
    assert [(row["scenario"], row["state"], row["done"]) for row in rows] == [
        ("other", "finished", 1),
        ("s", "finished", 2),
    ]
    assert "no runs in" in lab.bench("-C", lab.root / "tmp", "status").stderr


def test_a_run_is_shown_while_it_is_running_after_a_kill_and_once_it_is_resumed(lab):
    def status():
        found = json.loads(lab.bench("status", "@last", "--json", code=None).stdout)
        assert sum(found["states"].values()) == found["trials"] == 3, "each planned trial is in one state"
        return found

    lab.hold(1)
    process = lab.start("run", lab.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2]}))
    lab.wait_for_mark("slow-1-*")
    wait_until(lambda: status()["states"] == {"succeeded": 1, "running": 1, "not begun": 1}, "one of each")
    found = status()
    assert (found["state"], found["owner_pid"], found["done"]) == ("running", process.pid, 1)
    assert found["running"] and found["next"].endswith("--watch")
    assert "1 of 3: 1 succeeded; 1 not begun, 1 running" in lab.bench("status", "@last").stdout
    process.kill()
    process.wait()
    found = status()
    assert (found["state"], found["owner_pid"]) == ("interrupted", None)
    assert found["states"] == {"succeeded": 1, "not begun": 2}
    assert found["next"] == f"bench run --resume {lab.run_id()}"
    lab.release()
    lab.bench("run", "--resume", "@last")
    assert status()["states"] == {"succeeded": 3}


def test_a_resumed_run_counts_a_cancelled_trial_as_not_begun(lab_with_run):
    """As after `bench stop` and `bench run --resume` on a cluster: cancelled, and not yet begun again."""
    lab = lab_with_run
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


def test_failed_trials_set_the_exit_code_and_are_listed_up_to_a_limit(lab):
    done = lab.bench("run", lab.scenario("command", target={"argv": ["false"]}, repetitions=7), code=1)
    assert f"next:  bench run --resume {lab.run_id()} --rerun-failed" in done.stderr
    shown = lab.bench("status", "@last", "--watch", code=1).stdout  # the run has ended, so watching it ends
    assert shown.count("failed     ") == 5
    assert "and 2 more: --json" in shown


def test_a_failure_that_a_second_attempt_cannot_mend_is_not_offered_one(lab):
    bad = lab.scenario("command", target={"argv": ["true"]}, workload={"values": {"level": 1}})
    done = lab.bench("run", bad, code=1)
    assert "unused_value" in done.stderr
    assert f"bench run {bad}" in done.stderr
    assert "--rerun-failed" not in done.stderr + lab.bench("status", "@last", code=1).stderr


def test_events_and_runs_of_a_newer_version_are_reported_as_not_read(lab_with_run):
    lab = lab_with_run
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


def test_an_unknown_run_is_bad_input(lab, once_workspace):
    assert "there is no run in this workspace yet" in lab.bench("status", "x", code=2).stderr
    copy_workspace(once_workspace, lab.workspace)
    assert "no run 'x'" in lab.bench("status", "x", code=2).stderr
    assert "this workspace has 1" in lab.bench("status", "@last-3", code=2).stderr
