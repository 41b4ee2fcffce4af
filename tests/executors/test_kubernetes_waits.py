"""What a run on a real Kubernetes waits for is told with its time, kept as evidence, and part of no result.

Autoscalers and Kueue could not be run: their events and objects are planted as they publish them, on pods that wait.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.kubernetes_cluster import KubernetesCluster
from services.kueue_crd import condition, definition, plant

from benchhouse.executors.kubernetes_kueue import KueueQueue, queue_wait
from benchhouse.executors.kubernetes_waits import scaling_waits
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient

FULL = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
STARTS = "pod triggered scale-up: [{pool-a 1->2 (max: 3)}]"


@pytest.fixture(scope="module")
def kueue(kubernetes_cluster: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """The cluster, which knows Workloads meanwhile."""
    kubernetes_cluster.kubectl("apply", "--filename", "-", document=definition())
    kubernetes_cluster.kubectl("wait", "--for=condition=Established", "crd/workloads.kueue.x-k8s.io", "--timeout=60s")
    yield kubernetes_cluster
    kubernetes_cluster.kubectl("delete", "crd", "workloads.kueue.x-k8s.io", "--timeout=60s")


def site_of(lab: Lab, **more: Any) -> str:
    """Its namespace, with `more` in the profile."""
    path = lab.workspace / "site.yaml"
    site = json.loads(path.read_text())
    site["kubernetes"] |= more
    path.write_text(json.dumps(site))
    return str(site["kubernetes"]["namespace"])


def tell(cluster: KubernetesCluster, pod: dict[str, Any], reason: str, message: str) -> None:
    """An event of an autoscaler about a pod."""
    metadata, now = pod["metadata"], pod["metadata"]["creationTimestamp"]
    about = {key: metadata[key] for key in ("name", "namespace", "uid")} | {"kind": "Pod", "apiVersion": "v1"}
    event = {
        "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": reason, "message": message,
        "metadata": {"name": f"{metadata['name']}.{reason.lower()}", "namespace": metadata["namespace"]},
        "involvedObject": about, "source": {"component": "cluster-autoscaler"}, "firstTimestamp": now,
        "lastTimestamp": now, "count": 1,
    }  # fmt: skip
    cluster.kubectl("create", "--filename", "-", document=event)


def seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def test_a_pod_that_waits_for_a_node_is_told_with_its_time_which_no_trial_has(
    kubernetes: Lab, kueue: KubernetesCluster
):
    namespace = site_of(kubernetes, autoscaled=True, node_selector={"pool": "new"}, patience=2.0, queue="team")
    process = kubernetes.start(
        "run", kubernetes.scenario("slow", workload={"seconds": 0.5}, monitors={"interval": 0.1})
    )

    def pods() -> list[dict[str, Any]]:
        found = kueue.get("pods", "--namespace", namespace)
        return [pod for pod in found if pod["status"].get("conditions")]

    wait_until(pods, "a pod that no node takes")
    [pod], [job] = pods(), kueue.get("jobs", "--namespace", namespace)
    created = job["metadata"]["creationTimestamp"]
    admitted = [condition(kind, "True", created) for kind in ("QuotaReserved", "Admitted")]
    plant(kueue, job, {"conditions": admitted, "admission": {"clusterQueue": "all", "podSetAssignments": []}})
    tell(kueue, pod, "TriggeredScaleUp", STARTS)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(kubernetes.bench("status", "@last", "--json", code=None).stdout)
        return found

    wait_until(lambda: [wait["reason"] for wait in status()["waits"]] == ["TriggeredScaleUp"], "the autoscaler's word")
    waited_s = status()["waits"][0]["waited_s"]
    shown = kubernetes.bench("status", "@last", code=None).stdout
    assert "waiting    1 slot, the first for " in shown and STARTS in shown
    kueue.kubectl("label", "node", "node2", "pool=new")
    try:
        _, words = process.communicate(timeout=120)
    finally:
        kueue.kubectl("label", "node", "node2", "pool-")
    assert process.returncode == 0, words
    assert f"a pod waits for a node, which the autoscaler is starting: {STARTS}" in words
    assert "a pod that waited " in words and status()["waits"] == []

    [trial] = kubernetes.trials()
    placed = trial.meta["placed"]
    assert (placed["queue"], placed["cluster_queue"], placed["admitted"]) == ("team", "all", created)
    place_s = seconds(placed["job_created"], placed["pod_started"])
    assert place_s >= waited_s - 2, "whole seconds of the cluster's clock"
    asked = "SELECT queue_s, duration_s FROM trial_fact"
    [row] = json.loads(kubernetes.bench("query", asked, "--json").stdout)["rows"]
    assert row["queue_s"] == place_s and row["duration_s"] < waited_s, "the wait is none of the trial's time"
    lines = [json.loads(line) for line in (trial.folder / "raw_evidence.jsonl").read_text().splitlines()]
    names = [line["name"] for line in lines if line["kind"] == "scheduler_event"]
    assert names == [
        "submitted", "quota_reserved", "admitted", "job_started", "pod_created", "pod_scheduled", "pod_started",
        "trial_started", "trial_ended",
    ]  # fmt: skip
    asked = "SELECT series, avg FROM telemetry_slice_fact WHERE family = 'scheduler' AND phase = 'trial'"
    rows = json.loads(kubernetes.bench("query", asked, "--json").stdout)["rows"]
    sampled = {item["series"]: item["avg"] for item in rows}
    assert sampled["place_wait"] == place_s and sampled["queue_wait"] == 0 and sampled["node_wait"] <= place_s


def test_what_kueue_has_not_admitted_waits_in_its_words(kubernetes: Lab, kueue: KubernetesCluster, monkeypatch: Any):
    namespace = site_of(kubernetes)
    container = {"name": "c", "image": "localhost/python:3.11"}
    spec = {"parallelism": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one", "namespace": namespace}}
    kueue.kubectl("create", "--filename", "-", document=document | {"spec": spec})
    monkeypatch.setenv("KUBECONFIG", kueue.kubeconfig)
    queue = KueueQueue(KubeClient(find_access()), namespace, "team")
    [job] = kueue.get("jobs", "--namespace", namespace)
    uid = job["metadata"]["uid"]
    assert queue.waits([job["metadata"]]) == {}
    pending = condition("QuotaReserved", "False", "2026-01-01T00:00:01Z", FULL, "Pending")
    plant(kueue, job, {"conditions": [pending]})
    wait = queue.waits([job["metadata"]])[uid]
    assert (wait.reason, wait.text) == ("QuotaReserved", f"waits for quota in the queue team: {FULL}")
    times = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:12Z")
    done = [condition(kind, "True", time) for kind, time in zip(("QuotaReserved", "Admitted"), times, strict=True)]
    plant(kueue, job, {"conditions": done, "admission": {"clusterQueue": "all", "podSetAssignments": []}})
    facts = queue.admission(job["metadata"])
    assert (facts["quota_reserved"], facts["admitted"], facts["cluster_queue"]) == (*times, "all")
    nowhere = KueueQueue(KubeClient(find_access()), "no-such-namespace", "team")
    assert nowhere.waits([job["metadata"]]) == {}


def test_a_workload_with_quota_waits_for_its_checks():
    checks = [{"name": "budget", "state": "Pending"}, {"name": "nodes", "state": "Ready"}]
    status = {"conditions": [condition("QuotaReserved", "True", "")], "admissionChecks": checks}
    wait = queue_wait({"spec": {"queueName": "team"}, "status": status})
    assert wait.text == "has quota in the queue team, and waits for budget"
    assert "Kueue has not looked at it yet" in queue_wait({"spec": {"queueName": "team"}}).text


@pytest.mark.parametrize(
    ("reason", "message", "words", "brings"),
    [
        ("TriggeredScaleUp", STARTS, "which the autoscaler is starting", True),
        ("Nominated", "Pod should schedule on: nodeclaim/default-x7", "which the autoscaler is starting", True),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 max node group size reached",
            "does not start one",
            False,
        ),
        ("Nominated", "Pod should schedule on: node/ip-10-0-0-1", "", False),
    ],
)
def test_the_last_word_of_an_autoscaler_counts(reason: str, message: str, words: str, brings: bool):
    about = {"involvedObject": {"name": "p"}}
    old = about | {"reason": "NotTriggerScaleUp", "message": "not yet", "lastTimestamp": "2026-01-01T00:00:00Z"}
    new = about | {"reason": reason, "message": message, "eventTime": "2026-01-01T00:00:05.000000Z"}
    other = about | {"reason": "Preempting", "message": "x", "lastTimestamp": "2026-01-01T00:00:09Z"}
    wait = scaling_waits([new, other, old])["p"]
    assert words in wait.text and wait.brings_node == brings
    assert (message in wait.text) == bool(words)
