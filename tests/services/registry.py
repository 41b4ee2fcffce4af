"""A real registry of container images on this machine, and a way to put a small image into it.

from services.registry import registry     # the fixture; it skips where Debian's docker-registry is not installed
"""

import contextlib
import gzip
import hashlib
import io
import json
import platform
import shutil
import socket
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from laboratory import wait_until

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {root}}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error, accesslog: {{disabled: true}}}}
{more}
"""
_INDEX = "application/vnd.oci.image.index.v1+json"
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@dataclass(frozen=True)
class Registry:
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def push(self, name: str, tag: str, folder: Path, labels: dict[str, str], machine: str = MACHINE) -> str:
        """An image with one layer, what is in `folder`; its digest."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as archive:
            archive.add(folder, ".")
        layer = gzip.compress(plain.getvalue(), 1)
        config = {
            "architecture": machine, "os": "linux", "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [_digest(plain.getvalue())]},
        }  # fmt: skip
        described = [
            {"mediaType": kind, "digest": self._blob(name, content), "size": len(content)}
            for kind, content in (
                ("application/vnd.oci.image.config.v1+json", json.dumps(config).encode()),
                ("application/vnd.oci.image.layer.v1.tar+gzip", layer),
            )
        ]
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described[0], "layers": described[1:]}
        self._send("PUT", f"/v2/{name}/manifests/{tag}", json.dumps(manifest).encode(), _MANIFEST)
        return _digest(json.dumps(manifest).encode())

    def push_index(self, name: str, tag: str, folder: Path, machines: Sequence[str]) -> str:
        """One image for several kinds of machine; its digest."""
        listed = []
        for machine in machines:
            digest = self.push(name, f"{tag}-{machine}", folder, {}, machine)
            place = {"architecture": machine, "os": "linux"}
            listed.append({"mediaType": _MANIFEST, "digest": digest, "size": 1, "platform": place})
        index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed}).encode()
        self._send("PUT", f"/v2/{name}/manifests/{tag}", index, _INDEX)
        return _digest(index)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _blob(self, name: str, content: bytes) -> str:
        place = self._send("POST", f"/v2/{name}/blobs/uploads/")
        url = f"{place}{'&' if '?' in place else '?'}digest={_digest(content)}"
        self._send("PUT", url, content, "application/octet-stream")
        return _digest(content)

    def _send(self, method: str, url: str, content: bytes = b"", kind: str = "text/plain") -> str:
        whole = url if url.startswith("http") else f"http://{self.address}{url}"
        request = urllib.request.Request(whole, content, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.headers.get("Location", "")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def registry(tmp_path):
    with start_registry(tmp_path) as made:
        yield made


@contextlib.contextmanager
def start_registry(folder: Path, more: str = "") -> Iterator[Registry]:
    """On what is in the folder; `more` is of its configuration."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry: scripts/install-test-deps.sh brings Debian's")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "registry.yaml"
    config.write_text(_CONFIG.format(root=folder / "registry", port=port, more=more))
    process = subprocess.Popen([program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), "the registry")
        yield Registry(port, process)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
