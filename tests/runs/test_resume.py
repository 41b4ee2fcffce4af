"""Killed, interrupted, resumed: what is sealed stays, what is missing is run, nothing else is."""

import hashlib
import json
import os
import signal
import subprocess
import time

from laboratory import chain, wait_until

from benchhouse.processes.tree import alive

SWEEP = {"workload": {"n": list(range(6)), "seconds": 0}, "parallel": 2}


def manifests(lab):
    return {path.name: hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest() for path in lab.folders()}


def started(lab):
    """How often each trial began: a mark a trial would hide a second start, so look at the ledger's attempts."""
    return [event["trial_id"] for event in lab.events() if event["event"] == "ended"]


def test_a_second_run_starts_afresh_and_a_resumed_finished_run_does_nothing(lab):
    lab.run("once", workload={"n": [0, 1]})
    first, before = lab.run_id(), manifests(lab)
    lab.bench("run", "--resume", first)
    assert manifests(lab) == before
    lab.bench("run", "s.yaml")
    assert lab.run_id() != first
    assert len(lab.trials()) == 4


def test_rerun_failed_runs_only_the_failed_trials_and_keeps_their_attempts(lab):
    (lab.marks / "bad").touch()
    lab.run("once", code=1, workload={"n": [0, 1, 2, 3]})
    before = manifests(lab)
    good = {trial.folder.name for trial in lab.trials() if trial.outcome == "succeeded"}
    done = lab.bench("run", "--resume", "@last", code=1)
    assert manifests(lab) == before
    assert "--rerun-failed" in done.stderr
    lab.bench("run", "--resume", "@last", "--rerun-failed", code=1)
    (lab.marks / "bad").unlink()
    lab.bench("run", "s.yaml", "--rerun-failed")
    after = manifests(lab)
    assert {name: after[name] for name in good} == {name: before[name] for name in good}
    again = [trial for trial in lab.trials() if trial.folder.name not in good]
    outcomes = [[item["outcome"] for item in trial.meta["attempts"]] for trial in again]
    assert outcomes == [["failed", "failed", "succeeded"]] * 2
    assert [len(list(folder.parent.glob(f"{folder.name}.attempt-*"))) for folder in (t.folder for t in again)] == [2, 2]
    assert json.loads(lab.bench("verify", "@last", "--json").stdout)["damage"] == []
    lab.is_tidy()


def test_new_starts_a_new_run_while_another_is_unfinished(lab):
    lab.run("once", code=1, workload={"n": [0, 1]}, budget={"trials": 1})
    first = lab.run_id()
    lab.bench("run", "s.yaml", "--new", code=1)
    assert lab.run_id() != first


def test_a_second_orchestrator_of_a_run_is_refused(lab):
    scenario = lab.scenario("slow", workload={"seconds": 60})
    first = lab.start("run", scenario)
    lab.wait_for_mark("slow-*")
    second = lab.bench("run", scenario, code=2)
    assert f"being worked on by process {first.pid}" in second.stderr
    assert "bench stop" in second.stderr
    submitted = lab.bench("submit", scenario, code=2)
    assert "being worked on by process" in submitted.stderr
    lab.bench("stop", "@last")
    assert first.wait(120) == 130
    lab.is_tidy()


def test_two_runs_of_one_scenario_at_once_leave_each_other_alone(lab):
    scenario = lab.scenario("slow", workload={"seconds": 1, "n": [0, 1]})
    first = lab.start("run", scenario)
    lab.wait_for_mark("slow-0-*")
    lab.bench("run", scenario, "--new")
    assert first.wait(120) == 0
    assert len(lab.trials()) == 4
    assert all(len(trial.meta["attempts"]) == 1 for trial in lab.trials())
    lab.is_tidy()


def test_kill_9_of_the_orchestrator_loses_nothing_that_is_finished_and_resume_runs_the_rest(lab):
    lab.hold(2)
    scenario = lab.scenario("slow", **SWEEP)
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 2, "two sealed trials")
    chain(process.pid)  # until trials run
    before = manifests(lab)
    process.kill()
    process.wait()
    lab.release()
    resumed = lab.bench("run", scenario)  # while the host of the killed run still ends its trials
    assert "resuming run" in resumed.stderr
    after = manifests(lab)
    assert {name: after.get(name) for name in before} == before
    assert sorted(trial.spec["parameters"]["n"] for trial in lab.trials()) == list(range(6))
    assert {trial.outcome for trial in lab.trials()} == {"succeeded"}
    lab.is_tidy()


def test_a_run_survives_kill_9_of_an_experiment_a_worker_and_its_host(lab):
    """One after the other, each while two trials run."""
    lab.hold(2)
    process = lab.start("run", lab.scenario("slow", **SWEEP, retries={"max_retries": 5, "backoff": 0.05}))
    wait_until(lambda: len(lab.folders()) >= 2, "two sealed trials")
    before = manifests(lab)
    for victim in (2, 1, 0):
        pid = chain(process.pid)[victim]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid, None), "its end")
    lab.release()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    after = manifests(lab)
    assert {name: after.get(name) for name in before} == before
    assert sorted(trial.spec["parameters"]["n"] for trial in lab.trials()) == list(range(6))
    assert {trial.outcome for trial in lab.trials()} == {"succeeded"}
    lost = [event.get("outcome") for event in lab.events()].count("lost")
    assert lost >= 2, "of the worker and of the host"
    lab.is_tidy()


