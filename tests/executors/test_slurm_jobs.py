"""Servers, monitors and load clients as jobs of their own on a real Slurm cluster."""

import json
import os
import re
import signal
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm, use_cluster
from services.small_server import with_small

pytestmark = needs_slurm

ASK = """
import urllib.request
from benchhouse import Context

def ask(target: dict, ctx: Context):
    for url in target["url"].split(","):
        urllib.request.urlopen(url, timeout=20).read()
    ctx.emit("asked", 1)
    ctx.metadata(url=target["url"])
"""


@pytest.fixture
def slurm(lab: Lab, cluster) -> Lab:
    use_cluster(lab, cluster, network={"interface": "lo"})
    lab.install("ask", "1.0", ASK, "[benchhouse.experiments]\nask = ask:ask\n")
    return with_small(lab)


def start(lab: Lab, what: str, *options: str) -> dict:
    return json.loads(lab.bench("servers", "start", what, "--executor", "slurm", "--json", *options).stdout)


def job(cluster, number: str) -> str:
    return cluster.call("scontrol", "show", "job", number)


def test_a_server_and_a_monitor_are_jobs_and_a_run_attaches_to_the_server(slurm, cluster):
    slurm.small("answer", resources={"cpus": 2})
    server = start(
        slurm, "small", "--nodes", "2", "--replicas", "3", "--mem", "64M", "--partition", "all", "--time", "9m"
    )
    shown = job(cluster, server["job"])
    assert "NumNodes=2" in shown and re.search(r"CPUs/Task=2\b", shown), "as the recipe has it"
    assert "MinMemoryNode=64M" in shown and "TimeLimit=00:09:00" in shown, "as the command line has it"
    assert len(set(server["endpoints"])) == 3, "spread over the nodes of the job"
    node = sorted(cluster.call("sinfo", "--noheader", "--Node", "--format=%N").split())[-1]
    options = ("--executor", "slurm", "--node", node, "--interval", "0.2s", "--time", "10m")
    monitor = json.loads(slurm.bench("monitors", "start", *options, "--json").stdout)
    assert monitor["state"] == "running" and f"NodeList={node}" in job(cluster, monitor["job"])
    (row,) = json.loads(slurm.bench("servers", "ps", "--json").stdout)
    assert row["job"] == server["job"] and row["host"] in ("node01", "node02", "gpu01", "gpu02")
    assert "starting on" in slurm.bench("servers", "logs", server["id"]).stdout
    slurm.bench("servers", "check", server["id"])

    slurm.run("ask", services={"web": {"server": server["id"]}}, target={"url": "service:web"})
    (trial,) = slurm.trials()
    assert trial.meta["custom"]["url"].split(",") == server["endpoints"]
    assert "JobState=RUNNING" in job(cluster, server["job"]), "a run leaves it running"
    wait_until(lambda: time.time() > datetime.fromisoformat(monitor["started"]).timestamp() + 1, "some samples")
    ended = json.loads(slurm.bench("monitors", "stop", "--json").stdout)
    assert ended["state"] == "ended" and {item["series"] for item in ended["seen"]} >= {"cpu_busy", "memory_used"}
    slurm.bench("servers", "stop", server["id"])
    for number in (server["job"], monitor["job"]):
        assert "JobState=RUNNING" not in job(cluster, number)
    slurm.is_tidy()


def test_a_server_whose_node_died_is_lost_and_can_be_stopped(slurm, cluster):
    server = start(slurm, "small")
    state = slurm.workspace / ".bench" / "services" / server["id"] / "state.json"
    before = state.read_text()
    cluster.call("scancel", "--full", "--signal=KILL", server["job"])
    running = ("squeue", "--noheader", "--jobs", server["job"], "--states=R,CG")
    wait_until(lambda: not cluster.call(*running), "the job to end")
    state.write_text(before)  # a node that dies writes nothing more
    (row,) = json.loads(slurm.bench("servers", "ps", "--json").stdout)
    assert row["phase"] == "lost" and f"job {server['job']}" in row["message"]
    slurm.bench("servers", "stop", server["id"])
    assert json.loads(slurm.bench("servers", "ps", "--json").stdout) == []


