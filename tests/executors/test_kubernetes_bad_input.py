"""What a site profile can have wrong, on a real Kubernetes: each is told soon, with what to do, and leaves nothing."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from executors.test_kubernetes import change_site, settings
from laboratory import Lab, wait_until
from services.kubernetes_cluster import KubernetesCluster
from services.registry import Registry
from services.registry import registry as registry

from benchhouse.executors.kubernetes_manifest import CODE

pytestmark = pytest.mark.slow
HOST = "kubernetes.io/hostname"
OURS = ("--selector", "app.kubernetes.io/managed-by=benchhouse")


class Bad:
    """A laboratory on the cluster, with something wrong."""

    def __init__(self, lab: Lab, cluster: KubernetesCluster) -> None:
        self.lab, self.cluster, self.namespace = lab, cluster, settings(lab)["namespace"]

    def words(self, name: str, code: int = 1, **site: Any) -> str:
        """What a run says that a changed profile ends; the profile is put right again."""
        path = self.lab.workspace / "site.yaml"
        right = path.read_text()
        change_site(self.lab, **site)
        said = self.lab.bench("run", self.lab.scenario("once", name), code=code).stderr
        path.write_text(right)
        return said

    def claim(self, name: str, root: Path, **volume: Any) -> dict[str, str]:
        made = self.cluster.make_volume(self.namespace, root, name, **volume)
        return made | {"path": settings(self.lab)["volume"]["path"]}

    def made(self) -> int:
        """Objects that benchhouse has asked the API server for so far, other than as a dry run."""
        asked = self.cluster.requests()
        return sum(item["verb"] == "create" and "dryRun" not in item["requestURI"] for item in asked)

    def is_clean(self) -> None:
        """Nothing is left but pods that were told to end, for which a kubelet takes its time."""

        def is_going(item: dict[str, Any]) -> bool:
            return item["kind"] == "Pod" and "deletionTimestamp" in item["metadata"]

        kinds = ("pods,jobs,configmaps", "--namespace", self.namespace, *OURS)
        wait_until(lambda: all(map(is_going, self.cluster.get(*kinds))), "objects to go")


@pytest.fixture
def bad(kubernetes: Lab, kubernetes_cluster: KubernetesCluster) -> Bad:
    return Bad(kubernetes, kubernetes_cluster)


def foreign_program(path: Path) -> str:
    """One that only a machine of another kind (s390) runs."""
    program = bytearray(Path("/bin/true").read_bytes())
    program[18:20] = (22).to_bytes(2, "little")
    path.write_bytes(program)
    path.chmod(0o755)
    return str(path)


def test_images_that_no_pod_can_use_are_told_before_or_else_by_a_pod(bad: Bad, registry: Registry, tmp_path: Path):
    registry.push_index("tools/old", "1", tmp_path, ["s390x"])
    none, old = f"{registry.address}/tools/none:1", f"{registry.address}/tools/old:1"
    before = bad.made()
    assert f"{registry.address} has no tools/none:1" in bad.words("nowhere", code=2, image=none)
    said = bad.words("foreign", code=2, image=old)
    assert "old:1 is for s390x, and nodes are" in said and "kubernetes.io/arch" in said
    assert bad.made() == before
    said = bad.words("coming", image=old, autoscaled=True)
    assert "no match for platform" in said and "check kubernetes: {image: ...}" in said
    bad.is_clean()


def test_programs_and_secrets_that_no_pod_can_use_are_told(bad: Bad):
    said = bad.words("program", python=foreign_program(bad.lab.root / "program"))
    assert "exec format error" in said and "for the nodes' architecture?" in said
    assert "no such file or directory" in bad.words("nothing", python="/no/python")
    said = bad.words("secret", secrets=["nothing"])
    assert 'secret "nothing" not found' in said and "kubectl get secrets" in said
    wait_until(lambda: not bad.cluster.get("pods", "--namespace", bad.namespace, *OURS), "what it reserved")
    assert any("/pods/" in item["requestURI"] and item["verb"] == "delete" for item in bad.cluster.requests())
    said = bad.words("root", restricted=True)
    assert "runAsNonRoot" in said and "USER 1000" in said
    bad.is_clean()


def test_volumes_that_no_pod_can_use_are_told(bad: Bad, tmp_path: Path):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]}]
    far = bad.claim("far", tmp_path, nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    said = bad.words("zone", volume=far, patience=1.0)
    assert "2 node(s) had volume node affinity conflict" in said and "kubectl describe pv" in said
    said = bad.words("other", volume=bad.claim("other", tmp_path))
    assert "the claim is another volume" in said and "bench site check --job" in said
    here = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOST, "operator": "Exists"}]}]}}
    root = Path(settings(bad.lab)["volume"]["path"])
    local = {"hostPath": None, "local": {"path": str(root)}, "nodeAffinity": here, "mountOptions": ["ro"]}
    said = bad.words("still", volume=bad.claim("still", root, **local))
    assert "can't be written to in the pod on node" in said and "Read-only file system" in said
    bad.cluster.kubectl("delete", "namespace", bad.namespace, "--wait=false")
    said = bad.words("going", code=2)
    assert f"the namespace {bad.namespace} is being deleted" in said


def test_a_trial_that_ignores_every_signal_goes_with_its_pod_and_a_long_name_is_found_again(bad: Bad):
    lab, scenario = bad.lab, bad.lab.scenario("mischief", "Long_Name." + "x" * 90, workload={"act": "stubborn"})
    process = lab.start("run", scenario)
    wait_until(lambda: any(" sleep 300" in line for line in lab.left_running()), "the trial")
    (pod,) = bad.cluster.get("pods", "--namespace", bad.namespace, *OURS)
    bad.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", bad.namespace, "--wait=false")
    lab.wait_for_lost(1)
    assert any("its pod was deleted" in event.get("reason", "") for event in lab.events()), lab.events()
    wait_until(lambda: any(" sleep 300" in line for line in lab.left_running()), "the trial's next attempt")
    process.kill()
    process.wait()
    lab.bench("stop", "@last")
    bad.is_clean()
    lab.is_tidy()


def test_a_full_volume_is_told_and_what_is_missing_is_run_once_there_is_room(
    kubernetes_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
):
    disk, namespace = kubernetes_cluster.small_disk, kubernetes_cluster.make_namespace()
    lab = Lab(disk, variables={"KUBECONFIG": kubernetes_cluster.kubeconfig})
    site = {"site": "small", "executor": "kubernetes", "environment": lab.own_variables}
    site["kubernetes"] = kubernetes_cluster.site(namespace, disk)
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    bad, ballast = Bad(lab, kubernetes_cluster), disk / "ballast"
    if (code := tmp_path_factory.getbasetemp() / CODE).exists():  # of the laboratories before
        shutil.copytree(code, disk / CODE, symlinks=True)
    lab.bench("run", lab.scenario("once", "first"))  # brings the code there
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - 150_000)
    scenario = lab.scenario("once", workload={"n": list(range(12))}, parallel=2)
    said = lab.bench("run", scenario, code=1).stderr
    assert "No space left on device" in said and "bench run --resume" in said and "Traceback" not in said
    bad.is_clean()
    finished = {path.name: (path / "manifest.json").read_bytes() for path in lab.folders()}
    assert len(finished) < 12
    ballast.unlink()
    lab.bench("run", scenario)
    assert len(lab.trials()) == 12 and lab.damage() == []
    now = {path.name: (path / "manifest.json").read_bytes() for path in lab.folders()}
    assert now.items() >= finished.items(), "what was there is as it was"
    lab.is_tidy()
    kubernetes_cluster.forget(namespace)
