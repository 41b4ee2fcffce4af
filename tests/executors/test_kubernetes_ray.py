"""RayJobs on a real API server that has their published definition. No operator runs them.

Settings that cannot work are refused without a cluster.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from laboratory import Lab, wait_until
from services.kuberay_crd import closed, definition, spec_schema
from services.kubernetes_accounts import Accounts
from services.kubernetes_accounts import accounts as accounts
from services.kubernetes_cluster import KubernetesCluster

from benchhouse.executors.cluster_engine import SlotRequest
from benchhouse.executors.kuberay import KubeRayJobs
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kuberay import KubeRay
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.kubernetes_rights import RIGHTS
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.site import Site

IMAGE = f"registry.example/ray@sha256:{'a' * 64}"
WORKERS = [
    {"name": "cpu", "cpus": 4, "memory": "8GiB", "min": 0, "max": 3},
    {"name": "gpu", "cpus": 8, "memory": "64GiB", "gpus": 1, "max": 2},
]


def pod_settings(namespace: str, volume: Path) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "image": IMAGE,
        "volume": {"claim": "shared", "path": str(volume)},
        "pull_secrets": ["registry"],
        "service_account": "bench",
        "node_selector": {"pool": "bench"},
        "tolerations": [{"key": "bench", "operator": "Exists"}],
        "spread": "kubernetes.io/hostname",
        "priority_class": "low",
        "shm": "1GiB",
    }


def test_settings_that_cannot_work_are_refused_without_a_cluster(tmp_path: Path):
    run = RunFolder(tmp_path / "ws" / ".bench" / "runs" / "r")

    def jobs(workers: list[dict[str, Any]] = WORKERS, **more: Any) -> KubeRayJobs:
        settings = KubernetesSite.model_validate(pod_settings("team", tmp_path) | more)
        return KubeRayJobs(Assignment(site=Site(kubernetes=settings), run=run), KubeRay(workers=workers))

    failures = []
    for settings, ask, words in [
        ({"image": "registry.example/ray:2.60"}, SlotRequest(), "is not pinned"),
        ({"image": None}, SlotRequest(), "there is no image"),
        ({"volume": None}, SlotRequest(), "needs a volume"),
        ({"volume": {"claim": "a", "path": "/elsewhere"}}, SlotRequest(), "is not on the volume a"),
        ({"queue": "team"}, SlotRequest(), "admits a cluster as it is"),
        ({"code": "volume"}, SlotRequest(), "benchhouse is in the image"),
        ({}, SlotRequest(cpus=9), "a pod of gpu has 8 cores"),
    ]:
        try:
            jobs(**settings).check(ask)
            failures.append((settings, "was accepted"))
        except BenchError as error:
            if words not in str(error):
                failures.append((settings, str(error)))
    assert not failures
    with pytest.raises(ValueError, match="min: 2 is more than max: 1"):
        KubeRay(workers=[{"cpus": 1, "memory": "1GiB", "min": 2}])
    queued = jobs(WORKERS[1:], queue="team").manifest("one", ["bench"])
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


@pytest.fixture
def handed_over(lab: Lab, accounts: Accounts) -> Lab:
    """A laboratory whose account has just the rights for whole runs on KubeRay."""
    ray_rights = [right for right in RIGHTS if right.level == "ray"]
    lab.variables["KUBECONFIG"] = str(accounts.make("rays", ray_rights))
    cluster = {"kuberay": {"version": "2.60.0", "workers": WORKERS}}
    site = {"site": "t", "executor": "ray", "ray": {"cluster": cluster}}
    site["kubernetes"] = pod_settings(accounts.namespace, lab.root)
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    return lab


@pytest.fixture
def definitions(kubernetes_cluster: KubernetesCluster) -> Iterator[dict[str, Any]]:
    """The server's own kinds, by which RayJobs are defined; the end of the test removes the definition of RayJobs."""
    yield json.loads(kubernetes_cluster.kubectl("get", "--raw", "/openapi/v2"))["definitions"]
    kubernetes_cluster.kubectl("delete", "crd", "rayjobs.ray.io", "--wait=false", "--ignore-not-found")


def test_a_whole_run_is_one_rayjob_from_submission_to_stop(
    handed_over: Lab, kubernetes_cluster: KubernetesCluster, accounts: Accounts, definitions: Any, golden: Any
):
    lab, cluster, namespace = handed_over, kubernetes_cluster, accounts.namespace

    def jobs() -> list[dict[str, Any]]:
        return cluster.get("rayjobs", "--namespace", namespace)

    def is_served() -> bool:
        try:
            return jobs() == []
        except AssertionError:
            return False

    before = len(cluster.requests())
    scenario = lab.scenario("once", scenario=f"{'a' * 62}_b", resources={"gpus": 1})
    assert "KubeRay is not installed there" in lab.bench("submit", scenario, code=2).stderr
    cluster.kubectl("apply", "--filename", "-", document=definition(definitions))
    wait_until(is_served, "RayJobs")

    rendered = lab.bench("run", "--dry-run", scenario).stdout
    golden("kubernetes/rayjob.yaml", rendered.replace(str(lab.root), "/volume").replace(namespace, "team"))
    shown = yaml.safe_load(rendered)
    assert not list(Draft202012Validator(closed(spec_schema(definitions))).iter_errors(shown["spec"]))
    assert not jobs(), "a dry run creates nothing"

    run_id = lab.bench("submit", scenario).stdout.strip()
    [job] = jobs()
    assert job["metadata"]["name"] == f"bench-{run_id}-1"
    text = json.dumps(shown["spec"]).replace("bench-RUN-", f"bench-{run_id}-").replace("RUN", run_id)
    assert job["spec"] == json.loads(text), "the server drops no field"
    assert json.loads(lab.bench("status", run_id, "--json", code=None).stdout)["run_id"] == run_id

    folder = lab.workspace / ".bench" / "runs" / run_id
    (folder / "carried").unlink()  # as if the submitting process had died before it recorded the job
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in events if '"submitted"' not in line))
    assert lab.bench("submit", scenario).stdout.strip() == run_id
    assert len(jobs()) == 1, "the second submission finds the job of the first"

    lab.bench("stop", run_id)
    assert not jobs()
    assert [event["event"] for event in lab.events()][-1] == "stopped"

    run_id = lab.bench("submit", scenario, "--new").stdout.strip()
    [job] = jobs()
    job["status"] = {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "no image"}
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{job['metadata']['name']}/status"
    cluster.kubectl("replace", "--raw", path, "--filename", "-", document=job)
    assert "bench-" not in lab.bench("stop", run_id).stdout, "KubeRay has ended the job already"
    assert jobs(), "an ended job stays until its time to live is over"
    assert "bench submit" in lab.bench("run", scenario, code=None).stderr

    used = cluster.used_verbs(f"system:serviceaccount:{namespace}:rays", before)
    needed = {(right.group, right.resource, verb) for right in RIGHTS if right.level == "ray" for verb in right.verbs}
    assert used == needed
