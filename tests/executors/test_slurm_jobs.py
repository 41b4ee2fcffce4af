"""Servers as jobs of their own on a real Slurm cluster, and runs that attach to them later."""

import json
import os
import re
import signal
import time
from collections import Counter
from datetime import datetime

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm
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
    lab.variables["SLURM_CONF"] = cluster.conf
    site = {"site": "test", "executor": "slurm", "slurm": {"poll": "2s", "partition": "all"}}
    (lab.workspace / "site.yaml").write_text(json.dumps(site | {"network": {"interface": "lo"}}))
    lab.install("ask", "1.0", ASK, "[benchhouse.experiments]\nask = ask:ask\n")
    return with_small(lab)


def start(lab: Lab, *options: str) -> dict:
    command = ("servers", "start", "small", "--executor", "slurm", "--time", "10m", "--json", *options)
    return json.loads(lab.bench(*command).stdout)


def job(cluster, number: str) -> str:
    return cluster.call("scontrol", "show", "job", number)


def test_a_server_is_a_job_with_resources_of_its_own_and_later_runs_attach_to_it(slurm, cluster):
    slurm.small("answer", resources={"cpus": 2})
    server = start(slurm, "--mem", "64M", "--partition", "all")
    shown = job(cluster, server["job"])
    assert "NumNodes=1" in shown and re.search(r"CPUs/Task=2\b", shown), "what the recipe says"
    assert "MinMemoryNode=64M" in shown, "and what the command line says"
    (row,) = json.loads(slurm.bench("servers", "ps", "--json").stdout)
    assert row["job"] == server["job"] and row["host"] in shown
    assert "starting on" in slurm.bench("servers", "logs", server["id"]).stdout
    for _ in range(2):
        use = {"services": {"web": {"server": server["id"]}}, "target": {"url": "service:web"}}
        slurm.run("ask", **use)
    assert [trial.meta["custom"]["url"] for trial in slurm.trials()] == server["endpoints"] * 2
    assert "JobState=RUNNING" in job(cluster, server["job"]), "a run leaves it running"
    slurm.bench("servers", "stop", server["id"])
    assert "JobState=RUNNING" not in job(cluster, server["job"])
    slurm.is_tidy()


def test_a_server_whose_node_died_is_lost_and_can_be_stopped(slurm, cluster):
    slurm.small("answer")
    server = start(slurm)
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


def test_a_job_that_no_node_can_hold_is_refused_with_the_reason(slurm):
    done = slurm.bench("servers", "start", "small", "--executor", "slurm", "--mem", "900000G", code=2)
    assert "sbatch refused" in done.stderr and "no node has that much" in done.stderr
    done = slurm.bench("servers", "start", "small", "--executor", "slurm", "--partition", "nowhere", code=2)
    assert "partition" in done.stderr and "this cluster has: all" in done.stderr
    slurm.is_tidy()


def test_clients_as_jobs_load_the_server_of_an_earlier_job_and_merge_exactly(slurm, cluster):
    """Whether the machine is quiet enough for its numbers is not asked here."""
    server = json.loads(slurm.bench("servers", "start", "postgres", "--executor", "slurm", "--json").stdout)
    load = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 4, "requests": 301, "think_time": 0.01}
    use = {"services": {"db": {"recipe": "postgres"}}, "target": {"endpoint": "service:db"}}
    scenario = slurm.scenario("storage.postgres", workload=load, **use)
    options = ("--count", "3", "--executor", "slurm", "--time", "10m", "--server", f"db={server['id']}")
    done = slurm.bench("clients", "run", scenario, *options, "--json", code=None)
    told = json.loads(done.stdout)
    assert set(told["outcomes"]) <= {"succeeded", "invalid"}, done.stderr
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    assert facts["measured"] == 301 and facts["certificate"]["processes"] >= 3
    assert list(facts["load_nodes"]) == ["client-0", "client-1", "client-2"]
    assert all(0 < node["clock_uncertainty_us"] < 20_000 for node in facts["load_nodes"].values())
    jobs = [json.loads(path.read_text()) for path in slurm.workspace.glob(".bench/services/clients-*/job.json")]
    assert len(jobs) == 3 and len({item["job_id"].partition("_")[0] for item in jobs}) == 1, "one array"
    assert not cluster.call("squeue", "--noheader", "--name", jobs[0]["name"]).strip()
    slurm.bench("servers", "stop", server["id"])
    assert "no load client is running" in slurm.bench("clients", "list").stderr
    slurm.is_tidy()


def test_a_monitor_is_a_job_on_the_node_that_is_named(slurm, cluster):
    names = cluster.call("sinfo", "--noheader", "--Node", "--format=%N").split()
    node = sorted(set(names))[-1]
    options = ("--executor", "slurm", "--node", node, "--interval", "0.2s", "--time", "10m")
    started = json.loads(slurm.bench("monitors", "start", *options, "--json").stdout)
    assert started["state"] == "running" and f"NodeList={node}" in job(cluster, started["job"])
    assert [item["state"] for item in json.loads(slurm.bench("monitors", "ps", "--json").stdout)] == ["running"]
    wait_until(lambda: time.time() > datetime.fromisoformat(started["started"]).timestamp() + 1, "some samples")
    ended = json.loads(slurm.bench("monitors", "stop", "--json").stdout)
    assert ended["state"] == "ended" and {item["series"] for item in ended["seen"]} >= {"cpu_busy", "memory_used"}
    assert "JobState=RUNNING" not in job(cluster, started["job"])
    done = slurm.bench("monitors", "start", "--executor", "slurm", "--node", "n;reboot", code=2)
    assert "--node: 'n;reboot' is not one plain word" in done.stderr
    slurm.is_tidy()


