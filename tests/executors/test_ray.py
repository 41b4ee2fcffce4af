"""Trials on a real Ray cluster of several nodes, which are killed; and on one of a run's own, which dies for good."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from executors.test_gang import summary_of
from laboratory import Lab, wait_until
from services.ray_cluster import RayCluster
from services.trainer import lab as small_gpt

from benchhouse.executors.ray import address
from benchhouse.executors.ray_engine import endpoint, unanswered


@pytest.fixture
def ray(lab: Lab, ray_cluster: RayCluster) -> Lab:
    """A laboratory whose scenarios go to the cluster."""
    lab.variables |= ray_cluster.variables
    (lab.workspace / "site.yaml").write_text(f"site: t\nexecutor: ray\nray: {{address: '{ray_cluster.address}'}}\n")
    return lab


def status(lab: Lab) -> dict:
    return json.loads(lab.bench("status", "@last", "--json", code=None).stdout)


def reports(lab: Lab) -> list[dict]:
    """What the slots of the last run have said."""
    runs = lab.workspace / ".bench" / "runs"
    paths = sorted((runs / lab.run_id()).glob("slots/*/reports.jsonl")) if runs.is_dir() else []
    return [json.loads(line) for path in paths for line in path.read_text().splitlines() if line.endswith("}")]


def parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2 :].split()[1])


@pytest.mark.slow("Ray notices a dead node after its own timeout")
def test_a_lost_worker_and_a_lost_node_cost_only_their_trials(ray: Lab, ray_cluster: RayCluster):
    """Four trials run on two nodes. First Ray's worker process of one trial is killed, then a whole node."""
    ray.hold(0)
    retries = {"max_retries": 3, "backoff": 0.05}
    scenario = ray.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2, 3]}, parallel=4, retries=retries)
    process = ray.start("run", scenario, "--json")
    ray.wait_for_mark("slow-*", 4)
    host = next(item["ready"] for item in reports(ray) if "ready" in item)
    os.kill(parent(host), signal.SIGKILL)
    ray.wait_for_lost(1)
    wait_until(lambda: sum("ready" in item for item in reports(ray)) == 5, "a slot instead of the lost one", 280)
    ray_cluster.do("kill", "n1")
    ray.wait_for_lost(3)
    ray.release()
    output, messages = process.communicate(timeout=280)
    ray_cluster.do("add", "n1")
    assert process.returncode == 0, messages
    assert json.loads(output)["outcomes"] == {"succeeded": 4}
    lost = [event for event in ray.events() if event.get("outcome") == "lost"]
    assert len(lost) == 3
    assert all("its slot on n1 ended" in event["reason"] for event in lost[1:])
    attempts = [[item["outcome"] for item in trial.meta["attempts"]] for trial in ray.trials()]
    assert sum(map(len, attempts)) == 4 + 3
    assert {outcome for tried in attempts for outcome in tried[:-1]} == {"lost"}
    assert {trial.meta["placed"]["node"] for trial in ray.trials()} == {"n2"}
    ray.is_tidy()


def test_a_run_is_handed_over_as_one_job_and_stopped_through_the_cluster(ray: Lab, ray_cluster: RayCluster):
    (ray.workspace / "site.yaml").write_text(f"site: t\nexecutor: ray\nray: {{address: '{ray_cluster.dashboard}'}}\n")
    sleep = {"target": {"argv": ["/bin/sleep", "0.2"]}, "workload": {"executions": 1}}
    refused = ray.bench("run", ray.scenario("command", **sleep), code=2)
    assert "bench submit hands the run over" in refused.stderr
    said = json.loads(ray.bench("submit", ray.scenario("command", **sleep, repetitions=200), "--new", "--json").stdout)
    assert said["job"] == f"bench-{said['run_id']}-1"
    assert status(ray)["state"] in ("waiting", "running")  # its job may not have begun: nothing to be resumed
    wait_until(lambda: len(ray.folders()) >= 2, "two sealed trials", 240)
    assert status(ray)["state"] == "running"
    assert f"stopped (job {said['job']})" in ray.bench("stop", "@last", timeout_s=240).stdout
    assert status(ray)["state"] == "interrupted"
    assert {trial.meta["placed"]["executor"] for trial in ray.trials()} == {"ray"}