def test_what_daemons_a_killed_host_left_are_swept_by_the_next_run(lab):
    """The worst case: orchestrator, host and worker are killed at once, and a daemon of the trial lives on."""
    lab.install("spawn", "1.0", SPAWN, "[benchhouse.experiments]\nspawn = spawn:spawn\n")
    process = lab.start("run", lab.scenario("spawn"))
    lab.wait_for_mark("spawned")
    host, worker, experiment = chain(process.pid)
    for pid in (process.pid, host, worker, experiment):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.2)
    stopped = lab.bench("stop", "@last")
    assert "was not running" in stopped.stdout  # how many it ended depends on whether another run swept first
    lab.is_tidy()


SPAWN = """
import os, signal, subprocess, time
from pathlib import Path

def spawn():
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    Path(os.environ["LAB"], "spawned").touch()
    time.sleep(300)
"""


def test_ctrl_c_keeps_and_collects_what_is_done_and_prints_the_resume_line(lab):
    lab.hold(2)
    scenario = lab.scenario("slow", **SWEEP)
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 2, "two sealed trials")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"bench run --resume {lab.run_id()}" in err
    assert "Traceback" not in err
    done = len(lab.trials())
    assert done == 2
    counted = json.loads(lab.bench("query", "SELECT count(DISTINCT trial_id) AS n FROM trial_fact", "--json").stdout)
    assert str(done) in json.dumps(counted)
    lab.is_tidy()
    lab.release()
    lab.bench("run", "--resume", "@last")
    assert len(lab.trials()) == 6


def test_more_ctrl_c_during_the_clean_up_corrupts_nothing(lab):
    process = lab.start("run", lab.scenario("mischief", workload={"act": "stubborn", "n": [0, 1]}, parallel=2))
    wait_until(lambda: len(lab.left_running()) >= 6, "two stubborn families")
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT)
    wait_until(lambda: not lab.left_running(), "everything to end", 50)
    lab.bench("stop", "@last")
    lab.is_tidy()


def test_sigterm_ends_a_run_like_ctrl_c_also_where_sigint_is_ignored(lab):
    """A shell script's `bench run &` starts with SIGINT ignored; `bench stop` must still reach it."""
    scenario = lab.scenario("slow", workload={"seconds": 60})
    command = (
        f"trap '' INT; exec {subprocess.list2cmdline([__import__('sys').executable])} -m benchhouse run {scenario}"
    )
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=lab.workspace, env=lab.environment(), stderr=subprocess.PIPE, text=True
    )
    lab.wait_for_mark("slow-*")
    stopped = lab.bench("stop", "@last")
    assert f"stopped (process {process.pid})" in stopped.stdout
    assert process.wait(120) == 130
    lab.is_tidy()


def test_a_kill_between_a_retryable_failure_and_its_retry_keeps_every_attempt(lab):
    scenario = lab.scenario("mischief", workload={"act": "flaky"}, retries={"backoff": 3})
    process = lab.start("run", scenario)
    wait_until(lambda: any(".attempt-1" in path.name for path in lab.folders()), "the first attempt")
    process.kill()
    process.wait()
    lab.scenario("mischief", workload={"act": "flaky"})
    lab.bench("run", scenario)
    (trial,) = lab.trials()
    assert [item["outcome"] for item in trial.meta["attempts"]] == ["failed", "failed", "succeeded"]
    assert [path.name.partition(".")[2] for path in lab.folders()] == ["", "attempt-1", "attempt-2"]
    lab.is_tidy()


def test_a_trial_that_was_sealed_in_the_last_moment_counts(lab):
    """Killed between the folder's rename and the ledger's line: forget the lines and resume."""
    lab.run("once", workload={"n": [0, 1, 2]})
    before = manifests(lab)
    events = lab.workspace / ".bench" / "runs" / lab.run_id() / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines[:2]) + lines[2][:20])
    lab.bench("run", "s.yaml")
    assert manifests(lab) == before
    assert sorted(set(started(lab))) == sorted(before)
    assert json.loads(lab.bench("status", "@last", "--json").stdout)["done"] == 3


def test_a_damaged_manifest_is_named_and_its_folder_left_alone(lab):
    lab.run("once", code=1, workload={"n": [0, 1]}, budget={"trials": 1})
    (folder,) = lab.folders()
    (folder / "manifest.json").write_text("{")
    lab.scenario("once", workload={"n": [0, 1]})
    done = lab.bench("run", "s.yaml", code=1)
    assert str(folder) in done.stderr
    assert "bench verify" in done.stderr
