"""Trials of several nodes on a real Slurm cluster: servers and load on different nodes, and nothing of them left."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from laboratory import Lab, wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import collect, collect_until_done, needs_slurm, submit, use_cluster
from services.small_server import recipe, with_small
from services.trainer import trainer_python

pytestmark = needs_slurm

ASK = """
import os, subprocess, time, urllib.request
from pathlib import Path
from benchhouse import Context, Metric, experiment

def ask(target: dict, ctx: Context, seconds: float = 0.0, n: str = ""):
    Path(os.environ["LAB"], f"asked-{n}").write_text(str(os.getpid()))
    until = time.monotonic() + seconds
    while True:
        for url in target["url"].split(","):
            try:
                urllib.request.urlopen(url, timeout=5).read()
            except OSError:
                if not seconds:
                    raise
        if time.monotonic() >= until or Path(os.environ["LAB"], "enough").exists():
            break
        time.sleep(0.1)
    ctx.emit("asked", 1)
    ctx.metadata(url=target["url"], nodes=ctx.nodes, mine=os.uname().nodename)

@experiment("shared", version="1.0", metrics=[
    Metric(name="rate", unit="1/s", direction="higher", role="throughput"),
])
def shared(ctx: Context):
    # Every node prints its name; the rate follows Amdahl's law with a serial share of 10%.
    said = {}
    for node in ctx.nodes[1:]:
        command = [*ctx.on_node(node), "sh", "-c", "echo $(hostname) $NCCL_SOCKET_IFNAME"]
        said[node] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    n = len(said) + 1
    ctx.emit("rate", 100.0 * n / (1 + 0.1 * (n - 1)))
    ctx.metadata(said=said, nodes=ctx.nodes)
"""


@pytest.fixture
def slurm(lab: Lab, cluster) -> Lab:
    use_cluster(lab, cluster, network={"interface": "lo", "environment": {"NCCL_SOCKET_IFNAME": "ib0"}})
    names = "".join(f"{name} = ask:{name}\n" for name in ("ask", "shared"))
    lab.install("ask", "1.0", ASK, f"[benchhouse.experiments]\n{names}")
    return with_small(lab)


def test_a_sweep_over_numbers_of_nodes_follows_its_scaling_law(slurm):
    slurm.run("shared", resources={"nodes": [1, 2, 4]}, scaling="strong")
    for trial in slurm.trials():
        facts, nodes = trial.meta["custom"], trial.spec["resources"]["nodes"]
        assert facts["nodes"][0] == trial.meta["host"] and len(set(facts["nodes"])) == nodes
        assert facts["said"] == {node: [node, "ib0"] for node in facts["nodes"][1:]}, "with the site's variables"
    along = json.loads(slurm.bench("compare", "@last", "--along", "nodes", "--json").stdout)
    (curve,) = along["curves"]
    assert (along["kind"], along["along"]) == ("strong", "resources.nodes")
    assert [stage["place"] for stage in curve["stages"]] == [1, 2, 4]
    assert [stage["efficiency"] for stage in curve["stages"]] == pytest.approx([1, 1 / 1.1, 1 / 1.3])
    (law,) = curve["laws"]
    assert (law["law"], law["parameters"]["s"]["value"]) == ("amdahl", pytest.approx(0.1))
    slurm.is_tidy()


def test_replicas_of_a_server_run_on_the_other_nodes(slurm):
    words = recipe("answer", "secret")["command"]
    shell = ["sh", "-c", 'echo "nccl $NCCL_IB_HCA $NCCL_SOCKET_IFNAME"; exec "$0" "$@"', *words]
    slurm.small(command=shell, environment={"NCCL_IB_HCA": "mlx5_0"})
    web = {"recipe": "small", "node": "others", "replicas": 3}
    slurm.run("ask", services={"web": web}, target={"url": "service:web"}, resources={"nodes": 3})
    (trial,) = slurm.trials()
    facts = trial.meta["custom"]
    first, second, third = facts["nodes"]
    web = facts["services"]["web"]
    assert facts["mine"] == first and web["nodes"] == [second, third, second]
    assert len(set(facts["url"].split(","))) == 3
    assert (web["listens"], web["password"]) == ("network", False)
    assert "exposed" in [warning["code"] for warning in trial.meta["warnings"]]
    assert {path.name for path in (trial.folder / "logs").glob("web*.log")} == {"web.log", "web-1.log", "web-2.log"}
    words = (trial.folder / "logs" / "web.log").read_text()
    assert words.startswith("nccl mlx5_0 ib0\nstarting on"), "variables of the recipe and of the site"
    assert "my secret is [redacted]" in words
    assert not (trial.folder / ".elsewhere").exists()
    slurm.is_tidy()


def attached(**more) -> dict:
    """A scenario whose server lives as long as the run."""
    web = {"recipe": "small", "mode": "attached", "time": "90m"}
    return {"services": {"web": web}, "target": {"url": "service:web"}, "retries": {"backoff": 0.1}} | more


def state(lab: Lab) -> dict:
    path = lab.workspace / ".bench" / "runs" / lab.run_id() / "services" / "web" / "state.json"
    return json.loads(path.read_text())


def pid_in(lab: Lab, mark: str) -> int:
    """The process that wrote a mark."""
    wait_until(lambda: (lab.marks / mark).exists() and (lab.marks / mark).read_text(), mark)
    return int((lab.marks / mark).read_text())


def parent(pid: int) -> int:
    return int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def variables_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def servers_of(lab: Lab) -> dict[int, str]:
    """The processes of this lab's small servers, wherever they are, each with the id of its job."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if words[1].endswith(b"small_server.py") and f"LAB={lab.marks}".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = variables_of(int(path.name))["SLURM_JOB_ID"]
        except (OSError, IndexError):
            continue
    return found