@pytest.mark.slow("Ray starts a cluster, and notices its end after its own timeout")
def test_a_cluster_that_dies_for_good_leaves_a_run_that_is_finished_elsewhere(lab: Lab):
    """The run's own cluster, so that no other test loses its."""
    lab.hold(2)
    workload = {"seconds": 0, "n": [0, 1, 2, 3]}
    process = lab.start("run", lab.scenario("slow", workload=workload, executor="ray"))
    wait_until(lambda: len(lab.folders()) >= 2, "two sealed trials", 280)
    cluster = [line for line in lab.left_running() if "/site-packages/ray/" in line or " ray::" in line]
    assert any("gcs_server" in line for line in cluster)
    for line in cluster:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    _, words = process.communicate(timeout=280)
    assert process.returncode == 1, words
    lab.release()
    assert "cluster (a cluster of its own) is gone" in words
    assert f"bench run --resume {lab.run_id()} --executor local" in words
    said = status(lab)
    assert said["state"] == "interrupted"
    assert "is gone" in said["stopped"]
    wait_until(lambda: not lab.left_running(), "all of the cluster to end", 240)
    elsewhere = lab.bench("run", lab.scenario("slow", workload=workload), "--dry-run")
    assert elsewhere.stdout
    lab.bench("run", "--resume", "@last", "--executor", "local")
    trials = lab.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 4
    assert {trial.spec["executor"] for trial in trials} == {"ray", "local"}
    assert len({trial.spec["plan_digest"] for trial in trials}) == 1
    lab.is_tidy()


def test_an_address_that_does_not_answer_is_an_error_soon(lab: Lab):
    done = lab.bench("run", lab.scenario("once", executor="ray", ray={"address": "127.0.0.1:9"}), code=2)
    assert "no Ray cluster answers at 127.0.0.1:9: Connection refused" in done.stderr
    done = lab.bench("submit", lab.scenario("once", executor="ray", ray={"address": "http://127.0.0.1:9"}), code=2)
    assert "no Ray cluster answers at http://127.0.0.1:9" in done.stderr
    assert not lab.folders()


HANGING = """
import threading, time
from benchhouse.executors import ray_engine

class FakeHangingRay(ray_engine.RayEngine):
    def open(self, settings):
        self.address = "127.0.0.1:9"
        threading.Thread(target=self._watch, daemon=True).start()
    def nodes(self):
        return []
    def gone(self):
        time.sleep(600)

ray_engine._LOOK_S, ray_engine._GONE_S = 0.1, 0.2
ray_engine.serve(FakeHangingRay())
"""


