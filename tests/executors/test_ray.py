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
from executors.test_gang import summary_of, training
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
def test_a_node_that_dies_costs_only_its_trials(ray: Lab, ray_cluster: RayCluster):
    ray.hold(0)
    scenario = ray.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2, 3]}, parallel=4)
    process = ray.start("run", scenario, "--json")
    ray.wait_for_mark("slow-*", 4)
    ray_cluster.do("kill", "n1")
    ray.wait_for_lost(2)
    ray.release()
    said, words = process.communicate(timeout=280)
    ray_cluster.do("add", "n1")
    assert process.returncode == 0, words
    assert json.loads(said)["outcomes"] == {"succeeded": 4}
    attempts = [[item["outcome"] for item in trial.meta["attempts"]] for trial in ray.trials()]
    assert sorted(map(len, attempts)) == [1, 1, 2, 2]
    assert {outcome for tried in attempts for outcome in tried[:-1]} == {"lost"}
    lost = [event for event in ray.events() if event.get("outcome") == "lost"]
    assert all("its slot on n1 ended" in event["reason"] for event in lost)
    assert {trial.meta["placed"]["node"] for trial in ray.trials()} == {"n2"}
    wait_until(lambda: not ray.left_running(), "processes to end")
    assert ray.damage() == []


def test_a_killed_ray_worker_takes_its_trial_along_and_the_trial_is_run_again(ray: Lab):
    ray.hold(0)
    process = ray.start("run", ray.scenario("slow", workload={"seconds": 0}), "--json")
    ray.wait_for_mark("slow-*")
    host = next(item["ready"] for item in reports(ray) if "ready" in item)
    os.kill(parent(host), signal.SIGKILL)
    ray.wait_for_lost(1)
    ray.release()
    said, words = process.communicate(timeout=280)
    assert process.returncode == 0, words
    assert json.loads(said)["outcomes"] == {"succeeded": 1}
    assert [item["outcome"] for item in ray.trials()[0].meta["attempts"]] == ["lost", "succeeded"]
    ray.is_tidy()


def test_the_clusters_own_kinds_of_resources_and_its_environments_are_used(ray: Lab):
    asks = {"resources": {"widget": 1}, "runtime_env": {"env_vars": {"COLOUR": "blue"}}}
    # Ray gives its tasks as many threads as cores, by OMP_NUM_THREADS: a trial would be another one than elsewhere.
    shell = {"argv": ["/bin/sh", "-c", 'test "$$COLOUR" = blue && test -z "$$OMP_NUM_THREADS"']}
    ray.run("command", target=shell, workload={"executions": 1}, ray=asks)
    assert ray.trials()[0].meta["placed"]["node"] == "n2"
    done = ray.bench("run", ray.scenario("once", ray={"resources": {"gadget": 2}}), "--new", code=2)
    assert "2 gadget" in done.stderr
    assert "n2 has 2 cores, 0 GPUs" in done.stderr


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


def test_a_run_that_kuberay_carries_uses_the_cluster_that_it_is_in(ray: Lab, ray_cluster: RayCluster):
    """As in the head of a RayJob: workers that are still to come are counted."""
    cluster = {"kuberay": {"workers": [{"cpus": 2, "memory": "1GiB", "min": 0, "max": 2}]}}
    site = {"site": "t", "executor": "ray", "ray": {"cluster": cluster}}
    (ray.workspace / "site.yaml").write_text(json.dumps(site))
    ray.variables["RAY_ADDRESS"] = ray_cluster.address
    ray.bench("run", ray.scenario("once"), timeout_s=280)
    assert ray.trials()[0].meta["placed"]["node"] in ("n1", "n2")
    done = ray.bench("run", "--new", ray.scenario("once", resources={"cpus": 3}), code=2, timeout_s=280)
    assert "a pod of workers has 2 cores" in done.stderr


def test_the_ranks_of_a_training_are_processes_of_its_trial(ray: Lab):
    steps = "for step in range(4): print(json.dumps({'step': step, 'step_s': 0.5}), flush=True)"
    target = {"argv": [sys.executable, "-S", "-c", f"import json\n{steps}"]}
    ray.run("training.run", target=target, workload={"ranks": 2, "warmup": 0}, resources={"cpus": 2})
    (trial,) = ray.trials()
    facts = trial.meta["custom"]
    assert facts["world"] == 2 and len(facts["nodes"]) == 1 and facts["records_from"] == "JSON lines of the log"
    assert {place["local_rank"] for place in facts["ranks"]} == {0, 1}


def test_a_training_over_two_nodes_has_ranks_and_samples_of_both(ray: Lab):
    ray.run("training.run", **training())
    (trial,) = ray.trials()
    facts = trial.meta["custom"]
    assert sorted(facts["nodes"]) == ["n1", "n2"] and facts["world"] == 4 and facts["measured_steps"] == 6
    first, second = facts["nodes"]
    assert [place["node"] for place in facts["ranks"]] == [first, first, second, second]
    assert trial.meta["placed"]["nodes"] == f"{first},{second}" and trial.meta["placed"]["node"] == first
    (sampled,) = summary_of(trial).nodes
    assert sampled.name == second and not sampled.problem and sampled.samples
    ray.is_tidy()


def test_torchrun_has_an_agent_on_each_node_and_real_ranks_meet(ray: Lab):
    own = {"TORCHINDUCTOR_CACHE_DIR": str(ray.marks)}  # torch makes it at import, and leaves it
    workload = {"ranks_per_node": 1, "launcher": "torchrun", "warmup": 1, "environment": own}
    target = small_gpt("--steps", 5)
    ray.run("training.run", target=target, workload=workload, resources={"nodes": 2}, monitors=False)
    facts = ray.trials()[0].meta["custom"]
    assert len({place["node"] for place in facts["ranks"]}) == facts["world"] == 2
    assert facts["loss_digest"] and facts["records_from"] == "emitted"
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
