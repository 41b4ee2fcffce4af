"""Trials of several nodes on a real Slurm cluster: servers and load apart, and nothing of them left."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm
from services.small_server import recipe, with_small
from services.trainer import trainer_python

pytestmark = needs_slurm

ASK = """
import os, subprocess, time, urllib.request
from pathlib import Path
from benchhouse import Context, Metric, experiment

def ask(target: dict, ctx: Context, seconds: float = 0.0, n: int = 0):
    Path(os.environ["LAB"], f"asked-{n}").write_text(str(os.getpid()))
    until = time.monotonic() + seconds
    while True:
        for url in target["url"].split(","):
            try:
                urllib.request.urlopen(url, timeout=5).read()
            except OSError:
                if not seconds:
                    raise
        if time.monotonic() >= until:
            break
        time.sleep(0.05)
    ctx.emit("asked", 1)
    ctx.metadata(url=target["url"], nodes=ctx.nodes, mine=os.uname().nodename)

def everywhere(ctx: Context):
    said = {}
    for node in ctx.nodes[1:]:
        command = [*ctx.on_node(node), "sh", "-c", "echo $(hostname) $NCCL_SOCKET_IFNAME"]
        said[node] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    ctx.emit("nodes", len(said) + 1)
    ctx.metadata(said=said, nodes=ctx.nodes)

@experiment("shared", version="1.0", metrics=[
    Metric(name="rate", unit="1/s", direction="higher", role="throughput"),
])
def shared(ctx: Context):
    # Asks every node for its name; the rate is that of Amdahl's law with a serial share of 10%.
    others = [[*ctx.on_node(node), "hostname"] for node in ctx.nodes[1:]]
    names = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in others}
    n = len({*names, os.uname().nodename})
    ctx.emit("rate", 100.0 * n / (1 + 0.1 * (n - 1)) * (1 + 0.01 * ctx.repetition))
