"""How ranks are started: their variables, their cores, and what is said where they can't be."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from experiments.conftest import RecordingContext
from experiments.training.test_run import STEPS, trainer
from laboratory import wait_until
from pydantic import ValidationError

from benchhouse.analysis.clocks import NodeClock, RoundTrip
from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.training import launch, launchers
from benchhouse.experiments.training.figures import progress_of
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.node_clocks import move_ranks, move_records
from benchhouse.experiments.training.placement import as_ranges, nccl_files
from benchhouse.experiments.training.run import TrainingWorkload, train
from benchhouse.experiments.training.steps import steps_of
from benchhouse.schema.experiment import ExperimentFailed


def test_each_rank_is_told_who_it_is_and_where_it_was_is_kept(play, monkeypatch):
    monkeypatch.setenv("RANK", "77")  # of whatever the trial itself runs in
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "hush")
    tells = "names = 'RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE BENCHHOUSE_SEED OMP_NUM_THREADS MINE'.split()\n"
    tells += "print(*map(os.environ.get, names), flush=True)\n"
    given = {"ranks": 2, "threads": 1, "affinity": "cores", "rank_environment": {"MINE": "{rank}-{local_rank}-{world}"}}
    ctx = play(train, trainer(tells + STEPS), given)
    for rank in range(2):
        said = (ctx.artifacts / f"rank-{rank}.attempt-0.log").read_text()
        assert said == f"{rank} {rank} 2 2 0 1 {rank}-{rank}-2\n"
    first, second = ctx.facts["ranks"]
    assert (first["rank"], second["rank"]) == (0, 1) and first["pid"] != second["pid"]
    assert first["node"] == second["node"] == os.uname().nodename
    if len(os.sched_getaffinity(0)) > 1:
        assert not set(first["cores"]) & set(second["cores"]) - {",", "-"}
    assert ctx.facts["environment"]["NCCL_DEBUG"] == "WARN" and "hush" not in str(ctx.facts)
    assert not (ctx.artifacts / "launcher.log").exists()


def test_a_port_that_somebody_else_took_costs_no_attempt(play, monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([other.getsockname()[1], launchers.free_port()])
        monkeypatch.setattr(launch, "free_port", lambda: next(ports))
        meets = """
import socket
store, port = socket.socket(), int(os.environ["MASTER_PORT"])
try:
    store.bind(("127.0.0.1", port))
except OSError as error:
    sys.exit(f"port: {port}, name: EADDRINUSE, message: {error}")
