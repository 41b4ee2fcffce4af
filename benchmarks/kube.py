"""A real Kubernetes of two nodes on this machine, for figures that need one: scripts/kubernetes-cluster.sh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "scripts" / "kubernetes-cluster.sh"
NAMESPACE = "figures"
IMAGE = "localhost/python:3.11"
NODES = ("node1", "node2")


@dataclass(frozen=True)
class Kube:
    """The cluster, and a workspace whose scenarios go there: pods see its folder under its own name."""

    folder: Path
    workspace: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}
        return kept | {
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "BENCH_CACHE_DIR": str(self.workspace / "cache"),
            "PYTHONDONTWRITEBYTECODE": "",  # an installed package is compiled once
        }

    def kubectl(self, *arguments: str, document: Any = None) -> str:
        """What it prints; OSError where it fails, as it does while the API is away."""
        done = subprocess.run(
            [self.folder / "bin" / "kubectl", "--request-timeout=20s", *arguments], env=self.environment,
            input=json.dumps(document) if document else None, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(done.stderr.strip())
        return done.stdout

    def get(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-n", NAMESPACE, "-o", "json"))["items"]
        return items

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "benchhouse", *map(str, arguments)]

    def bench(self, *arguments: object, timeout_s: float = 900) -> str:
        done = subprocess.run(
            self.command(*arguments), cwd=self.workspace, env=self.environment, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"bench {arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def scenario(self, name: str, content: dict[str, Any]) -> Path:
        path = self.workspace / f"{name}.yaml"
        path.write_text(json.dumps({"scenario": name} | content))
        return path

    def count_requests(self) -> int:
        """Requests of ours that the API server has answered or is answering."""
        lines = (self.folder / "log" / "requests.jsonl").read_text().splitlines()
        events = map(json.loads, lines)
        return len({event["auditID"] for event in events if event.get("userAgent") == "benchhouse"})

    def daemon_pid(self, name: str) -> int:
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def cluster(self, *arguments: str) -> None:
        """`daemon NAME`, `crash NODE`, `revive NODE`."""
        what, name = arguments
        subprocess.run([SCRIPT, what, self.folder, name], check=True, timeout=120)

    def supervise(self) -> None:
        """What has ended by itself is started again, as systemd does: controllers end where no API answers them."""
        for name in ("controllers", "scheduler", *(f"kubelet-{node}" for node in NODES)):
            stat = Path(f"/proc/{self.daemon_pid(name)}/stat")
            if not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z"):
                self.cluster("daemon", name)

    def make_namespace(self) -> None:
        access = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        claim = {"name": "shared", "namespace": NAMESPACE}
        asked = access | {"volumeName": "shared", "resources": {"requests": {"storage": "10Gi"}}}
        volume = access | {
            "capacity": {"storage": "10Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(self.workspace)},
            "claimRef": claim,
        }
        objects = [
            {"kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"kind": "PersistentVolume", "metadata": {"name": "shared"}, "spec": volume},
            {"kind": "PersistentVolumeClaim", "metadata": claim, "spec": asked},
        ]
        items = [{"apiVersion": "v1"} | item for item in objects]
        self.kubectl("apply", "-f", "-", document={"apiVersion": "v1", "kind": "List", "items": items})


@contextmanager
def kubernetes(volume_bytes: int = 0) -> Iterator[Kube]:
    """`volume_bytes`: the workspace is a filesystem of its own, so large."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    with tempfile.TemporaryDirectory(prefix="figures-") as name:
        made = Kube(Path(name) / "kubernetes", Path(name) / "ws")
        made.workspace.mkdir()
        if volume_bytes:
            size = f"size={volume_bytes}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", made.workspace], check=True)
        site = {
            "namespace": NAMESPACE,
            "image": IMAGE,
            "code": "volume",
            "volume": {"claim": "shared", "path": str(made.workspace)},
        }
        content = {"site": "lab", "executor": "kubernetes", "kubernetes": site}
        (made.workspace / "site.yaml").write_text(json.dumps(content))
        try:
            for command in (["install"], ["start", str(made.folder)]):
                if subprocess.run([SCRIPT, *command], stdout=subprocess.DEVNULL, check=False).returncode:
                    raise SystemExit(2)
            made.make_namespace()
            yield made
        finally:
            subprocess.run([SCRIPT, "stop", made.folder], check=True)
            if volume_bytes:
                subprocess.run(["umount", made.workspace], check=True)
