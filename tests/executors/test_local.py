"""Slots by declared resources on this machine; what can't be had is refused at once."""

import itertools
import os
import time

import pytest

from benchhouse.executors.local import LocalExecutor, machine
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job
from benchhouse.schema.resources import Resources


def spans(lab):
    return sorted((trial.meta["custom"]["began"], trial.meta["custom"]["ended"]) for trial in lab.trials())


def overlaps(lab):
    found = spans(lab)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(found))


def test_parallel_trials_really_overlap(lab):
    lab.run("slow", workload={"seconds": 0.5, "n": [0, 1]}, parallel=2)
    assert overlaps(lab)


def test_by_default_one_trial_runs_at_a_time(lab):
    lab.run("slow", workload={"seconds": 0.2, "n": [0, 1, 2]})
    assert not overlaps(lab)


def test_a_dry_run_prints_the_exact_command(lab):
    done = lab.bench("run", lab.scenario("once"), "--dry-run")
    assert " -m benchhouse.worker " in done.stdout
    assert not (lab.workspace / "results").exists()


# -- the executor by itself, with a host that is faked by a shell script ----------------------------------------


def fake_host(tmp_path, script):
    path = tmp_path / "fake-python"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return (str(path),)


def job(tmp_path, python, name="a", **resources):
    return Job(name, tmp_path / name, python, Resources(**resources), tmp_path / f"{name}.log")


def drive(executor, ids, limit_s=120):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        states = executor.poll(ids, 0.05)
        if all(state.phase == "done" for state in states.values()):
            return states
    raise AssertionError("not done")


def test_a_host_that_dies_loses_its_jobs_with_its_last_words(tmp_path):
    executor = LocalExecutor(Assignment())
    executor.submit([job(tmp_path, fake_host(tmp_path, "echo 'no module named x' >&2; exit 1"))])
    states = drive(executor, ["a"])
    assert states["a"].reason == "the worker host ended: no module named x"
    executor.close()


def test_a_host_that_talks_a_lot_does_not_get_stuck(tmp_path):
    executor = LocalExecutor(Assignment())
    script = 'head -c 1000000 /dev/zero | tr "\\0" "x" >&2; read line; echo \'{"id": "a", "exit": 0}\'; read line'
    executor.submit([job(tmp_path, fake_host(tmp_path, script))])
    assert drive(executor, ["a"])["a"].reason == ""
    executor.close()


def test_jobs_start_only_after_the_caller_has_heard_what_ended(tmp_path):
    executor = LocalExecutor(Assignment())
    python = fake_host(tmp_path, 'while read line; do echo \'{"id": "a", "exit": 0}\'; done')
    executor.submit([job(tmp_path, python, "a"), job(tmp_path, python, "b")])
    while (states := executor.poll(["a", "b"], 0.05))["a"].phase != "done":
        assert states["b"].phase == "pending"
    assert states["b"].phase == "pending"
    executor.cancel(["b"])
    assert executor.poll(["b"], 0.0)["b"].reason == "cancelled before it started"
    executor.close()


def test_no_descriptor_is_left_open(tmp_path):
    python = fake_host(tmp_path, 'while read line; do echo \'{"id": "a", "exit": 0}\'; done')
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        executor = LocalExecutor(Assignment())
        executor.submit([job(tmp_path, python)])
        drive(executor, ["a"])
        executor.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_job_waits_for_room_and_is_not_overtaken(tmp_path):
    python = fake_host(tmp_path, "while read line; do :; done")
    for large in ({"cpus": machine().cpus}, {"memory": machine().memory * 2 // 3}):
        executor = LocalExecutor(Assignment(parallel=4))
        small = {"memory": machine().memory // 2} if "memory" in large else {}
        jobs = [job(tmp_path, python, "a", **small), job(tmp_path, python, "big", **large), job(tmp_path, python, "c")]
        executor.submit(jobs)
        states = executor.poll(["a", "big", "c"], 0.0)
        assert [name for name, state in states.items() if state.phase == "pending"] == ["big", "c"], large
        executor.close()


def test_check_names_everything_that_is_missing():
    with pytest.raises(BenchError) as found:
        LocalExecutor(Assignment()).check(Resources(cpus=5000, gpus=99, memory=900 * 10**12, nodes=3))
    for words in ("5000 cores (there are ", "99 GPUs (there are ", "of memory (there are ", "3 nodes (this is one"):
        assert words in found.value.message
