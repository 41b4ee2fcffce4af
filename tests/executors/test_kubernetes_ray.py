"""RayJobs on a real API server that knows them by their published fields. Without the operator nothing runs them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from laboratory import Lab, wait_until
from services.kuberay_crd import closed, definition, spec_schema
from services.kubernetes_cluster import KubernetesCluster

IMAGE = f"registry.example/ray@sha256:{'a' * 64}"
WORKERS = [
    {"name": "cpu", "cpus": 4, "memory": "8GiB", "min": 0, "max": 3},
    {"name": "gpu", "cpus": 8, "memory": "64GiB", "gpus": 1, "max": 2},
]


@pytest.fixture(scope="module")
def definitions(kubernetes_cluster: KubernetesCluster) -> Iterator[dict[str, Any]]:
    """What the server says of its own kinds; meanwhile it knows RayJobs too."""
    known = json.loads(kubernetes_cluster.kubectl("get", "--raw", "/openapi/v2"))["definitions"]
    kubernetes_cluster.kubectl("apply", "--filename", "-", document=definition(known))
    wait_until(lambda: is_served(kubernetes_cluster), "RayJobs")
    yield known
    kubernetes_cluster.kubectl("delete", "crd", "rayjobs.ray.io", "--timeout=60s")


def is_served(cluster: KubernetesCluster) -> bool:
    try:
        return jobs(cluster, "default") == []
    except AssertionError:
        return False


@pytest.fixture
def kuberay(
    lab: Lab, kubernetes_cluster: KubernetesCluster, definitions: dict[str, Any]
) -> Iterator[tuple[Lab, KubernetesCluster, str]]:
    namespace = kubernetes_cluster.make_namespace()
    lab.variables["KUBECONFIG"] = kubernetes_cluster.kubeconfig
    write_site(lab, namespace)
    yield lab, kubernetes_cluster, namespace
    kubernetes_cluster.forget(namespace)


def write_site(lab: Lab, namespace: str, kuberay: dict[str, Any] | None = None, **more: Any) -> None:
    pods = {
        "namespace": namespace,
        "image": IMAGE,
        "volume": {"claim": "shared", "path": str(lab.root)},
        "pull_secrets": ["registry"],
        "service_account": "bench",
        "node_selector": {"pool": "bench"},
        "tolerations": [{"key": "bench", "operator": "Exists"}],
        "spread": "kubernetes.io/hostname",
        "priority_class": "low",
        "shm": "1GiB",
    }
    cluster = {"kuberay": {"version": "2.60.0", "workers": WORKERS} | (kuberay or {})}
    site = {"site": "t", "executor": "ray", "kubernetes": pods | more, "ray": {"cluster": cluster}}
    (lab.workspace / "site.yaml").write_text(json.dumps(site))


def jobs(cluster: KubernetesCluster, namespace: str) -> list[dict[str, Any]]:
    return cluster.get("rayjobs", "--namespace", namespace)


def test_a_cluster_without_kuberay_is_told_so(lab: Lab, kubernetes_cluster: KubernetesCluster):
    lab.variables["KUBECONFIG"] = kubernetes_cluster.kubeconfig
    write_site(lab, "default")
    assert "KubeRay is not installed there" in lab.bench("submit", lab.scenario("once"), code=2).stderr


def test_a_whole_run_is_one_job_that_the_server_keeps_as_it_was_sent(kuberay, definitions):
    lab, cluster, namespace = kuberay
    scenario = lab.scenario("once", scenario=f"{'a' * 62}_b", resources={"gpus": 1})
    shown = yaml.safe_load(lab.bench("run", "--dry-run", scenario).stdout)
    assert not list(Draft202012Validator(closed(spec_schema(definitions))).iter_errors(shown["spec"]))
    assert not jobs(cluster, namespace)

    run_id = lab.bench("submit", scenario).stdout.strip()
    [job] = jobs(cluster, namespace)
    assert job["metadata"]["name"] == f"bench-{run_id}-1"
    assert job["metadata"]["labels"]["benchhouse.dev/run"] == run_id
    text = json.dumps(shown["spec"]).replace("bench-RUN-", f"bench-{run_id}-").replace("RUN", run_id)
    assert job["spec"] == json.loads(text)  # nothing was dropped
    assert job["spec"]["entrypoint"].endswith(f"-C {lab.workspace} run --resume {run_id}")

    status = json.loads(lab.bench("status", run_id, "--json", code=None).stdout)
    assert status["run_id"] == run_id
    lab.bench("stop", run_id)
    assert not jobs(cluster, namespace)
    assert [event["event"] for event in lab.events()][-1] == "stopped"


def test_what_kuberay_says_of_a_job_counts(kuberay):
    lab, cluster, namespace = kuberay
    run_id = lab.bench("submit", lab.scenario("once")).stdout.strip()
    [job] = jobs(cluster, namespace)
    job["status"] = {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "no image"}
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{job['metadata']['name']}/status"
    cluster.kubectl("replace", "--raw", path, "--filename", "-", document=job)
    assert "bench-" not in lab.bench("stop", run_id).stdout  # it has ended already
    assert jobs(cluster, namespace)  # and stays for its ttl


def test_a_submitter_that_died_before_it_could_say_so_is_no_second_job(kuberay):
    lab, cluster, namespace = kuberay
    run_id = lab.bench("submit", lab.scenario("once")).stdout.strip()
    folder = lab.workspace / ".bench" / "runs" / run_id
    (folder / "carried").unlink()
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in events if '"submitted"' not in line))
    assert lab.bench("submit", lab.scenario("once")).stdout.strip() == run_id
    assert len(jobs(cluster, namespace)) == 1
    lab.bench("stop", run_id)
    wait_until(lambda: not jobs(cluster, namespace), "the job to go")


def test_what_could_not_run_there_is_refused_before_anything_is_made(kuberay):
    lab, cluster, namespace = kuberay
    scenario = lab.scenario("once")
    for site, resources, words in [
        ({"image": "registry.example/ray:2.60"}, {}, "is not pinned"),
        ({"image": None}, {}, "there is no image"),
        ({"volume": None}, {}, "needs a volume"),
        ({"volume": {"claim": "a", "path": "/elsewhere"}}, {}, "is not on the volume a"),
        ({"queue": "team"}, {}, "admits a cluster as it is"),
        ({}, {"cpus": 9}, "a pod of gpu has 8 cores"),
        ({"context": "nowhere"}, {}, "there is no context 'nowhere'"),
    ]:
        write_site(lab, namespace, **site)
        assert words in lab.bench("submit", lab.scenario("once", resources=resources), code=2).stderr
    write_site(lab, namespace, {"workers": [{"cpus": 1, "memory": "1GiB", "min": 2}]})
    assert "min: 2 is more than max: 1" in lab.bench("submit", scenario, code=2).stderr
    write_site(lab, namespace, {"workers": WORKERS[1:]}, queue="team")
    queued = yaml.safe_load(lab.bench("run", "--dry-run", scenario).stdout)
    assert queued["spec"]["suspend"]
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert not jobs(cluster, namespace)
    assert "bench submit" in lab.bench("run", scenario, code=None).stderr
