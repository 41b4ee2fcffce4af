"""Every node of a trial is sampled, on a real Slurm cluster of four."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from laboratory import Lab
from services.slurm_cluster import Cluster, needs_slurm
from services.slurm_cluster import cluster as cluster
from services.small_server import with_small

from benchhouse.schema.telemetry import TelemetrySummary

pytestmark = needs_slurm
LOCKSTEP = Path(__file__).parents[2] / "benchmarks" / "lockstep.py"

ASK = """
import os, signal, time, urllib.request
from pathlib import Path
from benchhouse import Context

def ask(ctx: Context, target: dict, seconds: float = 2.0):
    end_sampler(ctx.nodes[2])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        urllib.request.urlopen(target["url"], timeout=30).read()
    ctx.emit("asked", 1)
    ctx.metadata(nodes=ctx.nodes)

def end_sampler(node):
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\\0")
            variables = (process / "environ").read_bytes().split(b"\\0")
        except OSError:
            continue
        own = {f"SLURMD_NODENAME={node}".encode(), b"SLURM_JOB_ID=" + os.environb[b"SLURM_JOB_ID"]}
        if words[-2:] == [b"--sample", b""] and own <= set(variables):
            os.kill(int(process.name), signal.SIGKILL)
"""


@pytest.fixture
def slurm(lab: Lab, cluster) -> Lab:
    lab.variables["SLURM_CONF"] = cluster.conf
    site = {"site": "test", "executor": "slurm", "slurm": {"poll": "2s", "partition": "all"}}
    site["network"] = {"interface": "lo"}
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    lab.install("asking", "1.0", ASK, "[benchhouse.experiments]\nask = asking:ask\n")
    lab.install("lockstep", "1.0", LOCKSTEP.read_text(), "[benchhouse.experiments]\nlockstep = lockstep:lockstep\n")
    return with_small(lab)


@pytest.fixture
def small_nodes(slurm) -> Iterator[Lab]:
    """The same on a cluster whose nodes have a third of a core each, of their own."""
    with tempfile.TemporaryDirectory(prefix="bench-slurm-small-") as name:
        Path(name).chmod(0o755)
        made = Cluster(Path(name) / "slurm")
        made.start(port=27110 + os.getpid() % 280 * 20, NODE_CORES="0.35")
        if made.unavailable.exists():
            pytest.skip(made.unavailable.read_text())
        slurm.variables["SLURM_CONF"] = made.conf
        yield slurm
        made.stop()


def summary_of(trial) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((trial.folder / "telemetry" / "summary.json").read_bytes())


def test_each_node_has_its_series_on_one_time_line(slurm):
    workload = {"seconds": 8, "every_s": 0.1}
    slurm.run("lockstep", resources={"nodes": 4}, workload=workload, monitors={"interval": 0.2})
    (trial,) = slurm.trials()
    _, *others = trial.meta["custom"]["nodes"]
    summary = summary_of(trial)
    assert not summary.problems and {node.name for node in summary.nodes} == set(others)
    for node in summary.nodes:
        assert abs(node.clock_ahead_s) <= node.clock_uncertainty_s <= 0.005, "one kernel, one clock"
        assert node.cores < 0.05 and node.samples > 10
        work = summary.stats(f"{node.name}/trial", "cpu", "steady")
        assert work.max > 0.02, "a fifth of a core is burnt there on a machine that is not busy"
        assert summary.stats(f"{node.name}/node", "cpu_busy", "steady") is not None
        assert (trial.folder / "telemetry" / f"{node.name}.trial.parquet").is_file()
    assert summary.stats("steps", "cpu", "trial").growth > 0.2, "the same on the experiment's own node"
    assert summary.stats("trial", "cpu", "trial").growth > 0.2
    slurm.is_tidy()


def test_a_server_is_sampled_where_it_runs_and_a_lost_node_is_named(slurm):
    web = {"recipe": "small", "node": 1}
    scenario = {"services": {"web": web}, "target": {"url": "service:web"}, "monitors": {"interval": 0.2}}
    slurm.run("ask", resources={"nodes": 3}, **scenario)
    (trial,) = slurm.trials()
    _, second, third = trial.meta["custom"]["nodes"]
    summary = summary_of(trial)
    assert "service:web" not in summary.scopes, "that would be its srun"
    assert summary.stats(f"{second}/service:web", "processes", "trial").max == 1
    assert summary.stats(f"{second}/service:web", "cpu", "trial").avg > 0.02, "it answered all the time"
    assert trial.meta["outcome"] == "succeeded"
    (warning,) = [item["message"] for item in trial.meta["warnings"] if item["code"] == "telemetry_incomplete"]
    assert warning.startswith(f"{third}: its sampler ended during the trial (srun: ")
    assert [node.name for node in summary.nodes if node.problem] == [third]
    slurm.is_tidy()


def test_the_node_that_others_use_is_named_in_its_trials_and_by_why(small_nodes):
    hog = small_nodes.marks / "hog"
    more = {"resources": {"nodes": 4}, "repetitions": 3, "parallel": 1}
    more["workload"] = {"seconds": 8.5, "hog_file": str(hog)}
    hog.write_text("-1")
    small_nodes.run("lockstep", **more)
    healthy = [summary_of(trial).abnormal for trial in small_nodes.trials()]
    assert healthy == [None, None, None]
    base = small_nodes.run_id()
    hog.write_text("2")
    small_nodes.run("lockstep", name="slowed", **more)
    slowed = small_nodes.trials("slowed")
    (node,) = {trial.meta["custom"]["slowed"] for trial in slowed}
    for trial in slowed:
        abnormal = summary_of(trial).abnormal
        assert (abnormal.node, abnormal.reason) == (node, "noisy_neighbour")
        assert abnormal.says in [item["message"] for item in trial.meta["warnings"] if item["code"] == "abnormal_node"]
    why = json.loads(small_nodes.bench("why", "@last", "--vs", base, "--json").stdout)
    (best, *_) = why["points"][0]["diagnoses"]
    assert (best["cause"], best["suspect"]) == ("straggler:noisy_neighbour", node)
    assert any(line.startswith(f"In 3 of 3 trials {node} is not as the other 3 nodes") for line in why["notes"])
    small_nodes.is_tidy()
