"""What `bench infra` writes for Kubernetes, on a real one: its API takes every object, the site profile runs."""

import json

import pytest
import yaml
from services.kubernetes_cluster import IMAGE

from benchhouse.documents.yaml_writer import dump_yaml


@pytest.fixture
def applied(kubernetes_cluster):
    """Applies files, and removes their objects again."""
    objects = []

    def apply(path):
        items = list(yaml.safe_load_all(path.read_text()))
        objects.extend(items)
        kubernetes_cluster.kubectl("apply", "--filename", "-", document=_list(items))

    yield apply
    if objects:
        document = _list(objects)
        kubernetes_cluster.kubectl("delete", "--wait=false", "--ignore-not-found", "--filename", "-", document=document)


def _list(items):
    return {"apiVersion": "v1", "kind": "List", "items": items}


def test_the_objects_of_a_kind_cluster_make_its_site_profile_work(
    bench, tmp_path, kubernetes_cluster, applied, monkeypatch
):
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    assert bench("infra", "create", "--provider", "kind", "--name", "lab").code == 0
    folder = tmp_path / "infra" / "lab"
    applied(folder / "kubernetes.yaml")
    site = yaml.safe_load((folder / "site.yaml").read_text())
    del site["kubernetes"]["context"]  # that of kind, which is not what made this cluster
    site["kubernetes"] |= {"image": IMAGE, "code": "volume"}
    (folder / "site.yaml").write_text(dump_yaml(site))
    scenario = "scenario: where\nexperiment: command\nworkload: {shell: 'echo on $$HOSTNAME'}\nrepetitions: 1\n"
    (tmp_path / "where.yaml").write_text(scenario)
    ran = bench("run", "where.yaml", "--site", "infra/lab/site.yaml", "--json")
    assert ran.code == 0, ran.err
    printed = {path.read_text().strip() for path in tmp_path.glob("results/**/*stdout*") if path.is_file()}
    assert any(text.startswith("on bench-") for text in printed), printed


def test_the_api_takes_the_objects_of_an_eks_cluster(bench, tmp_path, kubernetes_cluster, applied):
    assert bench("infra", "create", "--provider", "aws", "--name", "lab", "--gpu-nodes", "0..1").code == 0
    folder = tmp_path / "infra" / "lab"
    for name in ("autoscaler.yaml", "nvidia.yaml"):  # the others are those of a kind cluster
        applied(folder / name)
    account = "system:serviceaccount:kube-system:cluster-autoscaler"
    can = {"get nodes": True, "create pods/eviction": True, "delete nodes": False, "get secrets": False}
    for question, answer in can.items():
        text = kubernetes_cluster.kubectl("create", "--raw", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                                          "--filename", "-", document=_review(account, question))  # fmt: skip
        assert json.loads(text)["status"]["allowed"] is answer, question


def _review(user, question):
    verb, _, resource = question.partition(" ")
    resource, _, part = resource.partition("/")
    asked = {"verb": verb, "resource": resource, "subresource": part}
    spec = {"user": user, "resourceAttributes": asked}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
