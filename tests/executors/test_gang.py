"""Trials of several nodes on a cluster, whose nodes are faked by processes of this machine; all else is real."""

import json
import os
import signal
import sys

import pytest
from experiments.training.test_run import HEAD
from laboratory import Lab, wait_until
from services.small_server import with_small

from benchhouse.schema.telemetry import TelemetrySummary

FAKE = """
import json, os, subprocess, sys
from pathlib import Path
from benchhouse.executors.cluster_engine import ClusterNode, serve
from benchhouse.executors.remote_cluster import ClusterExecutor

class FakeNodes(ClusterExecutor):
    title, engine, library, has_gangs = "Fake", "fake_nodes", "json", True

    def __init__(self, assignment):
        super().__init__(assignment, "fake://1", float(os.environ.get("PATIENCE", "60")))

    def settings(self):
        return {}

KEEP = "import json, sys; from benchhouse.executors.cluster_node import keep_slot; keep_slot(*json.loads(sys.argv[1]))"

class FakeEngine:
    def __init__(self):
        self.waiting, self.slots, self.opened = [], {}, False

    def open(self, settings):
        self.opened = True

    def nodes(self):
        return [ClusterNode(name=name, cpus=2) for name in ("near", "far")]

    def start(self, slot, environment):
        self.waiting.append((slot, environment))

    def gone(self):
        for slot, environment in list(self.waiting):
            node = "near" if slot.name == slot.gang else "far"
            if not Path(os.environ["LAB"], f"busy-{node}").exists():
                self.waiting.remove((slot, environment))
                place = {"executor": "fake", "node": node, "address": "127.0.0.1"}
                words = json.dumps([slot.folder, slot.python, environment, place])
                self.slots[slot.name] = subprocess.Popen([sys.executable, "-c", KEEP, words])
                Path(os.environ["LAB"], f"slot-{node}").write_text(str(self.slots[slot.name].pid))
        over = {name: f"code {item.returncode}" for name, item in self.slots.items() if item.poll() is not None}
        self.slots = {name: item for name, item in self.slots.items() if name not in over}
        return over

    def stop(self, slots):
        self.waiting = [item for item in self.waiting if item[0].name not in slots]
        for name in slots:
            if name in self.slots:
                self.slots[name].kill()

    def close(self):
        self.stop(list(self.slots))

if __name__ == "__main__":
    sys.exit(serve(FakeEngine()))
"""
STEPS = """
print(f"rank {rank} of {world} meets at {os.environ['MASTER_ADDR']} on {os.environ['BENCHHOUSE_NODE']}", flush=True)
for step in range(6):
    begin = time.monotonic()
    time.sleep(0.02)
    emit({"step": step, "t_start": begin, "t_end": time.monotonic(), "tokens": 10})
"""


REQUEST = """
import os, time, urllib.request
from pathlib import Path
from benchhouse import Context

def request(target: dict, ctx: Context, seconds: float = 0.0):
    urllib.request.urlopen(target["url"], timeout=5).read()
    Path(os.environ["LAB"], "worker").write_text(str(os.getppid()))
    time.sleep(seconds)
    ctx.emit("requests", 1)
"""
FAR = {"services": {"web": {"recipe": "small", "node": 1}}, "target": {"url": "service:web"}, "resources": {"nodes": 2}}
"""A scenario whose server runs on the second of two nodes."""


@pytest.fixture
def fake(lab: Lab) -> Lab:
    lab.install("fake_nodes", "1.0", FAKE, "[benchhouse.executors]\nfake = fake_nodes:FakeNodes\n")
    (lab.workspace / "site.yaml").write_text(json.dumps({"site": "t", "executor": "fake"}))
    return lab


def training(code: str = STEPS, **more) -> dict:
    target = {"argv": [sys.executable, "-S", "-c", HEAD + code], "name": "t"}
    workload = {"ranks_per_node": 2, "warmup": 0}
    return {"target": target, "workload": workload, "resources": {"nodes": 2}} | more


def summary_of(trial) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((trial.folder / "telemetry" / "summary.json").read_bytes())


