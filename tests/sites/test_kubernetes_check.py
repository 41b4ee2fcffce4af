"""`bench site check` and `bench site render` on a real cluster: what is there, what is missing, what a pod sees."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from laboratory import wait_until
from services.kubernetes_cluster import KubernetesCluster


@dataclass
class Team:
    """A namespace with a volume that is a folder of this machine, and a profile that names them."""

    cluster: KubernetesCluster
    bench: Callable[..., Any]
    folder: Path
    site: dict[str, Any]

    @property
    def namespace(self):
        return self.site["namespace"]

    def check(self, *args, **settings):
        """The findings, by what was asked."""
        profile = {"site": "team", "executor": "kubernetes", "kubernetes": self.site | settings}
        (self.folder / "site.yaml").write_text(json.dumps(profile))
        done = self.bench("site", "check", "--json", *args, cwd=self.folder)
        assert done.code == 0, done.err
        return {item["what"]: item for item in json.loads(done.out)["findings"]}

    def make(self, kind, name, spec, api="v1"):
        metadata = {"name": name, "namespace": self.namespace}
        document = {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
        self.cluster.kubectl("apply", "--filename", "-", document=document)


@pytest.fixture
def team(kubernetes_cluster, bench, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    folder, namespace = tmp_path_factory.mktemp("volume"), kubernetes_cluster.make_namespace()
    yield Team(kubernetes_cluster, bench, folder, kubernetes_cluster.site(namespace, folder))
    kubernetes_cluster.forget(namespace)


def states(found, *names):
    return [found[name]["state"] if name in found else "" for name in names]


def test_rendered_manifests_are_admitted_and_the_check_finds_what_they_made(team, bench, kubernetes_cluster):
    name = f"{team.namespace}-new"
    done = bench(
        "site", "render", "--namespace", name, "--cpus", "8", "--memory", "16G", "--gpus", "2", "--size", "1G",
        "--storage-class", "local", "--nodes", "--no-egress", "--user", "ann",
    )  # fmt: skip
    manifests = list(yaml.safe_load_all(done.out))
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "local",
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(team.folder)},
            "claimRef": {"name": "bench", "namespace": name},
        },
    }  # as the provisioner of a storage class would make it
    own = {"namespace": name, "volume": {"claim": "bench", "path": str(team.folder)}}
    names = ("namespace", "quota bench", "limits bench", "volume bench")
    try:
        kubernetes_cluster.kubectl(
            "apply", "--filename", "-", document={"apiVersion": "v1", "kind": "List", "items": [*manifests, volume]}
        )
        wait_until(lambda: states(team.check(**own), *names) == ["good"] * 4, "all that was applied")
        kubernetes_cluster.plant("node2", "nvidia.com/gpu", 4)
        found = team.check("--job", **own)
    finally:
        kubernetes_cluster.plant("node2", "nvidia.com/gpu", 0)
        kubernetes_cluster.forget(name)
        kubernetes_cluster.kubectl("delete", "clusterrole,clusterrolebinding", f"{name}-bench-nodes")
        kubernetes_cluster.kubectl("delete", "persistentvolume", name, "--wait=false")
    assert "requests.cpu 8 of 8" in found["quota bench"]["value"] and "memory 1Gi" in found["limits bench"]["value"]
    assert found["kubernetes"]["value"].startswith("v1.") and found["namespace"]["value"].endswith(", Active")
    assert states(found, "volume's path", "nodes", "a pod", "volume in a pod") == ["good"] * 4, found
    assert found["nvidia.com/gpu"]["value"] == "node2 4"
    assert found["a pod"]["value"].startswith("Python 3.11") and "the same here and in the pod" in str(found)
    assert "no digest" in found["image"]["note"]
    assert not [what for what in found if what.startswith("may ") and not what.startswith("may use ")]


def test_a_pod_reports_a_claim_that_is_another_volume_and_leaves_nothing(team, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = team.check("--job", volume={"claim": "shared", "path": str(elsewhere)})
    assert "the claim shared is another volume" in found["volume in a pod"]["note"]
    assert "pods would not see it" in found["workspace on the volume"]["note"]
    assert list(elsewhere.iterdir()) == []
    assert not team.cluster.get("jobs", "--namespace", team.namespace)


def test_the_check_reports_missing_names_quotas_queues_and_namespaces(team, kubernetes_cluster, tmp_path):
    found = team.check(
        "--job",
        service_account="nobody",
        priority_class="urgent",
        runtime_class="nvidia",
        pull_secrets=["registry"],
        secrets=["tokens"],
        queue="gpus",
        volume={"claim": "lost", "path": str(tmp_path / "nowhere")},
        node_selector={"pool": "fast"},
    )
    names = ("service account nobody", "priority class urgent", "runtime class nvidia", "secret registry",
             "secret tokens", "queue gpus", "volume lost", "volume's path", "nodes", "a pod")  # fmt: skip
    assert states(found, *names) == ["missing"] * len(names)
    assert "the cluster has no Kueue" in found["queue gpus"]["note"]
    assert 'serviceaccount "nobody" not found' in found["a pod"]["note"]

    team.make("ResourceQuota", "tight", {"hard": {"pods": "0", "limits.memory": "1Gi"}})
    wait_until(lambda: "of 0" in team.check().get("quota tight", {"value": ""})["value"], "the quota")
    found = team.check("--job")
    assert found["quota tight"]["state"] == "missing" and "no pods left" in found["quota tight"]["note"]
    assert found["memory of a pod"]["state"] == "missing"
    assert "exceeded quota: tight" in found["a pod"]["note"]

    _check_queues(team, kubernetes_cluster)
    assert team.check(namespace="no-such-team")["namespace"]["state"] == "missing"
    metadata = {"name": "held", "namespace": team.namespace, "finalizers": ["benchhouse.dev/held"]}
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    kubernetes_cluster.kubectl("create", "--filename", "-", document=held)
    kubernetes_cluster.forget(team.namespace)
    try:
        found = team.check("--job")
        assert found["namespace"]["value"].endswith("Terminating") and "being deleted" in found["namespace"]["note"]
        assert "being terminated" in found["a pod"]["note"]
    finally:
        kubernetes_cluster.kubectl(
            "patch", "configmap", "held", "--namespace", team.namespace, "--type", "merge",
            "--patch", '{"metadata": {"finalizers": null}}',
        )  # fmt: skip


def _check_queues(team, kubernetes_cluster):
    """With a definition that has the names of Kueue's, and keeps any field: Kueue itself is not available."""
    names = {"kind": "LocalQueue", "listKind": "LocalQueueList", "plural": "localqueues", "singular": "localqueue"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "localqueues.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": "kueue.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }
    kubernetes_cluster.kubectl("apply", "--filename", "-", document=definition)
    try:
        kubernetes_cluster.kubectl("wait", "--for", "condition=established", "crd/localqueues.kueue.x-k8s.io")
        wait_until(lambda: "queues of" in team.check(queue="gpus")["queue gpus"]["note"], "the definition")
        team.make("LocalQueue", "gpus", {"clusterQueue": "shared"}, "kueue.x-k8s.io/v1beta1")
        assert team.check(queue="gpus")["queue gpus"]["value"] == "shared, 0 waiting, 0 admitted"
        missing = team.check(queue="cpus")["queue cpus"]
        assert missing["state"] == "missing" and missing["note"].endswith(f"queues of {team.namespace}: gpus")
    finally:
        kubernetes_cluster.kubectl("delete", "crd", "localqueues.kueue.x-k8s.io", "--wait=false")
