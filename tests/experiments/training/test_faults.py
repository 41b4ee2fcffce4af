"""Which rank failed, and how: by what ranks really printed, and by real processes that die, hang, leave or wait."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from experiments.training.test_run import trainer

from benchhouse.experiments.training.faults import FaultEvidence, diagnose
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.rank import device_of
from benchhouse.experiments.training.run import train
from benchhouse.experiments.training.stacks import Frame, read_stack
from benchhouse.experiments.training.watch import ProgressWatch
from benchhouse.schema.experiment import ExperimentFailed

CLOSED = (
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:7378. "
    "This is typically caused by a remote worker crashing."
)
RESET = "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:15794: Connection reset by peer"
LATE = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation"
NCCL = "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran 600020 ms"
NO_MEMORY = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of "
    "139.80 GiB of which 18.32 GiB is free. Including non-PyTorch memory, this process has 120.72 GiB memory in use. "
    "Process 462 has 758.00 MiB memory in use. Of the allocated memory 120.06 GiB is allocated by PyTorch, and 0 bytes "
    "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management"
)
NO_SPACE = "OSError: [Errno 28] No space left on device: 'checkpoint.part'"
TORCH_SAVE = "[rank0]: RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"
BARRIER = """Fatal Python error: Aborted

Thread 0x0000ffff99 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x0000ffffacfe1020 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356 in barrier
  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train.py", line 76 in meet
  File "/home/me/train.py", line 165 in <module>

Extension modules: torch._C (total: 1)"""
LOADS = """Fatal Python error: Aborted