"""


@pytest.fixture
def slurm(lab: Lab, cluster) -> Lab:
    lab.variables["SLURM_CONF"] = cluster.conf
    site = {"site": "test", "executor": "slurm", "slurm": {"poll": "2s", "partition": "all"}}
    site["network"] = {"interface": "lo", "environment": {"NCCL_SOCKET_IFNAME": "ib0"}}
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    names = "".join(f"{name} = ask:{name}\n" for name in ("ask", "everywhere", "shared"))
    lab.install("ask", "1.0", ASK, f"[benchhouse.experiments]\n{names}")
    return with_small(lab)


def apart(**more) -> dict:
    """A scenario whose server is on the second of two nodes."""
    web = {"recipe": "small", "node": 1} | more.pop("use", {})
    nodes = {"resources": {"nodes": more.pop("nodes", 2)}}
    return {"services": {"web": web}, "target": {"url": "service:web"}} | nodes | more


def test_an_experiment_knows_its_nodes_and_may_start_commands_on_them(slurm):
    slurm.run("everywhere", resources={"nodes": 3})
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    assert facts["nodes"][0] == trial.meta["host"] and len(set(facts["nodes"])) == 3
    assert facts["said"] == {node: [node, "ib0"] for node in facts["nodes"][1:]}, "the site's variables are there too"
    slurm.is_tidy()


def test_strong_scaling_over_nodes_is_run_and_its_law_told(slurm):
    slurm.run("shared", resources={"nodes": [1, 2, 4]}, scaling="strong", repetitions=2)
    along = json.loads(slurm.bench("compare", "@last", "--along", "nodes", "--json").stdout)
    (curve,) = along["curves"]
    assert (along["kind"], along["along"]) == ("strong", "resources.nodes")
    assert [stage["place"] for stage in curve["stages"]] == [1, 2, 4]
    assert [stage["efficiency"] for stage in curve["stages"]] == pytest.approx([1, 1 / 1.1, 1 / 1.3])
    (law,) = curve["laws"]
    assert (law["law"], law["parameters"]["s"]["value"]) == ("amdahl", pytest.approx(0.1))
    assert "about nodes 11" in curve["pays"]
    slurm.is_tidy()


def test_a_number_of_nodes_that_the_cluster_lacks_is_refused_before_anything_runs(slurm):
    refused = slurm.bench("run", slurm.scenario("shared", resources={"nodes": [1, 2, 64]}), code=None)
    assert refused.returncode != 0
    assert "at resources.nodes=64: sbatch refused" in refused.stderr
    assert not slurm.trials()


def test_a_server_stands_on_the_second_node_and_is_asked_from_the_first(slurm):
    words = recipe("answer", "secret")["command"]
    shell = ["sh", "-c", 'echo "nccl $NCCL_IB_HCA $NCCL_SOCKET_IFNAME"; exec "$0" "$@"', *words]
    slurm.small(command=shell, environment={"NCCL_IB_HCA": "mlx5_0"})
    slurm.run("ask", **apart())
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    web = facts["services"]["web"]
    assert facts["mine"] == facts["nodes"][0] and web["nodes"] == [facts["nodes"][1]]
    assert (web["listens"], web["password"]) == ("network", False)
    assert "exposed" in [warning["code"] for warning in trial.meta["warnings"]]
    words = (trial.folder / "logs" / "web.log").read_text()
    assert words.startswith("nccl mlx5_0 ib0\nstarting on"), "of the recipe and of the site"
    assert "my secret is [redacted]" in words
    assert not (trial.folder / ".elsewhere").exists()
    slurm.is_tidy()


def test_replicas_are_spread_over_the_other_nodes(slurm):
    slurm.run("ask", **apart(nodes=3, use={"node": "others", "replicas": 3}))
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    _, second, third = facts["nodes"]
    assert facts["services"]["web"]["nodes"] == [second, third, second]
    assert len(set(facts["url"].split(","))) == 3
    assert {path.name for path in (trial.folder / "logs").glob("web*.log")} == {"web.log", "web-1.log", "web-2.log"}
    slurm.is_tidy()


def test_a_server_that_dies_on_another_node_fails_the_trial_with_its_last_words(slurm):
    slurm.small("answer", "die-after:2")
    told = slurm.run("ask", code=1, workload={"seconds": 60}, **apart())
    (failure,) = told["failures"]
    assert failure["code"] == "server_died"
    assert "ended with 3" in failure["message"] and "out of memory" in failure["message"]
    slurm.is_tidy()


def test_a_server_that_does_not_come_up_on_another_node_is_told(slurm):
    slurm.small("never", ready={"kind": "http", "timeout": 1})
    told = slurm.run("ask", code=1, **apart())
    (failure,) = told["failures"]
    assert "web" in failure["message"] and "was not up within 1 s" in failure["message"]
    slurm.is_tidy()


def attached(**more) -> dict:
    """A scenario whose server lives as long as the run."""
    web = {"recipe": "small", "mode": "attached"} | more.pop("use", {})
    return {"services": {"web": web}, "target": {"url": "service:web"}} | more


def submit(lab: Lab, *args: object, **options) -> dict:
    return json.loads(lab.bench("submit", *args, "--json", **options).stdout)


def jobs_of(lab: Lab, cluster, name: str = "") -> list[str]:
    """Names of jobs that wait or run, of the lab's last run."""
    rows = cluster.call("squeue", "-h", "-o", "%j").split()
    return sorted(row for row in rows if (name or lab.run_id()) in row)


def state(lab: Lab, name: str = "web") -> dict:
    path = lab.workspace / ".bench" / "runs" / lab.run_id() / "services" / name / "state.json"
    return json.loads(path.read_text())


def settled(lab: Lab, limit_s: float = 240) -> dict:
    deadline = time.monotonic() + limit_s
    while (said := json.loads(lab.bench("collect", "@last", "--json").stdout))["under_way"]:
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    return said


def test_an_attached_service_is_a_job_that_all_trials_share_and_that_ends_with_the_run(slurm, cluster):
    scenario = slurm.scenario("ask", workload={"n": [1, 2, 3], "seconds": 4}, **attached())
    submit(slurm, scenario)
    wait_until(lambda: list(slurm.marks.glob("asked-*")), "a trial that asks")
    (row,) = json.loads(slurm.bench("servers", "ps", "--json").stdout)
    assert row["phase"] == "ready" and row["job"].isdigit() and row["host"] in ("node01", "node02", "gpu01", "gpu02")
    assert f"bench-{slurm.run_id()}-reaper" in jobs_of(slurm, cluster)
    settled(slurm)
    trials = slurm.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 3
    assert len({trial.meta["custom"]["url"] for trial in trials}) == 1
    assert {trial.meta["custom"]["services"]["web"]["mode"] for trial in trials} == {"attached"}
    assert "exposed" in [warning["code"] for warning in trials[0].meta["warnings"]]
    assert state(slurm)["phase"] == "stopped" and not jobs_of(slurm, cluster)
    slurm.is_tidy()