def test_all_trials_of_a_run_share_its_server_which_ends_when_nobody_comes_back(slurm, cluster):
    """A trial that is lost and tried again finds the same server: the reaper of the first array does not end it."""
    submit(slurm, slurm.scenario("ask", workload={"n": ["a", "b"], "seconds": 300}, **attached()))
    victim = pid_in(slurm, "asked-a")
    pid_in(slurm, "asked-b")
    (row,) = json.loads(slurm.bench("servers", "ps", "--json").stdout)
    assert row["phase"] == "ready" and row["job"].isdigit() and row["host"] in ("node01", "node02", "gpu01", "gpu02")
    began, run = state(slurm)["started"], slurm.run_id()
    (slurm.marks / "asked-a").unlink()
    os.kill(parent(parent(victim)), signal.SIGKILL)
    cluster.wait_for_tasks(run, "FAILED", 1)
    assert collect(slurm)["under_way"] == 2
    pid_in(slurm, "asked-a")
    assert f"bench-{run}-reaper" in cluster.jobs(run)
    (slurm.marks / "enough").touch()

    stop = slurm.workspace / ".bench" / "runs" / run / "services" / "web" / "stop"
    wait_until(stop.exists, "the reaper")
    assert stop.read_text().strip() == "60", "an orchestrator that submits more has a minute to take it back"
    stop.write_text("0")
    wait_until(lambda: not cluster.jobs(run), "the end of all jobs")
    assert (state(slurm)["phase"], state(slurm)["started"]) == ("stopped", began)
    collect_until_done(slurm, cluster)
    trials = slurm.by("n")
    attempts = {n: [attempt["outcome"] for attempt in trial.meta["attempts"]] for n, trial in trials.items()}
    assert attempts == {"a": ["lost", "succeeded"], "b": ["succeeded"]}
    assert len({trial.meta["custom"]["url"] for trial in trials.values()}) == 1
    assert {trial.meta["custom"]["services"]["web"]["mode"] for trial in trials.values()} == {"attached"}
    slurm.is_tidy()


@pytest.mark.parametrize("victim", ["server", "job"])
def test_a_service_that_ends_too_early_fails_its_trial(slurm, cluster, victim):
    """A server that dies ends the run; a service whose job was cancelled may have been stopped by the reaper."""
    workload = {"seconds": 300, "n": ["a", "b"] if victim == "server" else "a"}
    scenario = slurm.scenario("ask", workload=workload, slurm={"throttle": 1}, **attached())
    process = slurm.start("run", scenario, "--json")
    wait_until(lambda: list(slurm.marks.glob("asked-*")), "a trial that works")
    if victim == "server":
        os.kill(next(iter(servers_of(slurm))), signal.SIGKILL)
    else:
        cluster.call("scancel", f"--name=bench-{slurm.run_id()}-web")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1, err
    endings = {(failure["outcome"], failure["code"]) for failure in json.loads(out)["failures"]}
    # The end of the run may cancel the trial before its own worker notices that the server has died.
    expected = {("failed", "server_died")} | ({("cancelled", "")} if victim == "server" else set())
    assert endings & expected
    assert len(list(slurm.marks.glob("asked-*"))) == 1, "no experiment begins without the server"
    assert slurm.events()[-1]["event"] == ("service" if victim == "server" else "finished")
    assert not cluster.jobs(slurm.run_id())
    slurm.is_tidy()