Current thread 0x0000ffffa7e4a020 (most recent call first):
  File "/home/me/train.py", line 151 in load_batch
  File "/home/me/train.py", line 165 in <module>"""
ELSEWHERE = LOADS.replace("151 in load_batch", "99 in log")


def rank(number, exit_code=None, text="", told=False, at=10.0, node="a", **facts):
    lines = [(0.0, line) for line in text.splitlines() if line]
    if exit_code is not None:
        facts["exit_code"] = exit_code
    known = {"node": node, **facts}
    code = -9 if exit_code is None else exit_code
    return RankProcess(number, Path("log"), Path("file"), lines, code, at, told, known)


def fault(*ranks, steps=4, **more):
    last = steps if isinstance(steps, dict) else {rank.number: steps for rank in ranks}
    return diagnose(FaultEvidence(ranks, last, **more))


def test_a_card_is_named_only_where_it_is_known():
    for local, visible, device in [
        (1, ["0", "1"], "1"),
        (1, ["3"], "3"),
        (1, ["0"], "0"),
        (2, ["0", "1"], None),
        (0, [], None),
    ]:
        assert device_of(local, visible) == device


def test_the_rank_is_named_by_how_it_ended_and_what_it_printed():
    for kind, ranks, says, evidence in [
        (
            "killed",
            [1],
            "rank 1 (node a) was ended by signal 9 (SIGKILL) after step 4: hello",
            [rank(0, 1, CLOSED, at=9.9), rank(1, -9, "hello"), rank(2, 1, RESET)],
        ),
        ("killed", [0], "signal 11 (SIGSEGV)", [rank(0, -11), rank(1, 1, CLOSED)]),
        ("killed", [1], "signal 9", [rank(0, 1, CLOSED), rank(1, 137)]),  # by a shell
        ("memory", [1], "Tried to allocate 60.00 GiB. GPU 0 has", [rank(0, 1, CLOSED), rank(1, 1, NO_MEMORY)]),
        ("memory", [1], "ran out of memory (signal 9", [rank(0, 1, CLOSED), rank(1, -9, oom_kills=1)]),
        ("disk", [0], "no space left", [rank(0, 1, NO_SPACE), rank(1, 1, CLOSED)]),
        ("disk", [0], "unexpected pos", [rank(0, 1, TORCH_SAVE), rank(1, -15, "", told=True)]),
        ("failed", [1], "ended with exit code 3", [rank(0, -15), rank(1, 3, "ValueError: bad", at=9.0)]),
        (
            "failed",
            [0, 1],
            "all 2 ranks ended with exit code 1",
            [rank(0, 1, "EOFError"), rank(1, 1, "EOFError", at=10.1)],
        ),
        (
            "left",
            [1],
            "rank 1 (node a) ended with exit code 0 after step 4 while the others went on",
            [rank(0, 1, CLOSED), rank(1, 0), rank(2, 1, RESET)],
        ),
        ("left", [1], "", [rank(0, -6, BARRIER, told=True), rank(1, 0)]),
        (
            "hung",
            [1],
            "rank 1 (node a) hung after step 4 in load_batch (train.py:151) while the others waited for it",
            [rank(0, -6, BARRIER, told=True), rank(1, -6, LOADS, told=True), rank(2, -6, BARRIER, told=True)],
        ),
        (
            "hung",
            [1],
            "the only one that does not complain",
            [rank(0, 1, LATE), rank(1, -15, "step 4", told=True), rank(2, 1, CLOSED)],
        ),
        (
            "hung",
            [2],
            "in load_batch",
            [rank(0, -6, NCCL), rank(1, -6, BARRIER, told=True), rank(2, -6, LOADS, told=True)],
        ),
        (
            "hung",
            [1],
            "in load_batch",  # the others saw it end before they were asked
            [rank(0, 1, CLOSED, told=True), rank(1, -6, LOADS, told=True), rank(2, 1, RESET, told=True)],
        ),
        ("hung", [0], "its process was stopped", [rank(0, -9, told=True, state="T"), rank(1, -6, BARRIER, told=True)]),
        ("hung_at_exit", [0], "did not end after the last step", [rank(0, -6, LOADS, told=True), rank(1, 0)]),
        (
            "node",
            [2, 3],
            "node b was lost after step 4 with ranks 2 and 3",
            [
                rank(0, 1, CLOSED),
                rank(1, 1, CLOSED),
                rank(2, None, node="b", at=None),
                rank(3, None, node="b", at=None),
            ],
        ),
        (
            "killed",
            [2],
            "rank 2 (node b, device 0)",
            [rank(0, 1, CLOSED), rank(2, -9, node="b", device="0"), rank(3, 1, CLOSED, node="b")],
        ),
    ]:
        found = fault(*evidence)
        assert (found.kind, list(found.ranks), found.certain) == (kind, ranks, True)
        assert says in found.message


def test_nobody_is_named_where_the_evidence_does_not_allow_it():
    for evidence, candidates in [
        ([rank(0, -6, BARRIER, told=True), rank(1, -6, BARRIER, told=True)], [0, 1]),  # both wait
        ([rank(0, -6, LOADS, told=True), rank(1, -6, ELSEWHERE, told=True)], [0, 1]),  # neither does
        ([rank(0, 1, LATE), rank(1, -15, told=True), rank(2, -15, told=True)], [1, 2]),  # ended before they told
        ([rank(0, 1, CLOSED), rank(1, 1, CLOSED)], [0, 1]),  # all blame another
        ([rank(number, -6, text, told=True) for number, text in enumerate([ELSEWHERE, LOADS, LOADS])], [0, 1, 2]),
    ]:
        found = fault(*evidence)
        assert found.rank is None and not found.certain and list(found.ranks) == candidates
        assert "it can't be told for which rank" in found.message


def test_the_rank_behind_the_others_hangs_and_contradicting_evidence_names_nobody():
    ranks = [rank(0, -6, "", told=True), rank(1, -6, "", told=True)]
    assert fault(*ranks, steps={0: 4, 1: 5}).rank == 0
    ranks = [rank(0, -6, BARRIER, told=True), rank(1, -6, LOADS, told=True)]
    assert fault(*ranks, steps={0: 4, 1: 5}).rank is None


def test_the_main_threads_stack_is_read():
    assert read_stack(BARRIER.splitlines())[0] == Frame(
        "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 5356, "barrier"
    )
    assert read_stack(["nothing", '  File "x", line 3 in y']) == []


# Ranks that wait for each other as those of a training do, without torch: `barrier` is where torch has it.
BARRIER_FILE = """
import os, time
import json
from pathlib import Path
def barrier(step, rank, world, attempt):
    here = Path(os.environ["MEET"])
    (here / f"{attempt}-{step}-{rank}").touch()
    while not all((here / f"{attempt}-{step}-{other}").exists() for other in range(world)):
        time.sleep(0.002)