def test_server_monitor_and_clients_come_up_as_jobs_for_a_load_and_all_are_gone_after(slurm, cluster):
    load = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 2, "requests": 100, "think_time": 0.01}
    scenario = slurm.scenario("storage.postgres", workload=load, target={"endpoint": "service:postgres"})
    options = ("--load", scenario, "--clients", "2", "--executor", "slurm", "--time", "10m")
    done = slurm.bench("start", "postgres", *options, code=None)
    steps = re.findall(r"^(up|down): (server|monitor|load)", done.stderr, re.MULTILINE)
    order = ["server", "monitor", "load"]
    assert steps == [*(("up", name) for name in order), *(("down", name) for name in reversed(order))], done.stderr
    (trial,) = slurm.trials()
    assert trial.meta["custom"]["measured"] == 100
    (monitor,) = json.loads(slurm.bench("monitors", "ps", "--json").stdout)
    server = re.search(r"up: server \S+, job (\d+) on (\S+)", done.stderr)
    assert monitor["state"] == "ended" and monitor["host"] == server[2], "beside the server, inside its job"
    assert not cluster.call("squeue", "--noheader", "--jobs", server[1], "--states=running").strip()
    slurm.is_tidy()


def test_replicas_are_spread_over_the_nodes_of_the_job_and_all_are_gone_after(slurm, cluster):
    server = start(slurm, "--nodes", "2", "--replicas", "3")
    assert "NumNodes=2" in job(cluster, server["job"]) and len(set(server["endpoints"])) == 3
    slurm.run("ask", services={"web": {"server": server["id"]}}, target={"url": "service:web"})
    (trial,) = slurm.trials()
    assert trial.meta["custom"]["url"].split(",") == server["endpoints"]
    slurm.bench("servers", "stop", server["id"])
    slurm.is_tidy()


def test_one_server_spans_its_nodes_by_members_and_ends_with_any_of_them(slurm, cluster):
    member = ["sh", "-c", "echo joined $0; echo $0 $$ > $1/joined-$(hostname); exec sleep 300", "{head}:{head_port}"]
    slurm.small("answer", members=[*member, str(slurm.workspace)])
    server = start(slurm, "--nodes", "3")
    (endpoint,) = server["endpoints"]
    joined = [path.read_text().split() for path in slurm.workspace.glob("joined-*")]
    assert [head for head, _ in joined] == [endpoint.removeprefix("http://")] * 2
    assert "joined" in slurm.bench("servers", "logs", server["id"]).stdout
    os.kill(int(joined[0][1]), signal.SIGKILL)  # by the pid that the member itself wrote down
    wait_until(lambda: json.loads(slurm.bench("servers", "ps", "--json").stdout) == [], "its end")
    assert "small" in slurm.bench("servers", "check", server["id"], code=1).stdout
    slurm.is_tidy()


def test_an_s3_server_spans_three_nodes_and_has_each_object_on_two_of_them(slurm):
    options = ("--executor", "slurm", "--nodes", "3", "--time", "10m", "--timeout", "2m")
    server = json.loads(slurm.bench("servers", "start", "seaweedfs_cluster", *options, "--json").stdout)
    load = {"operation": "put", "size": "64KiB", "concurrency": 1, "requests": 6, "warmup": 0}
    target = {"endpoint": "service:s3", "bucket": "many", "create_bucket": True}
    use = {"services": {"s3": {"server": server["id"]}}, "target": target}
    slurm.run("storage.s3", code=None, workload=load, **use)
    (trial,) = slurm.trials()
    assert trial.meta["outcome"] in ("succeeded", "invalid"), trial.meta["failure"]
    logs = slurm.workspace / ".bench" / "services" / server["id"] / "logs"

    def copies() -> list[int]:
        """Of each volume of the bucket, which is removed with it."""
        texts = [path.read_text(errors="replace") for path in logs.glob("*.log")]
        volumes = (set(re.findall(r"deletes volume (\d+)", text)) for text in texts)
        return sorted(Counter(volume for each in volumes for volume in each).values())

    wait_until(lambda: copies() and set(copies()) == {2}, "the end of all volumes of the bucket, each on two nodes")
    slurm.bench("servers", "stop", server["id"])
    slurm.is_tidy()


def test_a_recipe_that_does_not_say_how_is_refused_with_the_reason(slurm):
    command = ("servers", "start", "small", "--executor", "slurm", "--nodes", "2")
    done = slurm.bench(*command, code=2)
    assert "does not say how one server spans 2 nodes (`members`), and 1 replica can't be spread" in done.stderr
    slurm.is_tidy()
