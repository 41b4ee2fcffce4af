"""Runs on a real Kubernetes while its parts break: what it costs, what is told, and that nothing is left."""

import contextlib
import json
from datetime import datetime
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.busy_api import RETRY_S, busy
from services.kubernetes_cluster import KubernetesCluster

from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused

OURS = ("--selector", "app.kubernetes.io/managed-by=benchhouse")


class Held:
    """A run of `count` trials that go on until they are released, two at a time."""

    def __init__(self, lab: Lab, cluster: KubernetesCluster, count: int = 2) -> None:
        self.lab, self.cluster = lab, cluster
        self.namespace = json.loads((lab.workspace / "site.yaml").read_text())["kubernetes"]["namespace"]
        self.gate = lab.root / "gate"
        self.gate.touch()
        wait = f"echo . >>{lab.root}/began; while [ -e {self.gate} ]; do sleep 0.1; done"
        path = lab.scenario(
            "command", target={"argv": ["sh", "-c", wait]}, workload={"executions": 1, "warmup": 0},
            repetitions=count, parallel=2, retries={"max_retries": 5, "backoff": 0.05},
        )  # fmt: skip
        self.process = lab.start("run", path, "--json")
        wait_until(lambda: self.began() >= 2, "two trials to begin", 280)

    def began(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return len((self.lab.root / "began").read_text().splitlines())
        return 0

    def release(self) -> None:
        self.gate.unlink()

    def finish(self) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=280)
        assert self.process.returncode == 0, err
        said: dict[str, Any] = json.loads(out)
        return said

    def is_clean(self) -> None:
        kinds = "pods,jobs,configmaps"
        wait_until(lambda: not self.cluster.get(kinds, "--namespace", self.namespace, *OURS), "objects to go")
        assert self.lab.damage() == []


@pytest.fixture
def held(kubernetes: Lab, kubernetes_cluster: KubernetesCluster) -> Held:
    return Held(kubernetes, kubernetes_cluster)


def attempts(lab: Lab) -> list[int]:
    return [len(trial.meta["attempts"]) for trial in lab.trials()]


@pytest.mark.slow("the cluster notices a lost node after its own timeout")
def test_daemons_may_die_and_a_node_that_loses_power_costs_its_trials_an_attempt(
    held: Held, kubernetes: Lab, kubernetes_cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    for daemon in ("kubelet-node1", "apiserver"):
        kubernetes_cluster.kill(daemon)
    for daemon in ("apiserver", "kubelet-node1"):
        kubernetes_cluster.bring_back(daemon)
    kubernetes_cluster.wait_ready()
    client = KubeClient(find_access())
    with pytest.raises(
        KubernetesRefused
    ) as refused:  # the new API server knows no version that an earlier watch has seen
        list(client.watch("/api/v1/pods", "1", 5))
    assert refused.value.status == 410
    assert held.began() == 2, "no trial was lost with a daemon"

    pods = kubernetes_cluster.get("pods", "--namespace", held.namespace)
    node = pods[0]["spec"]["nodeName"]
    hit = sum(pod["spec"]["nodeName"] == node for pod in pods)
    kubernetes_cluster.crash(node)
    kubernetes_cluster.revive(node)
    wait_until(lambda: held.began() == 2 + hit, "the trials to begin again", 280)
    held.release()
    assert held.finish()["outcomes"] == {"succeeded": 2}
    assert sum(attempts(kubernetes)) == 2 + hit
    kubernetes_cluster.wait_ready()
    held.is_clean()
    kubernetes.is_tidy()


def test_a_namespace_that_is_deleted_ends_the_run_with_words(
    held: Held, kubernetes: Lab, kubernetes_cluster: KubernetesCluster
):
    kubernetes_cluster.kubectl("delete", "namespace", held.namespace, "--wait=false")
    words = "".join(held.process.communicate(timeout=280))
    assert held.process.returncode
    assert held.namespace in words, words
    assert "Traceback" not in words
    wait_until(lambda: not kubernetes.left_running(), "processes to end")


def test_a_busy_server_that_forgets_and_has_another_clock_costs_no_trial(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
):
    ahead_s = -7200.0
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    with busy(find_access(), ahead_s) as api:
        kubernetes.variables["KUBECONFIG"] = api.kubeconfig(kubernetes.root / "busy.json")
        kubernetes.run("once", workload={"n": [0, 1, 2]}, parallel=2)
    assert attempts(kubernetes) == [1, 1, 1]
    kinds = [kind for kind, _ in api.asked]
    assert {"POST jobs", "POST configmaps", "GET pods", "WATCH pods", "DELETE configmaps"} <= set(api.gaps())
    assert min(api.gaps().values()) >= RETRY_S, api.gaps()
    assert kinds.count("POST jobs") == 1 + 2, "refused, and then a Job a slot: nothing was made twice"
    assert api.gone == 1 and kinds.count("GET pods") >= 3, "it was listed again when the server had forgotten"
    for trial in kubernetes.trials():
        there, here = trial.meta["placed"]["pod_started"], trial.meta["started"]
        skew = datetime.fromisoformat(there) - datetime.fromisoformat(here)
        assert abs(skew.total_seconds() - ahead_s) < 300, "their clock, and not ours"
    rows = json.loads(kubernetes.bench("query", "SELECT queue_s FROM trial_fact", "--json").stdout)["rows"]
    assert all(0 <= row["queue_s"] < 300 for row in rows), "by the clocks of the cluster alone"
    namespace = json.loads((kubernetes.workspace / "site.yaml").read_text())["kubernetes"]["namespace"]
    assert not kubernetes_cluster.get("configmaps", "--namespace", namespace, *OURS), "what owned all that was made"