def test_an_attached_service_that_dies_fails_the_trial_with_its_last_words_and_ends_the_run(slurm, cluster):
    slurm.small("answer", "die-after:4")
    told = slurm.run("ask", code=1, workload={"seconds": 60, "n": [1, 2]}, slurm={"throttle": 1}, **attached())
    first, *others = told["failures"]
    assert first["code"] == "server_died" and "out of memory" in first["message"]
    assert all(failure["outcome"] == "cancelled" for failure in others), "it is not begun against a corpse"
    assert slurm.events()[-1]["event"] == "service"
    assert not jobs_of(slurm, cluster)
    slurm.is_tidy()


def test_a_trial_that_is_lost_is_tried_again_with_the_same_server(slurm):
    """The reaper of the first array must not end what the second one needs."""
    scenario = slurm.scenario("ask", workload={"seconds": 5}, retries={"backoff": 0.1}, **attached())
    process = slurm.start("run", scenario, "--json")
    wait_until(lambda: [mark for mark in slurm.marks.glob("asked-*") if mark.read_text()], "a trial that asks")
    (mark,) = slurm.marks.glob("asked-*")
    began = state(slurm)["started"]
    os.kill(parent(parent(int(mark.read_text()))), signal.SIGKILL)
    process.wait(120)
    (trial,) = slurm.trials()
    assert [attempt["outcome"] for attempt in trial.meta["attempts"]] == ["lost", "succeeded"]
    assert (state(slurm)["phase"], state(slurm)["started"]) == ("stopped", began)
    slurm.is_tidy()


def test_the_scripts_of_services_and_reaper_are_good_bash(slurm):
    odd = slurm.root / "a b $(touch pwned) 'x'"
    shutil.copytree(slurm.workspace, odd)
    slurm.workspace = odd
    scenario = slurm.scenario("ask", **attached(use={"time": "90m"}))
    shown = slurm.bench("plan", scenario, "--dry-run").stdout.split("#!/bin/bash\n")
    assert len(shown) == 3 and "#SBATCH --time=1:30:00\n" in shown[1] and "export NCCL_SOCKET_IFNAME=ib0\n" in shown[1]
    slurm.run("ask", **attached())
    run = slurm.workspace / ".bench" / "runs" / slurm.run_id()
    texts = [(run / "services" / "web" / "job.sh").read_text(), (run / "jobs" / "reaper.sh").read_text()]
    for text in (*texts, f"#!/bin/bash\n{shown[1]}"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        if checker := shutil.which("shellcheck"):
            subprocess.run([checker, "--severity=warning", "-"], input=text, text=True, check=True)
    assert not list(slurm.root.rglob("pwned"))
    slurm.is_tidy()


def test_a_service_whose_job_is_cancelled_in_mid_trial_fails_it(slurm, cluster):
    submit(slurm, slurm.scenario("ask", workload={"seconds": 60}, **attached()))
    wait_until(lambda: list(slurm.marks.glob("asked-*")), "a trial that asks")
    cluster.call("scancel", f"--name=bench-{slurm.run_id()}-web")
    settled(slurm)
    (trial,) = slurm.trials()
    assert (trial.outcome, trial.code) == ("failed", "server_died")
    slurm.is_tidy()


def test_stop_ends_the_jobs_of_trials_services_and_reaper(slurm, cluster):
    submit(slurm, slurm.scenario("ask", workload={"seconds": 60}, **attached()))
    wait_until(lambda: list(slurm.marks.glob("asked-*")), "a trial that asks")
    assert len(jobs_of(slurm, cluster)) == 3
    slurm.bench("stop", "@last")
    assert not jobs_of(slurm, cluster)
    assert state(slurm)["phase"] == "stopped"
    slurm.is_tidy()


def test_when_nobody_comes_back_the_reaper_asks_the_service_to_end(slurm, cluster):
    submit(slurm, slurm.scenario("ask", **attached()))
    stop = slurm.workspace / ".bench" / "runs" / slurm.run_id() / "services" / "web" / "stop"
    wait_until(stop.exists, "the reaper's word")
    assert stop.read_text().strip() == "60", "an orchestrator that submits more may still take it back"
    stop.write_text("0")
    wait_until(lambda: not jobs_of(slurm, cluster), "the end of all jobs")
    assert state(slurm)["phase"] == "stopped"
    settled(slurm)
    assert [trial.outcome for trial in slurm.trials()] == ["succeeded"]
    slurm.is_tidy()


def test_a_server_by_itself_can_be_a_job_as_well(slurm, cluster):
    started = json.loads(
        slurm.bench("servers", "start", "small", "--executor", "slurm", "--time", "5m", "--json").stdout
    )
    assert jobs_of(slurm, cluster, started["id"]) == [f"bench-{started['id']}"]
    slurm.bench("servers", "check", started["id"])
    slurm.bench("servers", "stop", started["id"])
    assert not jobs_of(slurm, cluster, started["id"])
    slurm.is_tidy()


def far_postgres(**workload) -> dict:
    """PostgreSQL on the second of three nodes."""
    asked = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 4} | workload
    return {
        "services": {"db": {"recipe": "postgres", "node": 1}},
        "target": {"endpoint": "service:db"},
        "workload": asked,
        "resources": {"nodes": 3},
    }