"""
        ctx = play(train, trainer(meets + STEPS), {})
    assert "taken meanwhile; begun again 1 times" in ctx.warnings["port_taken"]
    assert ctx.values["restarts"] == [0]


def test_what_a_rank_left_running_holds_nothing_up(play):
    leaves = "import subprocess\nsubprocess.Popen(['sleep', '60'])\n"
    ctx = play(train, trainer(leaves + STEPS), {})
    assert ctx.values["restarts"] == [0]


def test_ranks_that_fight_for_cores_make_the_figures_invalid(play):
    fights = STEPS.replace('"cpu_s": 0.09', '"cpu_s": 0.02')
    ranks = len(os.sched_getaffinity(0)) + 1
    ctx = play(train, trainer(fights), {"ranks": ranks, "warmup": 0})
    assert ctx.warnings["cores_shared"].startswith(f"{ranks} ranks of 1 threads share {ranks - 1} cores")
    assert "had one for" in ctx.invalidities["cores_fought"]
    alone = play(train, trainer(fights), {"warmup": 0})
    assert not alone.invalidities and "cores_shared" not in alone.warnings, "it may as well wait for a GPU"


def test_a_world_of_another_size_is_told(play):
    more = STEPS.replace('emit({"step"', 'for own in range(3): emit({"rank": own, "step"')
    ctx = play(train, trainer(more), {"warmup": 0})
    assert "records are of 3 ranks, and 1 were started" in ctx.warnings["world_differs"]
    assert ctx.facts["world"] == 3 and ctx.values["tokens_per_s"] == pytest.approx([1500.0])
    alone = STEPS.replace('{"step"', '{"world": 1, "step"')
    ctx = play(train, trainer(alone), {"ranks": 2, "warmup": 0})
    assert "2 ranks were started, and records tell a world of 1" in ctx.warnings["world_differs"]


def test_records_of_other_nodes_are_put_on_the_clock_of_the_first(tmp_path):
    for ahead_s in [60, -3600, 1e6]:
        here = [0.1 * step for step in range(5)]
        emitted = [
            Emitted(
                {"rank": rank, "attempt": 0},
                [{"step": at, "step_s": 0.1, "t": 50 + t + ahead} for at, t in enumerate(here)],
            )
            for rank, ahead in enumerate((0.0, ahead_s))
        ]
        ranks = [RankProcess(number, tmp_path, facts={"node": f"n{number}"}, ended_s=99.0) for number in range(2)]
        ranks[1].lines = [(51.0 + ahead_s, "x")]
        trip = RoundTrip(asked_s=10.0, heard_s=10.002, there_s=10.001 + ahead_s, ahead_s=0.0)
        move_ranks([ranks], {"n1": NodeClock([trip])})
        move_records(emitted, [ranks], {"n1": NodeClock([trip])})
        steps = progress_of(steps_of(emitted), 2).useful
        assert [step.apart_s for step in steps] == pytest.approx([0.0] * 5, abs=1e-6)
        assert ranks[1].lines == [(pytest.approx(51.0), "x")] and ranks[0].ended_s == 99.0


@pytest.mark.parametrize(
    ("target", "workload", "says"),
    [
        ({"argv": ["true"]}, {"launcher": "srun"}, "no_srun: launcher: srun needs a trial that is a Slurm job"),
        (
            {"argv": ["/bin/true"], "torchrun": "no-torchrun"},
            {"launcher": "torchrun"},
            "no_torchrun: no program 'no-to",
        ),
        ({"argv": ["true"]}, {"cwd": "/no-such-folder"}, "not_launched: rank 0 on .*: /no-such-folder: No such file"),
        (
            {"argv": ["/bin/true"], "torchrun": "false"},
            {"launcher": "torchrun"},
            "not_launched: 0 of 1 .*nothing",
        ),
    ],
)
def test_what_can_not_be_started_is_told(play, monkeypatch, target, workload, says):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ExperimentFailed, match=says):
        play(train, target, workload)


def test_ranks_are_counted_in_one_way():
    with pytest.raises(ValidationError, match="either ranks or ranks_per_node"):
        TrainingWorkload(ranks=2, ranks_per_node=2)
    with pytest.raises(ValidationError, match="launcher"):
        TrainingWorkload(launcher="mpirun")


def test_ranks_that_are_not_as_many_on_each_node_are_refused(tmp_path):
    ctx = RecordingContext(tmp_path, train)
    ctx.nodes = ["here", "there"]
    with pytest.raises(ExperimentFailed, match="uneven_ranks: 3 ranks are not as many on each of 2 nodes; set"):
        train.call(trainer(STEPS), {"ranks": 3}, ctx)


def test_ranks_end_with_whoever_started_them(tmp_path):
    rank = f"import os, time; print(os.getpid(), file=open({str(tmp_path / 'pid')!r}, 'w'), flush=True); time.sleep(99)"
    starts = f"""
import os, pathlib, sys
from benchhouse.experiments.training.launch import run_here
run_here([sys.executable, "-S", "-c", {rank!r}], 1, os.environ, pathlib.Path({str(tmp_path)!r}), None)
"""
    with subprocess.Popen([sys.executable, "-c", starts]) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the rank", 60)
        process.kill()
    pid = (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the rank to end", 30)


def test_files_that_set_nccl_are_told_without_secrets(tmp_path):
    (tmp_path / ".nccl.conf").write_text("NCCL_DEBUG=WARN # quiet\nNCCL_AUTH_TOKEN=hush\nPATH=/bin\n")
    (tmp_path / "site").write_text("# of the site\nNCCL_SOCKET_IFNAME = ib0\n")
    own, site = str(tmp_path / ".nccl.conf"), tmp_path / "site"
    both = {own: {"NCCL_DEBUG": "WARN"}, str(site): {"NCCL_SOCKET_IFNAME": "ib0"}}
    assert nccl_files({"HOME": str(tmp_path)}, site) == both
    assert nccl_files({"HOME": "/nowhere", "NCCL_CONF_FILE": own}, tmp_path / "none") == {own: both[own]}


def test_cores_are_written_as_ranges():
    assert [as_ranges(cores) for cores in ([], [3], [0, 1, 2, 5], [7, 6])] == ["", "3", "0-2,5", "6-7"]
