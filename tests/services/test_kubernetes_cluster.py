"""The cluster that tests of Kubernetes run on: what its volumes, faults and planted resources are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import wait_until
from services.kubernetes_cluster import IMAGE, NODES, KubernetesCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def namespace(kubernetes_cluster: KubernetesCluster) -> Iterator[str]:
    name = kubernetes_cluster.make_namespace()
    yield name
    kubernetes_cluster.forget(name)


def run_pod(cluster: KubernetesCluster, namespace: str, name: str, code: str, **more: Any) -> None:
    container = {"name": "main", "image": IMAGE, "command": ["python3", "-c", code]}
    container |= {key: more.pop(key) for key in ("resources", "volumeMounts") if key in more}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **more}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    cluster.kubectl("create", "--filename", "-", document=pod)


def phase(cluster: KubernetesCluster, namespace: str, name: str) -> str:
    pods = {pod["metadata"]["name"]: pod for pod in cluster.get("pods", "--namespace", namespace)}
    return pods[name]["status"]["phase"] if name in pods else ""


def test_pods_of_both_nodes_see_a_folder_of_this_machine_under_its_own_name(
    kubernetes_cluster: KubernetesCluster, namespace: str, tmp_path: Path
):
    volume = kubernetes_cluster.make_volume(namespace, tmp_path)
    more = {
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": volume["claim"]}}],
        "volumeMounts": [{"name": "shared", "mountPath": volume["path"]}],
    }
    for node in NODES:
        write = f"import os; open({str(tmp_path / node)!r}, 'w').write(os.uname().nodename)"
        run_pod(kubernetes_cluster, namespace, node, write, nodeName=node, **more)
    wait_until(lambda: all((tmp_path / node).exists() for node in NODES), "files of both nodes")


def test_a_planted_resource_is_counted_by_the_scheduler(kubernetes_cluster: KubernetesCluster, namespace: str):
    kubernetes_cluster.plant("node2", "nvidia.com/gpu", 2)
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    run_pod(kubernetes_cluster, namespace, "first", "import time; time.sleep(600)", resources=limits)
    wait_until(lambda: phase(kubernetes_cluster, namespace, "first") == "Running", "the pod with both GPUs")
    run_pod(kubernetes_cluster, namespace, "second", "pass", resources=limits)
    wait_until(lambda: "Insufficient nvidia.com/gpu" in events(kubernetes_cluster, namespace), "a refusal")
    kubernetes_cluster.plant("node2", "nvidia.com/gpu", 0)


def events(cluster: KubernetesCluster, namespace: str) -> str:
    return json.dumps(cluster.get("events", "--namespace", namespace))


def test_daemons_that_were_killed_come_back_and_pods_go_on(kubernetes_cluster: KubernetesCluster, namespace: str):
    run_pod(kubernetes_cluster, namespace, "long", "import time; time.sleep(600)", nodeName="node1")
    wait_until(lambda: phase(kubernetes_cluster, namespace, "long") == "Running", "the pod")
    for daemon in ("kubelet-node1", "apiserver"):
        kubernetes_cluster.kill(daemon)
        kubernetes_cluster.bring_back(daemon)
    kubernetes_cluster.wait_ready()
    assert phase(kubernetes_cluster, namespace, "long") == "Running"


def test_a_node_that_crashed_comes_back_without_its_pods(kubernetes_cluster: KubernetesCluster, namespace: str):
    run_pod(kubernetes_cluster, namespace, "long", "import time; time.sleep(600)", nodeName="node1")
    wait_until(lambda: phase(kubernetes_cluster, namespace, "long") == "Running", "the pod")
    kubernetes_cluster.crash("node1")
    kubernetes_cluster.revive("node1")
    wait_until(lambda: phase(kubernetes_cluster, namespace, "long") in ("Failed", ""), "the end of the pod")
    kubernetes_cluster.wait_ready()