def test_a_real_database_on_one_node_is_loaded_from_all_others_and_the_shards_merge_exactly(slurm):
    """Whether the machine is quiet enough for its numbers is not asked here."""
    load = {"requests": 301, "processes": 3, "nodes": "all", "think_time": 0.01}
    slurm.run("storage.postgres", code=None, **far_postgres(**load))
    (trial,) = slurm.trials()
    assert trial.outcome in ("succeeded", "invalid")
    facts = trial.meta["custom"]
    first, second, third = facts["load_nodes"]
    assert json.loads((trial.folder / "metrics.json").read_text())["config"]["nodes"] == 3, "not where the load is"
    assert facts["measured"] == 301 and facts["certificate"]["processes"] == 3
    assert facts["services"]["db"]["nodes"] == [second] and facts["services"]["db"]["password"]
    assert [facts["load_nodes"][node]["processes"] for node in (first, second, third)] == [[0], [1], [2]]
    assert all(0 < told["clock_uncertainty_us"] < 20_000 for told in facts["load_nodes"].values())
    assert all(abs(told["wall_clock_skew_us"]) < 50_000 for told in facts["load_nodes"].values()), "it is one machine"
    assert "made-up-" not in json.dumps(trial.meta) + "".join(
        path.read_text(errors="replace") for path in (trial.folder / "logs").iterdir()
    )
    assert not list(trial.folder.rglob(".load"))
    slurm.is_tidy()


def test_a_trial_on_one_node_that_wants_its_load_elsewhere_is_told(slurm):
    asked = {"services": {"db": {"recipe": "postgres"}}, "target": {"endpoint": "service:db"}}
    load = {"operation": "lookup", "rows": 100, "requests": 10, "concurrency": 2, "nodes": "others"}
    told = slurm.run("storage.postgres", code=1, workload=load, **asked)
    assert "resources: {nodes: 2}" in told["failures"][0]["message"]


def parent(pid: int) -> int:
    return int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.parametrize("victim", ["experiment", "worker", "task", "job"])
def test_whatever_is_killed_nothing_of_the_other_nodes_stays(slurm, cluster, victim):
    slurm.small("answer", "family")
    asked = apart(workload={"seconds": 120}, use={"node": "others", "replicas": 2}, nodes=3, retries={"max_retries": 0})
    submit(slurm, slurm.scenario("ask", **asked))
    wait_until(lambda: [mark for mark in slurm.marks.glob("asked-*") if mark.read_text()], "a trial that asks")
    (mark,) = slurm.marks.glob("asked-*")
    pid = int(mark.read_text())
    before = servers_of(slurm)
    assert len(before) >= 2
    if victim == "job":
        cluster.call("scancel", f"--name=bench-{slurm.run_id()}-0001")
    else:
        steps = {"experiment": 0, "worker": 1, "task": 2}[victim]
        for _ in range(steps):
            pid = parent(pid)
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not servers_of(slurm), "the end of the servers")
    settled(slurm)
    assert not jobs_of(slurm, cluster)
    if victim != "experiment":  # Slurm may give keepers no time: the next task on a node takes away what they left
        slurm.small("answer")
        slurm.run("ask", name="next", **apart())
    slurm.is_tidy()


def servers_of(lab: Lab) -> list[int]:
    """Processes that were started from this lab's small server, wherever they are."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"LAB={lab.marks}".encode() in (path / "environ").read_bytes()
            if mine and b"small_server" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_a_checkpoint_is_sharded_over_the_ranks_of_two_nodes(slurm: Lab, tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    slurm.run(
        "training.checkpoint",
        target={"python": trainer_python(), "path": str(shared)},
        workload={"ranks_per_node": 1, "size": "4MB", "tensors": 2, "saves": 1},
        resources={"nodes": 2, "memory": "2GB"},
        monitors=False,
    )
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    assert len({place["node"] for place in facts["ranks"]}) == 2 and facts["verified"].startswith("1 loads")
    assert list(shared.iterdir()) == []
