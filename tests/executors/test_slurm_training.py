"""Trainings over the nodes of a real Slurm cluster, by every launcher; the clock of one node is an hour ahead."""

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiments.training.test_faults import planted
from experiments.training.test_run import HEAD
from laboratory import Lab, wait_until
from services.slurm_cluster import Cluster, needs_slurm, use_cluster
from services.trainer import lab as small_gpt

from benchhouse.worker.nodes import expand

pytestmark = needs_slurm
AHEAD_S = 3600

STEPS = """
first = 0 if attempt == 0 else 2
print(f"rank {rank} of {world} on {os.uname().nodename}", flush=True)
for step in range(first, 6):
    begin = time.monotonic()
    if (rank, step, attempt, sys.argv[1:]) == (5, 3, 0, ["dies"]): os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    emit({"step": step, "t_start": begin, "t_end": time.monotonic(), "tokens": 10})
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="bench-slurm-apart-") as name:
        Path(name).chmod(0o755)
        made = Cluster(Path(name) / "slurm")
        made.start(port=27120 + os.getpid() % 280 * 20, NODE_TIMEOUT="120")
        if made.unavailable.exists():
            pytest.skip(made.unavailable.read_text())
        daemon = made.daemon_of("node02")
        os.kill(daemon, signal.SIGTERM)
        while Path(f"/proc/{daemon}").exists():
            time.sleep(0.05)
        made.bring_back("node02", ahead_s=AHEAD_S)
        yield made
        made.stop()


@pytest.fixture
def slurm(lab: Lab, apart: Cluster) -> Lab:
    return use_cluster(lab, apart)


def train(slurm: Lab, target: dict, nodes: int, **workload: object) -> dict:
    """The trial's meta.json."""
    more = {"target": target, "workload": workload, "resources": {"nodes": nodes, "memory": "2GB"}, "monitors": False}
    slurm.bench("run", slurm.scenario("training.run", **more), timeout_s=280)
    return slurm.trials()[-1].meta


def plain(*arguments: str) -> dict:
    return {"argv": [sys.executable, "-S", "-c", HEAD + STEPS, *arguments], "name": "t"}


@pytest.mark.parametrize("launcher", ["srun", "processes"])
def test_ranks_of_four_nodes_are_one_training_whatever_their_clocks_say(slurm, launcher):
    facts = train(slurm, plain("dies"), 4, ranks=8, launcher=launcher, max_restarts=1, warmup=0)["custom"]
    (trial,) = slurm.trials()
    assert facts["attempts"] == 2 and facts["measured_steps"] == 6 and facts["world"] == 8
    assert sorted(place["node"] for place in facts["ranks"]) == sorted(facts["nodes"] * 2)
    assert [place["local_rank"] for place in facts["ranks"]] == [0, 1] * 4
    first = facts["nodes"][0]
    expected = {node: AHEAD_S * ((node == "node02") - (first == "node02")) for node in facts["nodes"][1:]}
    for node, ahead_s in expected.items():
        assert facts["clocks"][node]["monotonic_ahead_s"] == pytest.approx(ahead_s, abs=5)
        assert facts["clocks"][node]["uncertainty_s"] < 5
    assert trial.metrics["throughput"]["value"] > 0.1, "it would be 0.02 if the clock that is an hour ahead counted"
    assert facts["interrupts"][0]["ranks"] == [5]
    for place in facts["ranks"]:
        said = (trial.folder / "artifacts" / f"rank-{place['rank']}.attempt-1.log").read_text()
        assert said == f"rank {place['rank']} of 8 on {place['node']}\n"
    slurm.is_tidy()


@pytest.mark.slow("torchrun imports torch in the agents and ranks of two nodes")
def test_torchrun_has_an_agent_on_each_node_and_real_ranks_meet(slurm):
    torch = small_gpt("--steps", 5)
    own = {"TORCHINDUCTOR_CACHE_DIR": str(slurm.marks)}  # torch makes it at import, and leaves it
    given = {"ranks_per_node": 1, "warmup": 1, "environment": own, "peak": {"measure": True, "seconds": 0.3}}
    facts = train(slurm, torch, 2, launcher="torchrun", **given)["custom"]
    assert len({place["node"] for place in facts["ranks"]}) == facts["world"] == 2
    measured = facts["utilisation"]["peak_measured_by"]
    assert [(place["node"], place["local_rank"]) for place in measured] == [(node, 0) for node in facts["nodes"]]
    reached = [place["flops"] for place in measured]
    assert min(reached) > 1e8 and facts["utilisation"]["peak_measured"] == pytest.approx(sum(reached) / 2)
    assert facts["loss_digest"] and facts["records_from"] == "emitted"
    slurm.is_tidy()


def test_a_node_that_is_lost_is_named_with_its_ranks(slurm, apart, tmp_path):
    mark = tmp_path / "mark"
    target, given = planted(tmp_path, f"def strike(step): open({str(mark)!r}, 'w').close()", steps=10**6)
    given |= {"ranks": 4, "launcher": "srun", "hang_after": 2, "max_restarts": 1}
    more = {"resources": {"nodes": 2, "memory": "2GB"}, "monitors": False, "retries": {"max_retries": 0}}
    running = slurm.start("run", slurm.scenario("training.run", target=target, workload=given, **more), "--json")
    wait_until(lambda: mark.exists() or running.poll() is not None, "a step of all ranks")
    (listed,) = apart.call("squeue", "--noheader", "--format=%N", "--states=RUNNING").split()
    node = expand(listed)[-1]
    apart.lose(node)
    try:
        out, _ = running.communicate(timeout=120)
    finally:
        apart.bring_back(node)
    (trial,) = slurm.trials()
    assert (trial.outcome, trial.code) == ("failed", "node_lost"), out
    failure = trial.meta["failure"]
    assert failure["retryable"], "another attempt of the trial, on other nodes"
    assert re.match(rf"node {node} was lost after step \d+ with ranks 2 and 3", failure["message"])
    assert trial.meta["custom"]["attempts"] == 1, "nothing begins again on a node that is gone"
