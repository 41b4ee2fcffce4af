"""Runs on a real Kubernetes: what is refused before anything is made, what is told, what is kept, and nothing left."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.kubernetes_cluster import KubernetesCluster


@pytest.fixture
def objects(kubernetes: Lab, kubernetes_cluster: KubernetesCluster) -> Callable[..., list[dict[str, Any]]]:
    """Objects of runs in the laboratory's namespace, such as `objects("pods", "jobs")`."""
    namespace = settings(kubernetes)["namespace"]

    def get(*kinds: str) -> list[dict[str, Any]]:
        return kubernetes_cluster.get(
            ",".join(kinds), "--namespace", namespace, "--selector", "app.kubernetes.io/managed-by=benchhouse"
        )

    return get


def settings(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.workspace / "site.yaml").read_text())["kubernetes"]
    return found


def change_site(lab: Lab, **more: Any) -> None:
    path = lab.workspace / "site.yaml"
    site = json.loads(path.read_text())
    site["kubernetes"] |= more
    path.write_text(json.dumps(site))


def slot_folders(lab: Lab) -> list[Path]:
    return [
        path for path in sorted((lab.workspace / ".bench" / "runs" / lab.run_id() / "slots").iterdir()) if path.is_dir()
    ]


def test_evidence_names_pod_node_image_and_what_it_was_given(kubernetes: Lab, objects: Any):
    kubernetes.run("once", workload={"n": [0, 1, 2]}, parallel=2, resources={"memory": "200MB"})
    trials = kubernetes.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 3
    for trial in trials:
        placed = trial.meta["placed"]
        assert placed["node"] in ("node1", "node2")
        assert placed["id"].startswith(f"bench-{kubernetes.run_id()}")
        assert placed["namespace"] == settings(kubernetes)["namespace"]
        assert placed["qos"] == "Guaranteed"
        assert placed["limits"] == placed["requests"] == "cpu=1, memory=200M"
        assert placed["image_id"].startswith("sha256:")
        assert placed["pod_created"] <= placed["pod_scheduled"] <= placed["pod_started"]
        assert placed["pod_uid"]
    assert not objects("jobs", "configmaps")
    kubernetes.is_tidy()


