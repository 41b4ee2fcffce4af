"""Wrong site profiles on a real Kubernetes: each error names its cause and a remedy, and leaves no object behind."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from executors.test_kubernetes import change_site, settings
from laboratory import Lab, wait_until
from services.kubernetes_cluster import IMAGE, KubernetesCluster
from services.registry import Registry
from services.registry import registry as registry

from benchhouse.executors.cluster_engine import SlotRequest, WorkerSlot
from benchhouse.executors.kubernetes_engine import KubernetesEngine
from benchhouse.executors.kubernetes_manifest import CODE, Pods
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite

HOST = "kubernetes.io/hostname"
OURS = ("--selector", "app.kubernetes.io/managed-by=benchhouse")


class Bad:
    """A laboratory on the cluster whose site profile a test changes for one run."""

    def __init__(self, lab: Lab, cluster: KubernetesCluster) -> None:
        self.lab, self.cluster, self.namespace = lab, cluster, settings(lab)["namespace"]

    def errors(self, name: str, code: int = 1, **site: Any) -> str:
        """Return the messages of a run with a changed profile, and restore the profile."""
        path = self.lab.workspace / "site.yaml"
        right = path.read_text()
        change_site(self.lab, **site)
        messages = self.lab.bench("run", self.lab.scenario("once", name), code=code).stderr
        path.write_text(right)
        return messages

    def claim(self, name: str, root: Path, **volume: Any) -> dict[str, str]:
        made = self.cluster.make_volume(self.namespace, root, name, **volume)
        return made | {"path": settings(self.lab)["volume"]["path"]}

    def created_objects(self) -> int:
        """Return how many objects benchhouse has created in the namespace so far, other than in a dry run."""
        creations = [item for item in self.cluster.requests() if item["verb"] == "create"]
        here = [item["requestURI"] for item in creations if item["objectRef"].get("namespace") == self.namespace]
        return sum("dryRun" not in address for address in here)

    def is_clean(self) -> None:
        """Wait until only pods are left that are ending already, for which a kubelet takes its time."""

        def is_ending(item: dict[str, Any]) -> bool:
            return item["kind"] == "Pod" and "deletionTimestamp" in item["metadata"]

        kinds = ("pods,jobs,configmaps", "--namespace", self.namespace, *OURS)
        wait_until(lambda: all(map(is_ending, self.cluster.get(*kinds))), "objects to go")


@pytest.fixture
def bad(kubernetes: Lab, kubernetes_cluster: KubernetesCluster) -> Bad:
    return Bad(kubernetes, kubernetes_cluster)


def foreign_program(path: Path) -> str:
    """A program for a machine of another architecture (s390)."""
    program = bytearray(Path("/bin/true").read_bytes())
    program[18:20] = (22).to_bytes(2, "little")
    path.write_bytes(program)
    path.chmod(0o755)
    return str(path)


def test_a_wrong_profile_is_refused_before_anything_is_created(bad: Bad, registry: Registry, tmp_path: Path):
    registry.push_index("tools/old", "1", tmp_path, ["s390x"])
    none, old = f"{registry.address}/tools/none:1", f"{registry.address}/tools/old:1"
    before = bad.created_objects()
    root = str(bad.lab.root)
    failures = []
    for site, words in [
        ({"context": "nowhere"}, ["there is no context 'nowhere'"]),
        ({"namespace": "nowhere"}, ["kubectl create namespace nowhere"]),
        ({"volume": {"claim": "nothing", "path": root}}, ["there is no claim nothing"]),
        ({"volume": {"claim": "shared", "path": "/elsewhere"}}, ["is not on the volume that pods see"]),
        ({"volume": None}, ["pods and this machine share nothing"]),
        ({"image": None}, ["no image for the pods"]),
        ({"image": "example.com/python:3", "context": "nowhere"}, ["is not pinned"]),
        ({"image": none}, [f"{registry.address} has no tools/none:1"]),
        ({"image": old}, ["old:1 is for s390x, and nodes are", "kubernetes.io/arch"]),
    ]:
        messages = bad.errors("refused", code=2, **site)
        if not all(text in messages for text in words):
            failures.append((site, messages))
    assert not failures
    site_file = bad.lab.workspace / "site.yaml"
    site_file.write_text(json.dumps(json.loads(site_file.read_text()) | {"images": {"pinned": "required"}}))
    assert "@sha256:" in bad.errors("pinned", code=2, image="example.com/python:3", context="nowhere")
    bad.cluster.kubectl("delete", "namespace", bad.namespace, "--wait=false")
    assert f"the namespace {bad.namespace} is being deleted" in bad.errors("ending", code=2)
    assert bad.created_objects() == before
    assert not (bad.lab.workspace / ".bench" / "runs").exists()


def wait_for_reports(engines: dict[str, KubernetesEngine]) -> dict[str, str]:
    """Return what each engine reports of its only pod, and close them."""
    reported: dict[str, str] = {}
    deadline = time.monotonic() + 120
    while len(reported) < len(engines) and time.monotonic() < deadline:
        for name in engines.keys() - reported.keys():
            try:
                if ended := engines[name].gone():
                    reported[name] = str(ended)
            except BenchError as error:
                reported[name] = f"{error.message}\n{error.hint}"
        time.sleep(0.05)
    for engine in engines.values():
        engine.close()
    return reported


@pytest.mark.slow("the cluster takes its time before it gives up images, secrets and volumes")
def test_a_pod_that_cannot_begin_is_reported_with_the_reason_of_the_cluster(
    kubernetes_cluster: KubernetesCluster, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All pods wait side by side, each with an engine of its own."""
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    registry.push_index("tools/old", "1", tmp_path, ["s390x"])
    namespace, full = kubernetes_cluster.make_namespace(), kubernetes_cluster.make_namespace()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kubernetes_cluster.kubectl("apply", "--namespace", full, "--filename", "-", document=quota)
    zone = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]}]
    affinity = {"required": {"nodeSelectorTerms": zone}}
    far = kubernetes_cluster.make_volume(namespace, tmp_path, "far", nodeAffinity=affinity)
    near = kubernetes_cluster.make_volume(namespace, tmp_path)
    program = foreign_program(tmp_path / "s390-program")
    cases: dict[str, tuple[dict[str, Any], list[str]]] = {
        "absent": ({"image": "localhost/nothing:1"}, ["the image can't be pulled (localhost/nothing:1)"]),
        "foreign": (
            {"image": f"{registry.address}/tools/old:1"},
            ["no match for platform", "check kubernetes: {image: ...}"],
        ),
        "program": ({"volume": near, "python": program}, ["exec format error", "for the nodes' architecture?"]),
        "secret": ({"secrets": ["nothing"]}, ['secret "nothing" not found', "kubectl get secrets"]),
        "root": ({"restricted": True}, ["runAsNonRoot", "USER 1000"]),
        "zone": ({"volume": far}, ["2 node(s) had volume node affinity conflict", "kubectl describe pv"]),
        "quota": ({}, ["exceeded quota: none"]),
    }
    reported: dict[str, str] = {}
    # Few at a time, because a node without a free core would be another reason not to begin.
    for group in (["zone", "quota"], ["absent", "foreign"], ["program"], ["secret", "root"]):
        engines: dict[str, KubernetesEngine] = {}
        for name in group:
            site = KubernetesSite.model_validate({"image": IMAGE} | cases[name][0])
            where = full if name == "quota" else namespace
            pods = Pods(site, where, f"r-{name}", "s", "me", (site.python, "-c", "pass"))
            engines[name] = KubernetesEngine(KubeClient(find_access()), pods, 1.0, lambda text: None)
            (folder := tmp_path / name).mkdir()
            engines[name].start(WorkerSlot(name=f"r-{name}-1", ask=SlotRequest(), folder=str(folder), python=()))
        reported |= wait_for_reports(engines)
    failures = [
        (name, reported.get(name, "nothing was reported"))
        for name, (_, words) in cases.items()
        if not all(text in reported.get(name, "") for text in words)
    ]
    assert not failures
    assert json.loads((tmp_path / "absent" / "pod.json").read_text())["status"]["phase"] == "Pending"
    assert any(event["reason"] == "Failed" for event in json.loads((tmp_path / "absent" / "events.json").read_text()))
    for name in (namespace, full):
        kubernetes_cluster.forget(name)