def test_a_real_database_on_one_node_is_loaded_from_all_nodes_and_the_shards_merge_exactly(slurm):
    """The test does not require a machine that is quiet enough for the measured numbers."""
    load = {"operation": "lookup", "rows": 1000, "warmup": 0, "concurrency": 4, "requests": 301, "think_time": 0.01}
    slurm.run(
        "storage.postgres", code=None, workload=load | {"processes": 2, "nodes": "all"}, resources={"nodes": 2},
        services={"db": {"recipe": "postgres", "node": 1}}, target={"endpoint": "service:db"},
    )  # fmt: skip
    (trial,) = slurm.trials()
    assert trial.outcome in ("succeeded", "invalid")
    facts = trial.meta["custom"]
    first, second = facts["load_nodes"]
    assert trial.metrics["config"]["nodes"] == 2
    assert facts["measured"] == 301 and facts["certificate"]["processes"] == 2
    assert facts["services"]["db"]["nodes"] == [second] and facts["services"]["db"]["password"]
    assert [facts["load_nodes"][node]["processes"] for node in (first, second)] == [[0], [1]]
    assert all(0 < node["clock_uncertainty_us"] < 20_000 for node in facts["load_nodes"].values())
    assert all(abs(node["wall_clock_skew_us"]) < 50_000 for node in facts["load_nodes"].values()), "it is one machine"
    logs = "".join(path.read_text(errors="replace") for path in (trial.folder / "logs").iterdir())
    assert "made-up-" not in json.dumps(trial.meta) + logs
    assert not list(trial.folder.rglob(".load"))
    slurm.is_tidy()


def test_whatever_is_killed_nothing_of_the_other_nodes_stays(slurm, cluster):
    """Five trials at once, each with a server on another node that starts processes of its own."""
    slurm.small("answer", "family")
    victims = ["experiment", "worker", "task", "job", "server"]
    scenario = slurm.scenario(
        "ask", workload={"seconds": 300, "n": victims}, retries={"max_retries": 0}, resources={"nodes": 2},
        services={"web": {"recipe": "small", "node": 1}}, target={"url": "service:web"},
    )  # fmt: skip
    submit(slurm, scenario)
    pids = {victim: pid_in(slurm, f"asked-{victim}") for victim in victims}
    jobs = {victim: variables_of(pid)["SLURM_JOB_ID"] for victim, pid in pids.items()}
    assert set(servers_of(slurm).values()) == set(jobs.values())
    os.kill(pids["experiment"], signal.SIGKILL)
    os.kill(parent(pids["worker"]), signal.SIGKILL)
    os.kill(parent(parent(pids["task"])), signal.SIGKILL)
    array = variables_of(pids["job"])
    cluster.call("scancel", f"{array['SLURM_ARRAY_JOB_ID']}_{array['SLURM_ARRAY_TASK_ID']}")
    os.kill(min(pid for pid, job in servers_of(slurm).items() if job == jobs["server"]), signal.SIGKILL)
    wait_until(lambda: not servers_of(slurm), "the end of the servers")
    collect_until_done(slurm, cluster)
    codes = {n: (trial.outcome, trial.code) for n, trial in slurm.by("n").items()}
    assert codes == {"experiment": ("error", "SIGKILL"), "server": ("failed", "server_died")}
    assert not cluster.jobs(slurm.run_id())
    slurm.small("answer")  # Slurm may give keepers no time: the next task on a node takes away what they left
    more = {"services": {"web": {"recipe": "small", "node": "others", "replicas": 3}}, "target": {"url": "service:web"}}
    slurm.run("ask", name="next", resources={"nodes": 4}, **more)
    slurm.is_tidy()


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