def test_a_head_that_is_gone_is_told_though_a_call_of_rays_does_not_return():
    """As where this node died with it: Ray itself would wait for a minute."""
    command = [sys.executable, "-c", HANGING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        print('{"open": {}}', file=process.stdin, flush=True)
        assert [json.loads(line) for line in process.stdout] == [
            {"nodes": []}, {"lost": "127.0.0.1:9 has not answered for 0.2 s: Connection refused"}
        ]  # fmt: skip
        assert process.wait(timeout=120) == 1


def test_a_misspelt_address_is_shown_in_its_file(lab: Lab):
    done = lab.bench("validate", lab.scenario("once", executor="ray", ray={"address": "ray:/head"}), code=2)
    assert "is no address of Ray" in done.stderr
    assert "s.yaml:1:" in done.stderr


def test_something_that_is_no_ray_is_told_from_something_silent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert unanswered(*silent.getsockname(), limit_s=0.2) == "no answer within 0.2 s"
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert unanswered(*other.getsockname(), limit_s=60) == "something other than Ray is there"
        thread.join(120)


def test_addresses(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert address(None) == "local"
    assert address("ray://a:1") == "ray://a:1"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert address(None) == "10.0.0.1:6379"
    assert address("http://a:8265") == "10.0.0.1:6379"  # inside of the job that carries the run
    assert address("b:6379") == "b:6379"
    assert endpoint("ray://head:10001") == ("head", 10001)
    assert endpoint("[::1]:6379") == ("::1", 6379)


def test_a_run_inside_of_a_rayjob_uses_its_cluster_with_custom_resources_and_environments(
    ray: Lab, ray_cluster: RayCluster
):
    """As in the head of a RayJob: workers that KubeRay may still start count when a request is refused."""
    cluster = {"kuberay": {"workers": [{"cpus": 2, "memory": "1GiB", "min": 0, "max": 2}]}}
    site = {"site": "t", "executor": "ray", "ray": {"cluster": cluster}}
    (ray.workspace / "site.yaml").write_text(json.dumps(site))
    ray.variables["RAY_ADDRESS"] = ray_cluster.address
    settings = {"resources": {"widget": 1}, "runtime_env": {"env_vars": {"COLOUR": "blue"}}}
    # Ray sets OMP_NUM_THREADS for its tasks, and a trial with it would differ from a trial on another executor.
    shell = {"argv": ["/bin/sh", "-c", 'test "$$COLOUR" = blue && test -z "$$OMP_NUM_THREADS"']}
    ray.run("command", target=shell, workload={"executions": 1}, ray=settings)
    assert ray.trials()[0].meta["placed"]["node"] == "n2"
    done = ray.bench("run", "--new", ray.scenario("once", resources={"cpus": 3}), code=2, timeout_s=280)
    assert "a pod of workers has 2 cores" in done.stderr
    site["ray"] = {"address": ray_cluster.address}
    (ray.workspace / "site.yaml").write_text(json.dumps(site))
    done = ray.bench("run", ray.scenario("once", ray={"resources": {"gadget": 2}}), "--new", code=2)
    assert "2 gadget" in done.stderr
    assert "n2 has 2 cores, 0 GPUs" in done.stderr


@pytest.mark.slow("Ray starts torchrun on two nodes, and agents and ranks import torch")
def test_torchrun_has_an_agent_on_each_of_two_nodes_and_both_are_sampled(ray: Lab):
    own = {"TORCHINDUCTOR_CACHE_DIR": str(ray.marks)}  # torch makes it at import, and leaves it
    workload = {"ranks_per_node": 1, "launcher": "torchrun", "warmup": 1, "environment": own}
    target = small_gpt("--steps", 5)
    ray.run("training.run", target=target, workload=workload, resources={"nodes": 2})
    (trial,) = ray.trials()
    facts, placed = trial.meta["custom"], trial.meta["placed"]
    assert sorted(facts["nodes"]) == ["n1", "n2"] and facts["world"] == 2
    assert [place["node"] for place in facts["ranks"]] == facts["nodes"]
    assert facts["loss_digest"] and facts["records_from"] == "emitted"
    assert (placed["node"], placed["nodes"]) == (facts["nodes"][0], ",".join(facts["nodes"]))
    (sampled,) = summary_of(trial).nodes
    assert sampled.name == facts["nodes"][1] and not sampled.problem and sampled.samples
    ray.is_tidy()


@pytest.mark.slow("Ray notices a dead node after its own timeout")
def test_with_one_of_its_nodes_a_trial_of_two_is_lost_and_waits_for_another(ray: Lab, ray_cluster: RayCluster):
    ray.hold(0)
    process = ray.start("run", ray.scenario("slow", workload={"seconds": 0}, resources={"nodes": 2}), "--json")
    ray.wait_for_mark("slow-*")
    ray_cluster.do("kill", "n2")
    ray.wait_for_lost(1)
    ray_cluster.do("add", "n2")
    ray.release()
    output, words = process.communicate(timeout=280)
    assert process.returncode == 0, words
    assert json.loads(output)["outcomes"] == {"succeeded": 1}
    (lost,) = [event for event in ray.events() if event.get("outcome") == "lost"]
    assert "its slot on n2 ended" in lost["reason"]
    ray.is_tidy()