def test_server_monitor_and_clients_come_up_as_jobs_for_a_load_and_all_are_gone_after(slurm, cluster):
    """The test does not require a machine that is quiet enough for the measured numbers."""
    load = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 4, "requests": 301, "think_time": 0.01}
    scenario = slurm.scenario("storage.postgres", workload=load, target={"endpoint": "service:postgres"})
    options = ("--load", scenario, "--clients", "2", "--executor", "slurm", "--time", "10m")
    done = slurm.bench("start", "postgres", *options, code=None)
    steps = re.findall(r"^(up|down): (server|monitor|load)", done.stderr, re.MULTILINE)
    order = ["server", "monitor", "load"]
    assert steps == [*(("up", name) for name in order), *(("down", name) for name in reversed(order))], done.stderr
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    assert facts["measured"] == 301 and facts["certificate"]["processes"] >= 2
    assert list(facts["load_nodes"]) == ["client-0", "client-1"]
    assert all(0 < node["clock_uncertainty_us"] < 20_000 for node in facts["load_nodes"].values())
    jobs = [json.loads(path.read_text()) for path in slurm.workspace.glob(".bench/services/clients-*/job.json")]
    assert len({item["job_id"].partition("_")[0] for item in jobs}) == 1, "one array"
    (monitor,) = json.loads(slurm.bench("monitors", "ps", "--json").stdout)
    server = re.search(r"up: server \S+, job (\d+) on (\S+)", done.stderr)
    assert monitor["state"] == "ended" and monitor["host"] == server[2], "next to the server, inside its job"
    ended = ",".join([server[1], *(item["job_id"] for item in jobs)])
    assert not cluster.call("squeue", "--noheader", "--jobs", ended, "--states=running").strip()
    slurm.is_tidy()


def test_an_s3_server_spans_three_nodes_and_ends_with_any_of_its_members(slurm, cluster):
    """Each object of the bucket is on two of the nodes."""
    server = start(slurm, "seaweedfs_cluster", "--nodes", "3", "--time", "10m", "--timeout", "2m")
    load = {"operation": "put", "size": "64KiB", "concurrency": 1, "requests": 6, "warmup": 0}
    target = {"endpoint": "service:s3", "bucket": "many", "create_bucket": True}
    slurm.run("storage.s3", code=None, workload=load, services={"s3": {"server": server["id"]}}, target=target)
    (trial,) = slurm.trials()
    assert trial.meta["outcome"] in ("succeeded", "invalid"), trial.meta["failure"]
    logs = slurm.workspace / ".bench" / "services" / server["id"] / "logs"

    def copies() -> list[int]:
        """The number of nodes of each volume of the bucket; the volumes are deleted with it."""
        texts = [path.read_text(errors="replace") for path in logs.glob("*.log")]
        volumes = (set(re.findall(r"deletes volume (\d+)", text)) for text in texts)
        return sorted(Counter(volume for each in volumes for volume in each).values())

    wait_until(lambda: copies() and set(copies()) == {2}, "the end of all volumes of the bucket, each on two nodes")
    os.kill(member_of(server["job"], server["host"]), signal.SIGKILL)
    wait_until(lambda: json.loads(slurm.bench("servers", "ps", "--json").stdout) == [], "its end")
    slurm.bench("servers", "check", server["id"], code=1)
    assert not cluster.jobs(server["id"])
    slurm.is_tidy()


def member_of(number: str, head: str) -> int:
    """A server process of the job on another node than the first one."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        mine = f"SLURM_JOB_ID={number}".encode() in variables
        if mine and Path(os.fsdecode(words[0])).name == "weed" and f"SLURMD_NODENAME={head}".encode() not in variables:
            return int(path.name)
    raise AssertionError("no member runs")
