"""Every node of a trial is sampled, on a real Slurm cluster of four."""

import json

import pytest
from laboratory import Lab
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm
from services.small_server import with_small

from benchhouse.schema.telemetry import TelemetrySummary

pytestmark = needs_slurm

RANKS = """
import os, signal, subprocess, sys, time, urllib.request
from pathlib import Path
from benchhouse import Context

BURN = '''
import sys, time
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until: pass
    print("done", flush=True)
'''

def lockstep(ctx: Context, steps: int = 8, work_s: float = 0.02, every_s: float = 0.1):
    commands = [[], *(ctx.on_node(node) for node in ctx.nodes[1:])]
    ranks = [
        subprocess.Popen(
            [*command, sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    for rank in ranks:
        print(0, file=rank.stdin, flush=True)
        rank.stdout.readline()
    begin = time.monotonic_ns()
    for step in range(steps):
        began = time.monotonic()
        for rank in ranks:
            print(work_s, file=rank.stdin, flush=True)
        for rank in ranks:
            rank.stdout.readline()
        ctx.emit("step_s", time.monotonic() - began, "s", direction="lower")
        time.sleep(max(0.0, began + every_s - time.monotonic()))
    ctx.phase("steady", begin, time.monotonic_ns())
    for rank in ranks:
        rank.stdin.close()
        rank.wait()
    ctx.metadata(nodes=ctx.nodes)

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
    lab.install("ranks", "1.0", RANKS, "[benchhouse.experiments]\nlockstep = ranks:lockstep\nask = ranks:ask\n")
    return with_small(lab)


def summary_of(trial) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((trial.folder / "telemetry" / "summary.json").read_bytes())


def test_each_node_has_its_series_on_one_time_line(slurm):
    slurm.run("lockstep", resources={"nodes": 4}, workload={"steps": 30, "work_s": 0.02}, monitors={"interval": 0.2})
    (trial,) = slurm.trials()
    _, *others = trial.meta["custom"]["nodes"]
    summary = summary_of(trial)
    assert not summary.problems and {node.name for node in summary.nodes} == set(others)
    for node in summary.nodes:
        assert abs(node.clock_ahead_s) <= node.clock_uncertainty_s <= 0.005, "one kernel, one clock"
        assert node.cores < 0.05 and node.samples > 10
        work = summary.stats(f"{node.name}/trial", "cpu", "steady")
        assert 0.1 < work.avg < 0.4, "a fifth of a core was burnt there"
        assert summary.stats(f"{node.name}/node", "cpu_busy", "steady") is not None
        assert (trial.folder / "telemetry" / f"{node.name}.trial.parquet").is_file()
    assert 0.1 < summary.stats("trial", "cpu", "steady").avg < 0.5
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