"""
MEET = """
sys.path.insert(0, os.environ["MEET"])
from torch.distributed.distributed_c10d import barrier
def strike(step): pass
PLANTED
for step in range(FIRST, LAST):
    begin = time.monotonic()
    if rank == 1 and step == 5 and attempt == 0: strike(step)
    barrier(step, rank, world, attempt)
    emit({"step": step, "t_start": begin, "t_end": time.monotonic()})
"""


def planted(tmp_path, code="", first="0", steps=12, **workload):
    """A target and a workload of two ranks; rank 1 runs `strike` in its step 5."""
    package = tmp_path / "meet" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package / "distributed_c10d.py").write_text(BARRIER_FILE)
    program = MEET.replace("PLANTED", code).replace("FIRST", first).replace("LAST", str(steps))
    return trainer(program), {"ranks": 2, "environment": {"MEET": str(tmp_path / "meet")}, **workload}


def test_a_rank_that_hangs_is_found_before_any_timeout_and_named_with_the_place(play, tmp_path):
    hangs = "def strike(step):\n    print('about to load', flush=True)\n    time.sleep(600)"
    says = r"rank_hung: rank 1 .* hung after step 4 in strike \(<string>:\d+\) while the others .*: about to load$"
    with pytest.raises(ExperimentFailed, match=says):
        play(train, *planted(tmp_path, hangs, hang_after=0.5))


def test_a_training_that_was_interrupted_goes_on_and_tells_what_it_cost(play, tmp_path):
    dies = "def strike(step): os.kill(os.getpid(), signal.SIGKILL)"
    ctx = play(train, *planted(tmp_path, dies, first="0 if attempt == 0 else 3", max_restarts=1, warmup=0))
    (told,) = ctx.facts["interrupts"]
    assert (told["kind"], told["ranks"], told["attempt"]) == ("killed", [1], 0)
    assert ctx.values["lost_steps"] == [2] and ctx.values["restarts"] == [1]
    parts = ctx.facts["wall_parts_s"]
    assert sum(parts.values()) == pytest.approx(ctx.facts["wall_s"])
    assert ctx.values["goodput"] == pytest.approx([parts["useful"] / ctx.facts["wall_s"]])
    assert 0 < parts["detection"] < 5 and parts["restart"] > 0 and parts["lost"] > 0
    assert ctx.values["mtti"] == pytest.approx([ctx.facts["wall_s"]])
    low, high = ctx.facts["mtti_interval_s"]
    assert low < ctx.facts["wall_s"] / 5 and high > 30 * ctx.facts["wall_s"]
    assert "rank 1" in ctx.warnings["interrupted"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def strike(step): sys.exit('ValueError: bad batch')",
            "rank_failed: rank 1 .* exit code 1 after step 4: .*bad batch",
        ),
        ("def strike(step): raise MemoryError('activations')", "out_of_memory: rank 1 .*activations"),
        ("def strike(step): open('/dev/full', 'w', 1).write('x\\n')", "disk_full: rank 1 .*No space left"),
        ("def strike(step): os.kill(os.getpid(), signal.SIGSTOP)", "rank_hung: rank 1 .*its process was stopped"),
    ],
)
def test_real_ranks_are_named_by_kind(play, tmp_path, code, says):
    with pytest.raises(ExperimentFailed, match=f"(?s){says}"):
        play(train, *planted(tmp_path, code, hang_after=0.5))


def test_a_rank_that_hangs_at_exit_is_told_and_the_figures_are_kept(play, tmp_path):
    target, workload = planted(tmp_path, hang_after=0.5, max_restarts=1)
    target["argv"][-1] += "if rank == 1: time.sleep(600)"
    ctx = play(train, target, workload)
    assert (
        "rank 1" in ctx.warnings["hung_at_exit"] and "did not end after the last step" in ctx.warnings["hung_at_exit"]
    )
    assert len(ctx.values["step_time"]) == 11 and ctx.values["restarts"] == [0]
    assert "interrupts" not in ctx.facts


def test_a_restart_that_can_not_begin_says_so(play, tmp_path):
    broken = "if attempt: sys.exit('EOFError: checkpoint is cut short')\ndef strike(step): sys.exit(3)"
    says = r"all 2 ranks ended with exit code 1 before the first step.*\(after 1 restarts\); is what it begins"
    with pytest.raises(ExperimentFailed, match=f"(?s)rank_failed: {says}"):
        play(train, *planted(tmp_path, broken, max_restarts=1))


def test_a_training_that_is_slow_is_no_hang(play, tmp_path):
    with pytest.raises(ExperimentFailed, match=r"timeout: the ranks were ended by workload\.timeout after step"):
        play(train, *planted(tmp_path, "", timeout=1.5, first="-10**6"))


def test_steps_by_another_clock_give_no_goodput_but_a_warning(play):
    wrong = """