@pytest.mark.slow("several runs wait for pods whose volume is wrong")
def test_a_pod_reports_a_volume_that_is_another_one_or_read_only(bad: Bad, tmp_path: Path):
    messages = bad.errors("other", volume=bad.claim("other", tmp_path))
    assert "the claim is another volume" in messages and "bench site check --job" in messages
    here = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOST, "operator": "Exists"}]}]}}
    root = Path(settings(bad.lab)["volume"]["path"])
    local = {"hostPath": None, "local": {"path": str(root)}, "nodeAffinity": here, "mountOptions": ["ro"]}
    messages = bad.errors("still", volume=bad.claim("still", root, **local))
    assert "can't be written to in the pod on node" in messages and "Read-only file system" in messages
    bad.is_clean()


def test_a_full_volume_is_reported_and_the_next_run_finishes_what_is_missing(
    kubernetes_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
):
    disk, namespace = kubernetes_cluster.small_disk, kubernetes_cluster.make_namespace()
    lab = Lab(disk, variables={"KUBECONFIG": kubernetes_cluster.kubeconfig})
    site = {"site": "small", "executor": "kubernetes", "environment": lab.own_variables}
    site["kubernetes"] = kubernetes_cluster.site(namespace, disk)
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    bad, ballast = Bad(lab, kubernetes_cluster), disk / "ballast"
    if (code := tmp_path_factory.getbasetemp() / CODE).exists():  # of earlier laboratories
        shutil.copytree(code, disk / CODE, symlinks=True)
    lab.bench("run", lab.scenario("once", "first"))  # all that a workspace needs once is there afterwards
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - 150_000)
    scenario = lab.scenario("once", workload={"n": list(range(6))}, parallel=2)
    messages = lab.bench("run", scenario, code=1).stderr
    assert "No space left on device" in messages and "bench run --resume" in messages and "Traceback" not in messages
    bad.is_clean()
    finished = {path.name: (path / "manifest.json").read_bytes() for path in lab.folders()}
    assert len(finished) < 6
    ballast.unlink()
    lab.bench("run", scenario)
    assert len(lab.trials()) == 6 and lab.damage() == []
    now = {path.name: (path / "manifest.json").read_bytes() for path in lab.folders()}
    assert now.items() >= finished.items(), "trials that were sealed stay unchanged"
    lab.is_tidy()
    kubernetes_cluster.forget(namespace)
