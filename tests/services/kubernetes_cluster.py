"""A real Kubernetes of two nodes on this machine: `scripts/kubernetes-cluster.sh`, which says what it can't do.

One test process runs all tests of it (conftest), so that there is one. A test that breaks something mends it again.
"""

import fcntl
import hashlib
import io
import json
import os
import secrets
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest
from laboratory import Lab, wait_until

SCRIPT = Path(__file__).parents[2] / "scripts" / "kubernetes-cluster.sh"
NODES = ("node1", "node2")
IMAGE = "localhost/python:3.11"
_NOT_HERE = 3
_BUILD_S = 700
_START_S = 180


class KubernetesCluster:
    """Two nodes, `node1` and `node2`; pods of the image `IMAGE` see the folders of this machine by volumes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = str(folder / "kubeconfig")
        self.small_disk = folder.with_name(f"{folder.name}-disk")
        """A filesystem of 400 MB that nodes see too: one that is mounted later they would not."""

    def start(self) -> None:
        try:
            done = subprocess.run([SCRIPT, "install"], capture_output=True, text=True, timeout=_BUILD_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(
                f"Kubernetes is not built yet, {_BUILD_S} s after it was needed: scripts/kubernetes-cluster.sh install"
            )
        if done.returncode == 0:
            self.small_disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", self.small_disk], check=True)
            command = [SCRIPT, "start", self.folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_START_S, check=False)
        if done.returncode:
            message = done.stderr.strip()[-800:]
            is_wanted = os.environ.get("CI") and done.returncode != _NOT_HERE
            pytest.fail(message) if is_wanted else pytest.skip(message)

    def stop(self) -> None:
        subprocess.run([SCRIPT, "stop", self.folder], check=True, timeout=120)
        if self.small_disk.exists():
            subprocess.run(["umount", "--lazy", self.small_disk], check=False)
            self.small_disk.rmdir()

    def kubectl(self, *arguments: str, document: Any = None) -> str:
        """What it prints; `document` goes to its standard input."""
        done = subprocess.run(
            [self.folder / "bin" / "kubectl", "--kubeconfig", self.kubeconfig, *arguments], capture_output=True,
            text=True, input=json.dumps(document) if document else None, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        """Objects: `get("pods", "--namespace", name)`."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "--output", "json"))["items"]
        return items

    def make_namespace(self) -> str:
        name = f"lab-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", name)
        wait_until(lambda: self.get("serviceaccounts", "--namespace", name), f"the service account of {name}")
        return name

    def make_volume(self, namespace: str, root: Path, name: str = "shared", **more: Any) -> dict[str, str]:
        """A claim whose volume is that folder: a site profile's `volume`. `more`: of the volume's spec."""
        access = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        claim, full_name = {"name": name, "namespace": namespace}, f"{namespace}-{name}"
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": full_name, "labels": {"lab": namespace}},
            "spec": access | {
                "capacity": {"storage": "10Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(root), "type": "Directory"},
                "claimRef": claim,
            } | more,
        }  # fmt: skip
        asked = access | {"volumeName": full_name, "resources": {"requests": {"storage": "10Gi"}}}
        document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": asked}
        self.kubectl(
            "apply", "--filename", "-", document={"apiVersion": "v1", "kind": "List", "items": [volume, document]}
        )
        claims = ("persistentvolumeclaims", "--namespace", namespace)  # a pod that comes first waits up to a minute
        wait_until(lambda: all(item["status"]["phase"] == "Bound" for item in self.get(*claims)), "a bound claim")
        return {"claim": name, "path": str(root)}

    def site(self, namespace: str, root: Path) -> dict[str, Any]:
        """Settings of a site profile whose pods share `root`, which holds the workspace, with this machine."""
        return {
            "namespace": namespace,
            "image": IMAGE,
            "code": "volume",
            "volume": self.make_volume(namespace, root),
        }

    def forget(self, namespace: str) -> None:
        """With all that is in it; Kubernetes takes its time for that, and nobody waits."""
        self.kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
        self.kubectl("delete", "persistentvolumes", "--selector", f"lab={namespace}", "--wait=false")

    def pin_image(self) -> str:
        """The image with its digest, by which recipes name theirs; nodes know it by that name from then on."""
        for node in NODES:
            rows = self._ctr(node, "ls").splitlines()
            digest = next(row.split()[2] for row in rows if row.startswith(IMAGE))
            pinned = f"{IMAGE.partition(':')[0]}@{digest}"
            self._ctr(node, "tag", "--force", IMAGE, pinned)
        return pinned

    def add_image(self, name: str, packages: Path, user: int) -> str:
        """The nodes get `IMAGE` with these packages in its Python, run by that user."""
        base, archive, own = (
            (self.folder / "bin").resolve().parent / "image.tar",
            self.folder / "more.tar",
            io.BytesIO(),
        )
        with tarfile.open(fileobj=own, mode="w") as layer:
            layer.add(packages, "usr/local/lib/python3.11/dist-packages")
        with tarfile.open(base) as given:
            config = json.load(cast("IO[bytes]", given.extractfile("0.json")))
            whole = cast("IO[bytes]", given.extractfile("layer.tar")).read()
        config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(own.getvalue()).hexdigest()}")
        config["config"]["User"] = str(user)
        manifest = [{"Config": "0.json", "RepoTags": [f"localhost/{name}"], "Layers": ["layer.tar", "own.tar"]}]
        files = {"layer.tar": whole, "own.tar": own.getvalue()}
        files |= {"0.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
        with tarfile.open(archive, "w") as image:
            for path, data in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(data)
                image.addfile(member, io.BytesIO(data))
        for node in NODES:
            self._ctr(node, "import", str(archive))
        archive.unlink()
        return f"localhost/{name}"

    def _ctr(self, node: str, *arguments: str) -> str:
        command = [self.folder / "bin" / "ctr", "-a", "run/containerd/containerd.sock", "-n", "k8s.io", "images"]
        done = subprocess.run(
            [*command, *arguments], cwd=self.folder / node, check=True, text=True, capture_output=True, timeout=60
        )
        return done.stdout

    @property
    def gateway(self) -> str:
        """An address of this machine that only pods reach."""
        return f"10.{200 + int((self.folder / 'run' / 'number').read_text())}.0.1"

    def requests(self, since: int = 0, client: str = "benchhouse") -> list[dict[str, Any]]:
        """What that client has asked the API server for, each once, from the `since`th on: `verb`, `requestURI`."""
        seen: dict[str, dict[str, Any]] = {}
        for line in (self.folder / "log" / "requests.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event.get("userAgent", "").startswith(client):
                seen.setdefault(event["auditID"], event)
        return list(seen.values())[since:]

    def used_verbs(self, user: str, since: int = 0, client: str = "benchhouse") -> set[tuple[str, str, str]]:
        """Return API group, resource and verb of the requests that the server allowed a user, except reviews."""
        found = set()
        for event in self.requests(since, client):
            what = event.get("objectRef", {})
            is_allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow"
            is_review = what.get("apiGroup") == "authorization.k8s.io"
            if event["user"]["username"] == user and what and is_allowed and not is_review:
                parts = filter(None, (what["resource"], what.get("subresource")))
                found.add((what.get("apiGroup", ""), "/".join(parts), event["verb"]))
        return found

    # -- faults ------------------------------------------------------------------------------------------------------

    def kill(self, daemon: str, signal_number: int = signal.SIGKILL) -> None:
        """One of etcd, apiserver, controllers, scheduler, kubelet-NODE; pods of a killed kubelet go on."""
        os.kill(int((self.folder / "run" / f"{daemon}.pid").read_text()), signal_number)

    def bring_back(self, daemon: str) -> None:
        subprocess.run([SCRIPT, "daemon", self.folder, daemon], check=True, timeout=60)

    def wait_ready(self) -> None:
        """Until the API answers and both nodes take pods."""

        def is_ready() -> bool:
            try:
                nodes = self.get("nodes")
            except AssertionError:
                return False
            return all({"type": "Ready", "status": "True"}.items() <= _condition(node).items() for node in nodes)

        wait_until(is_ready, "the API and both nodes")

    def crash(self, node: str) -> None:
        """All that runs on a node is gone at once; `revive` starts it anew."""
        subprocess.run([SCRIPT, "crash", self.folder, node], check=True, timeout=60)

    def revive(self, node: str) -> None:
        subprocess.run([SCRIPT, "revive", self.folder, node], check=True, timeout=90)

    def cordon(self, node: str, *, on: bool = True) -> None:
        self.kubectl("cordon" if on else "uncordon", node)

    def plant(self, node: str, resource: str, count: int) -> None:
        """An extended resource, such as nvidia.com/gpu, that no device plugin stands behind; 0 takes it away."""
        document = json.loads(self.kubectl("get", "node", node, "--output", "json"))
        del document["metadata"]["resourceVersion"]  # whatever the kubelet has told meanwhile
        for amounts in (document["status"]["capacity"], document["status"]["allocatable"]):
            amounts[resource] = str(count)
        self.kubectl("replace", "--raw", f"/api/v1/nodes/{node}/status", "--filename", "-", document=document)


def _condition(node: dict[str, Any]) -> dict[str, Any]:
    found = [item for item in node["status"]["conditions"] if item["type"] == "Ready"]
    return found[0] if found else {}


@pytest.fixture(scope="session")
def kubernetes_cluster() -> Iterator[KubernetesCluster]:
    _end_stale()
    folder = Path(tempfile.gettempdir()) / f"bench-kubernetes-{secrets.token_hex(4)}"
    made = KubernetesCluster(folder)
    with _lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            made.start()
            yield made
        finally:
            made.stop()
            _lock_of(folder).unlink()


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _end_stale() -> None:
    """Clusters whose test process was killed."""
    for path in Path(tempfile.gettempdir()).glob("bench-kubernetes-*.lock"):
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            KubernetesCluster(path.with_suffix("")).stop()
            path.unlink(missing_ok=True)


@pytest.fixture
def kubernetes(
    lab: Lab, kubernetes_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """A laboratory whose scenarios go to the cluster, in a namespace of its own.

    Its volume is the folder of all laboratories: the worker's packages are brought there once.
    """
    namespace = kubernetes_cluster.make_namespace()
    lab.variables["KUBECONFIG"] = kubernetes_cluster.kubeconfig
    site = {
        "site": "test",
        "executor": "kubernetes",
        "environment": lab.own_variables,
        "kubernetes": kubernetes_cluster.site(namespace, tmp_path_factory.getbasetemp()),
    }
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    yield lab
    kubernetes_cluster.forget(namespace)
