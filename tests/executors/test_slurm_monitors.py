"""Every node of a trial is sampled, on a real Slurm cluster of four."""

import pytest
from laboratory import Lab
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm, use_cluster
from services.small_server import with_small

from benchhouse.schema.telemetry import TelemetrySummary

pytestmark = needs_slurm

WORK = """
import os, signal, subprocess, sys, time, urllib.request
from pathlib import Path
from benchhouse import Context

SPIN = '''
import time
while time.process_time() < 0.6:
    until = time.process_time() + 0.02
    while time.process_time() < until: pass
    time.sleep(0.1)
'''

def work(ctx: Context, target: dict):
    end_sampler(ctx.nodes[2])
    spinners = [subprocess.Popen([*ctx.on_node(node), sys.executable, "-S", "-c", SPIN]) for node in ctx.nodes[:2]]
    while any(spinner.poll() is None for spinner in spinners):
        urllib.request.urlopen(target["url"], timeout=30).read()
        time.sleep(0.01)
    ctx.emit("worked", 1)
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
    use_cluster(lab, cluster, network={"interface": "lo"})
    lab.install("worked", "1.0", WORK, "[benchhouse.experiments]\nwork = worked:work\n")
    return with_small(lab)


def test_each_node_and_the_server_there_are_sampled_and_a_lost_sampler_is_reported(slurm):
    web = {"recipe": "small", "node": 1}
    scenario = {"services": {"web": web}, "target": {"url": "service:web"}, "monitors": {"interval": 0.2}}
    slurm.run("work", resources={"nodes": 3}, **scenario)
    (trial,) = slurm.trials()
    _, second, third = trial.meta["custom"]["nodes"]
    text = (trial.folder / "telemetry" / "summary.json").read_bytes()
    summary = TelemetrySummary.model_validate_json(text)
    assert [node.name for node in summary.nodes] == [second, third]
    sampled, lost = summary.nodes
    assert abs(sampled.clock_ahead_s) <= sampled.clock_uncertainty_s <= 0.05, "one kernel, one clock"
    assert sampled.samples >= 5 and not sampled.problem
    assert summary.stats(f"{second}/trial", "cpu", "trial").growth > 0.2, "most of 0.6 s of work"
    assert summary.stats(f"{second}/node", "cpu_busy", "trial") is not None
    assert (trial.folder / "telemetry" / f"{second}.trial.parquet").is_file()
    for scope in ("steps", "trial"):
        assert summary.stats(scope, "cpu", "trial").growth > 0.2, "the same on the experiment's own node"

    assert "service:web" not in summary.scopes, "that would be its srun"
    assert summary.stats(f"{second}/service:web", "processes", "trial").max == 1
    assert summary.stats(f"{second}/service:web", "cpu", "trial").growth > 0.01, "it answered all the time"

    assert trial.meta["outcome"] == "succeeded"
    (warning,) = [item["message"] for item in trial.meta["warnings"] if item["code"] == "telemetry_incomplete"]
    assert warning.startswith(f"{third}: its sampler ended during the trial (srun: ") and lost.problem
    slurm.is_tidy()