for step in range(6):
    begin = time.time()
    emit({"step": step, "t_start": begin, "t_end": begin + 0.1})
"""
    ctx = play(train, trainer(wrong), {"warmup": 0})
    assert "time.monotonic()" in ctx.warnings["steps_of_another_clock"] and "goodput" not in ctx.values
    assert ctx.values["step_time"] == pytest.approx([100.0] * 6)


def test_reliability_reaches_the_table_of_outcomes(bench, tmp_path):
    dies = "def strike(step): os.kill(os.getpid(), signal.SIGKILL)"
    target, workload = planted(tmp_path, dies, first="0 if attempt == 0 else 3", max_restarts=1)
    scenario = {"scenario": "s", "experiment": "training.run", "target": target, "workload": workload}
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    done = bench("run", "s.yaml")
    assert done.code == 0 and "rank 1" in done.out + done.err
    sql = "SELECT goodput, training_reliability_pct, mtti_s, restarts FROM training_outcome_fact WHERE phase = ''"
    (row,) = json.loads(bench("query", sql, "--json").out)["rows"]
    goodput, reliability, mtti, restarts = row.values() if isinstance(row, dict) else row
    assert 0 < goodput < reliability / 100 < 1 and mtti > 0 and restarts == 1


def test_a_rank_whose_log_is_not_seen_yet_has_given_no_sign(tmp_path):
    (emitted := tmp_path / "emitted").mkdir()
    watch = ProgressWatch(emitted, SimpleNamespace(folder=tmp_path, logs=tmp_path), 1e-9, lines=True)
    (tmp_path / "rank-0.attempt-0.jsonl").write_text('{"pid": 7}\n')
    assert not watch.hangs()
    (tmp_path / "rank-0.attempt-0.log").write_text("begins\n")
    assert watch.hangs()


def test_the_last_records_of_an_attempt_are_no_sign_of_the_next_one(tmp_path):
    """A launcher that begins again by itself: the new ranks are still importing, which is no hang."""
    (emitted := tmp_path / "emitted").mkdir()
    (tmp_path / "rank-0.attempt-0.log").write_text("")
    watch = ProgressWatch(emitted, SimpleNamespace(folder=tmp_path, logs=tmp_path), 1e-9, lines=False)
    (emitted / "00000-7-a.jsonl").write_text('{"emit": 1, "attempt": 0}\n{"step": 1}\n')
    (tmp_path / "rank-0.attempt-0.jsonl").write_text('{"pid": 7}\n')
    assert watch.hangs()
    with (emitted / "00000-7-a.jsonl").open("a") as file:
        file.write('{"step": 2}\n')
    (tmp_path / "rank-0.attempt-1.jsonl").write_text('{"pid": 8}\n')
    (tmp_path / "rank-0.attempt-1.log").write_text("")
    assert not watch.hangs()
    (emitted / "00000-8-b.jsonl").write_text('{"emit": 1, "attempt": 1}\n{"step": 1}\n')
    assert watch.hangs()