def test_a_dry_run_prints_what_kubectl_takes(kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any):
    change_site(kubernetes, volume={"claim": "shared", "path": str(kubernetes.root)})
    done = kubernetes.bench("run", "--dry-run", kubernetes.scenario("once", workload={"n": [0, 1, 2]}, parallel=2))
    taken = subprocess.run(
        [kubernetes_cluster.folder / "bin" / "kubectl", "--kubeconfig", kubernetes_cluster.kubeconfig, "apply",
         "--dry-run=server", "--filename", "-"],
        input=done.stdout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert taken.stdout.count("job.batch/bench-") == 2
    assert not objects("jobs", "configmaps")
    assert not (kubernetes.root / ".benchhouse").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"context": "nowhere"}, "there is no context 'nowhere'"),
        ({"namespace": "nowhere"}, "kubectl create namespace nowhere"),
        ({"volume": {"claim": "nothing", "path": "ROOT"}}, "there is no claim nothing"),
        ({"volume": {"claim": "shared", "path": "/elsewhere"}}, "is not on the volume that pods see"),
        ({"volume": None}, "pods and this machine share nothing"),
        ({"image": None}, "no image for the pods"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_run_is_refused_before_anything_is_made(
    kubernetes: Lab, objects: Any, wrong: dict[str, Any], words: str
):
    change_site(kubernetes, **json.loads(json.dumps(wrong).replace("ROOT", str(kubernetes.root))))
    done = kubernetes.bench("run", kubernetes.scenario("once"), code=2)
    assert words in done.stderr
    assert not (kubernetes.workspace / ".bench" / "runs").exists()
    assert not objects("jobs", "configmaps")


def test_an_unpinned_image_is_told_or_refused(kubernetes: Lab):
    change_site(kubernetes, image="example.com/python:3", context="nowhere")
    scenario = kubernetes.scenario("once")
    assert "is not pinned" in kubernetes.bench("run", scenario, code=2).stderr
    site = kubernetes.workspace / "site.yaml"
    site.write_text(json.dumps(json.loads(site.read_text()) | {"images": {"pinned": "required"}}))
    assert "@sha256:" in kubernetes.bench("run", scenario, code=2).stderr


def test_an_image_that_is_nowhere_ends_the_run_with_the_registry_s_words(kubernetes: Lab, objects: Any):
    change_site(kubernetes, image="localhost/nothing:1")
    done = kubernetes.bench("run", kubernetes.scenario("once"), code=1)
    assert "the image can't be pulled (localhost/nothing:1)" in done.stderr
    folder = slot_folders(kubernetes)[0]
    assert json.loads((folder / "pod.json").read_text())["status"]["phase"] == "Pending"
    assert any(event["reason"] == "Failed" for event in json.loads((folder / "events.json").read_text()))
    assert not objects("jobs", "configmaps")


def test_a_deleted_pod_costs_one_attempt_and_leaves_its_story(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any
):
    kubernetes.hold(0)
    process = kubernetes.start("run", kubernetes.scenario("slow", workload={"seconds": 0}))
    kubernetes.wait_for_mark("slow-*")
    pod = objects("pods")[0]["metadata"]
    kubernetes_cluster.kubectl("delete", "pod", pod["name"], "--namespace", pod["namespace"], "--wait=false")
    kubernetes.wait_for_lost(1)
    kubernetes.release()
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    attempts = kubernetes.trials()[0].meta["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["lost", "succeeded"]
    assert json.loads((slot_folders(kubernetes)[0] / "pod.json").read_text())["metadata"]["name"] == pod["name"]


def test_a_pod_that_the_kernel_ends_makes_its_trial_out_of_memory(kubernetes: Lab):
    kubernetes.run("mischief", code=1, workload={"act": "fill"}, resources={"memory": "150MB"})
    assert kubernetes.trials()[0].outcome == "out_of_memory"


def test_what_a_killed_orchestrator_left_is_deleted_by_stop(kubernetes: Lab, objects: Any):
    process = kubernetes.start("run", kubernetes.scenario("slow", workload={"seconds": 600}))
    kubernetes.wait_for_mark("slow-*")
    process.kill()
    process.wait()
    assert objects("jobs", "configmaps")
    kubernetes.bench("stop", "@last")
    wait_until(lambda: not objects("jobs", "configmaps", "pods"), "all objects to be deleted")
    kubernetes.is_tidy()


def test_a_secret_reaches_the_pod_by_name_alone(kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any):
    kubernetes.variables["DB_PASSWORD"] = "another-word"  # stays here
    target = {"password": "$DB_PASSWORD"}
    scenario = kubernetes.scenario("secretive", target=target)
    done = kubernetes.bench("run", scenario, code=2)
    assert "kubectl create secret generic NAME --from-literal=DB_PASSWORD=" in done.stderr
    namespace = settings(kubernetes)["namespace"]
    kubernetes_cluster.kubectl(
        "create", "secret", "generic", "keys", "--namespace", namespace, "--from-literal=DB_PASSWORD=sesame-open"
    )
    change_site(kubernetes, secrets=["keys"])
    kubernetes.bench("run", scenario, code=1)
    assert (kubernetes.marks / "told").read_text() == "sesame-open"
    run = kubernetes.workspace / ".bench" / "runs" / kubernetes.run_id()
    everything = [
        path.read_bytes() for path in [*run.rglob("*"), *kubernetes.folders()[0].rglob("*")] if path.is_file()
    ]
    assert not [text for text in everything if b"sesame-open" in text or b"another-word" in text]


def test_gpus_are_an_extended_resource_of_the_node(kubernetes: Lab, kubernetes_cluster: KubernetesCluster):
    scenario = kubernetes.scenario("once", resources={"gpus": 1})
    change_site(kubernetes, gpu_resource="example.com/card")
    assert "1 GPU" in kubernetes.bench("run", scenario, code=2).stderr
    kubernetes_cluster.plant("node2", "example.com/card", 1)
    try:
        kubernetes.bench("run", scenario)
    finally:
        kubernetes_cluster.plant("node2", "example.com/card", 0)
    placed = kubernetes.trials()[0].meta["placed"]
    assert placed["node"] == "node2"
    assert "example.com/card=1" in placed["limits"]


def test_a_quota_that_is_used_up_is_told_and_ends_the_run(kubernetes: Lab, kubernetes_cluster: KubernetesCluster):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kubernetes_cluster.kubectl(
        "apply", "--namespace", settings(kubernetes)["namespace"], "--filename", "-", document=quota
    )
    change_site(kubernetes, patience=1.0)
    done = kubernetes.bench("run", kubernetes.scenario("once"), code=1)
    assert "exceeded quota: none" in done.stderr
