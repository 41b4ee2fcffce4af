"""Trials that share a process: what it keeps from one to the next, and what it must not."""

import os
import signal

import pytest
from laboratory import ENDINGS, Lab, chain

SHARED = {"shared": True}
REMEMBERS = '''
import ctypes, mmap, os, subprocess, sys, time
from pathlib import Path
from benchhouse import Context, Metric, experiment

SEEN = []
HELD = []


def burn(ctx):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def leave_a_process(ctx):
    subprocess.Popen(["sleep", "300"])


def close_everything(ctx):
    os.closerange(3, 4096)


def keep_open(ctx):
    HELD.append((ctx.artifacts / "late.txt").open("w"))
    HELD[-1].write("written when it is sealed")


def keep_mapped(ctx):
    (ctx.artifacts / "late.bin").write_bytes(b"x" * 4096)
    with (ctx.artifacts / "late.bin").open("r+b") as file:
        HELD.append(mmap.mmap(file.fileno(), 4096))


def lose_stdout(ctx):
    sys.stdout = open(os.devnull, "w")
    os.close(1)


def wait(ctx):
    mark = Path(os.environ["LAB"], "waits")
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        time.sleep(600)


ACTS = {
    "": lambda ctx: None,
    "burn": burn,
    "eat": lambda ctx: HELD.append(len(b"x" * (200 << 20))),
    "leave": leave_a_process,
    "open": keep_open,
    "mapped": keep_mapped,
    "close": close_everything,
    "mute": lose_stdout,
    "wait": wait,
    "raise": lambda ctx: 1 / 0,
    "die": lambda ctx: os._exit(3),
}


@experiment("remembers", version="1.0", metrics=[Metric(name="calls")])
def remembers(ctx: Context, n: int = 0, act: str = ""):
    """Tells the how manieth call of its process this is."""
    SEEN.append(n)
    print("python", n)
    ctypes.CDLL(None).printf(b"C %d\\n", ctypes.c_int(n))
    print("error", n, file=sys.stderr)
    ctx.metadata(pid=os.getpid(), found=os.listdir("."))
    Path("left").write_text("by " + str(n))
    ACTS[act](ctx)
    ctx.emit("calls", len(SEEN))
'''


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    made.install("remembers", "1.0", REMEMBERS, "[benchhouse.experiments]\nremembers = remembers:remembers\n")
    return made


def run(lab, acts, code=0, **scenario):
    """One trial for each act, in that order; what became of them."""
    points = [{"n": number, "act": act} for number, act in enumerate(acts)]
    settings = {"runtime": SHARED, "order": "sequential", "axes": [{"points": points}]} | scenario
    lab.run("remembers", code=code, **settings)
    return [trial for _, trial in sorted(lab.by("n").items())]


def trials_before(trials):
    return [trial.meta["trials_before"] for trial in trials]


def test_trials_share_a_process_until_one_breaks_it(lab):
    """One run of many trials, one after the other."""
    tame = ["", "", "", "burn", "", "eat", "", "raise", "", "mute", ""]
    breaking = ["die", "leave", "close", "open", "mapped"]
    trials = run(lab, [*tame, *(act for each in breaking for act in (each, ""))], code=1, monitors={"interval": 0.1})
    shared, others = trials[: len(tame) + 1], trials[len(tame) :]

    assert trials_before(shared) == list(range(len(shared)))
    assert len({trial.meta["custom"]["pid"] for trial in shared[:-1]}) == 1
    measured = [trial.metrics["benchhouse"]["measurements"] for trial in shared[:7]]
    assert [rows[0]["value"] for rows in measured] == list(range(1, 8)), "the experiment keeps its module"
    for number, trial in enumerate(shared[:3]):
        assert sorted(trial.stdout().splitlines()) == [f"C {number}", f"python {number}"]
        assert (trial.folder / "logs" / "stderr.log").read_text() == f"error {number}\n"
        assert trial.meta["custom"]["found"] == []  # each trial has an empty folder

    burnt, idle, large, small, raised = (trial.meta for trial in shared[3:8])
    assert burnt["usage"]["cpu_s"] > 0.25 > 0.15 > idle["usage"]["cpu_s"]
    assert large["usage"]["peak_memory_bytes"] > 200 << 20 > small["usage"]["peak_memory_bytes"]
    assert raised["failure"]["code"] == "ZeroDivisionError"
    assert "python 10" in shared[10].stdout(), "the trial before it closed its output"

    for act, broken, fresh in zip(breaking, others[::2], others[1::2], strict=True):
        assert (broken.outcome, fresh.outcome) == ("error" if act == "die" else "succeeded", "succeeded"), act
        assert fresh.meta["trials_before"] == 0, act
        warned = [(warning["code"], warning["message"]) for warning in broken.meta["warnings"]]
        assert warned == ([("left_processes", "ended by the worker: sleep")] if act == "leave" else []), act
    lab.is_tidy()
    rows = lab.bench("query", "select distinct runtime from software_version_dim", "--json").stdout
    assert '"process, shared"' in rows


def test_two_at_a_time_are_two_processes(lab):
    trials = run(lab, [""] * 6, parallel=2)
    pids = [trial.meta["custom"]["pid"] for trial in trials]
    assert len(set(pids)) <= 2
    assert trials_before(trials).count(0) == len(set(pids))


def test_a_limit_of_time_ends_the_process_and_the_next_trial_gets_another(lab):
    trials = run(lab, ["", "wait", ""], code=1, limits={"wall": 3.0})
    assert [trial.outcome for trial in trials] == ["succeeded", "timeout", "succeeded"]
    assert trials_before(trials) == [0, 1, 0]
    lab.is_tidy()


def test_a_limit_of_cpu_time_needs_a_process_for_each_trial(lab):
    assert trials_before(run(lab, ["", ""], limits={"cpu": 60})) == [None, None]


def test_a_killed_process_costs_its_trial_one_attempt(lab):
    points = [{"n": number, "act": act} for number, act in enumerate(["", "wait", ""])]
    lab.scenario("remembers", runtime=SHARED, order="sequential", axes=[{"points": points}])
    started = lab.start("run", "s.yaml")
    lab.wait_for_mark("waits")
    os.kill(chain(started.pid)[2], signal.SIGKILL)
    assert started.wait(timeout=120) == 0
    trials = [trial for _, trial in sorted(lab.by("n").items())]
    assert [[attempt["outcome"] for attempt in trial.meta["attempts"]] for trial in trials] == [
        ["succeeded"], ["error", "succeeded"], ["succeeded"],
    ]  # fmt: skip
    lab.is_tidy()


def test_a_run_that_is_interrupted_leaves_nothing(lab):
    points = [{"n": number, "act": act} for number, act in enumerate(["", "wait"])]
    lab.scenario("remembers", runtime=SHARED, order="sequential", axes=[{"points": points}])
    started = lab.start("run", "s.yaml")
    lab.wait_for_mark("waits")
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=120) == 130
    lab.is_tidy()


def test_each_ending_is_the_same_in_a_shared_process(lab):
    acts = [act for act, ending in ENDINGS.items() if ending]
    lab.scenario("mischief", runtime=SHARED, workload={"act": acts}, parallel=2)
    lab.bench("run", "s.yaml", code=1)
    for act, trial in lab.by("act").items():
        outcome, code = ENDINGS[act]
        assert (act, trial.outcome) == (act, outcome)
        assert code is None or trial.code == code
    lab.is_tidy()