def test_ranks_are_on_all_nodes_and_each_node_is_sampled(fake: Lab):
    fake.run("training.run", **training(), repetitions=2)
    trials = fake.trials()
    assert len(trials) == 2
    for trial in trials:
        facts = trial.meta["custom"]
        assert facts["nodes"] == ["near", "far"] and facts["world"] == 4 and facts["measured_steps"] == 6
        assert [place["node"] for place in facts["ranks"]] == ["near", "near", "far", "far"]
        assert [place["local_rank"] for place in facts["ranks"]] == [0, 1] * 2
        for place in facts["ranks"]:
            words = (trial.folder / "artifacts" / f"rank-{place['rank']}.attempt-0.log").read_text()
            assert words == f"rank {place['rank']} of 4 meets at 127.0.0.1 on {place['node']}\n"
        assert facts["clocks"]["far"]["uncertainty_s"] < 0.5
        assert (trial.meta["placed"]["node"], trial.meta["placed"]["nodes"]) == ("near", "near,far")
        (sampled,) = summary_of(trial).nodes
        assert sampled.name == "far" and not sampled.problem and sampled.samples
        ranks = {path.name for path in (trial.folder / "telemetry").glob("*rank*")}
        assert ranks <= {"rank.0.parquet", "rank.1.parquet", "far.rank.2.parquet", "far.rank.3.parquet"}
    run = fake.workspace / ".bench" / "runs" / fake.run_id()
    assert len(list(run.glob("slots/*/gang.json"))) == 2, "one gang for both trials"
    assert not list(run.glob("slots/*/nodes.json")), "its secret is not kept"
    fake.is_tidy()


def test_with_either_of_its_slots_a_gang_and_its_trial_are_lost_and_run_again(fake: Lab):
    fake.hold(0)
    process = fake.start("run", fake.scenario("slow", workload={"seconds": 0}, resources={"nodes": 2}), "--json")
    for count, node in enumerate(("far", "near"), 1):
        fake.wait_for_mark("slow-*")
        (mark,) = fake.marks.glob("slow-[0-9]-*")
        mark.unlink()
        os.kill(int((fake.marks / f"slot-{node}").read_text()), signal.SIGKILL)
        fake.wait_for_lost(count)
    fake.release()
    output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages
    assert json.loads(output)["outcomes"] == {"succeeded": 1}
    lost = [event["reason"] for event in fake.events() if event.get("outcome") == "lost"]
    assert [f"its slot on {node} ended" in reason for node, reason in zip(("far", "near"), lost, strict=True)] == [
        True
    ] * 2
    fake.is_tidy()


def test_a_gang_that_gets_some_of_its_nodes_gives_them_back_and_tries_again(fake: Lab):
    fake.variables["PATIENCE"] = "3"
    (fake.marks / "busy-far").touch()
    process = fake.start("run", fake.scenario("once", resources={"nodes": 2}))
    wait_until((fake.marks / "slot-near").exists, "half of a gang")
    first = int((fake.marks / "slot-near").read_text())
    wait_until(lambda: int((fake.marks / "slot-near").read_text() or first) != first, "the next try")
    (fake.marks / "busy-far").unlink()
    _, words = process.communicate(timeout=120)
    assert process.returncode == 0, words
    assert "1 of 2 nodes were there for 3.0 s, and the others not: all are given back" in words
    fake.is_tidy()


def test_trials_of_different_sizes_get_slots_of_their_own(fake: Lab):
    fake.run("once", resources={"nodes": [1, 2], "cpus": [1, 2]})
    sizes = [(trial.spec["resources"]["nodes"], trial.spec["resources"]["cpus"]) for trial in fake.trials()]
    assert sorted(sizes) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    fake.is_tidy()


def test_more_nodes_than_there_are_is_refused(fake: Lab):
    done = fake.bench("run", fake.scenario("once", resources={"nodes": 3}), code=2)
    assert (
        "a trial asks for 3 nodes, and 2 of the Fake cluster can give what it needs on each: near, far" in done.stderr
    )


@pytest.fixture
def client(fake: Lab) -> Lab:
    fake.install("client", "1.0", REQUEST, "[benchhouse.experiments]\nrequest = client:request\n")
    return with_small(fake)


def test_a_server_runs_on_the_second_node_and_its_client_on_the_first(client: Lab):
    client.run("request", **FAR)
    (trial,) = client.trials()
    assert trial.meta["custom"]["services"]["web"]["nodes"] == ["far"]
    assert (trial.folder / "logs" / "web.log").read_text().startswith("starting on")
    client.is_tidy()


def test_a_killed_worker_leaves_nothing_on_the_other_node(client: Lab):
    def servers() -> list[str]:
        return [line for line in client.left_running() if "small_server" in line]

    client.small("answer", "family")
    more = {"workload": {"seconds": 120}, "retries": {"max_retries": 0}}
    process = client.start("run", client.scenario("request", **FAR, **more))
    mark = client.marks / "worker"
    wait_until(lambda: mark.exists() and mark.read_text(), "a trial that uses the server")
    assert servers()
    os.kill(int(mark.read_text()), signal.SIGKILL)
    wait_until(lambda: not servers(), "the end of the server")
    process.communicate(timeout=120)
    client.is_tidy()
