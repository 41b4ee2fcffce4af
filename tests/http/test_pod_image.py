"""Whether pods can have their image, asked of a real docker-registry: open, with a login, with tokens for anybody."""

import base64
import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from services.registry import Registry, start_registry
from services.registry import registry as registry

from benchhouse.http.pod_image import probe_image
from benchhouse.schema.kubernetes import KubernetesSite

SITE = KubernetesSite()


def node(machine: str, *images: str) -> dict[str, Any]:
    return {"status": {"nodeInfo": {"architecture": machine}, "images": [{"names": [name]} for name in images]}}


@pytest.fixture
def box(registry: Registry, tmp_path: Path) -> str:
    """`:1` is for amd64 and arm64, `:s390x` for that alone."""
    content = tmp_path / "content"
    content.mkdir()
    registry.push_index("tools/box", "1", content, ["amd64", "arm64"])
    registry.push("tools/box", "s390x", content, {}, "s390x")
    return f"{registry.address}/tools/box"


def test_an_image_is_there_by_tag_and_digest_and_nodes_of_both_kinds_can_run_it(box: str, registry: Registry, tmp_path):
    digest = registry.push_index("tools/box", "2", tmp_path / "content", ["amd64", "arm64"])
    nodes = [node("arm64"), node("amd64")]
    for name in (f"{box}:1", f"{box}@{digest}", f"{box}:2@{digest}"):
        assert probe_image(name, SITE, nodes).state == "there"
    assert probe_image(f"{box}:s390x", SITE, []).state == "there"  # of nodes that nobody may list nothing is known


def test_what_the_registry_does_not_have_is_missing_unless_it_may_hide_it(box: str):
    for name in (f"{box}:9", f"{box}@sha256:{'0' * 64}", f"{box}es:1"):
        for nodes in ([node("arm64")], []):
            answer = probe_image(name, SITE, nodes)
            assert answer.state == "missing" and f"has no {name.partition('/')[2]}" in answer.text
    answer = probe_image(f"{box}:9", SITE.model_copy(update={"pull_secrets": ("registry",)}), [])
    assert answer.state == "unknown" and "only to who has an account" in answer.text


def test_an_image_for_other_machines_is_missing_and_one_for_some_is_told(box: str):
    answer = probe_image(f"{box}:s390x", SITE, [node("arm64"), node("amd64")])
    assert answer.state == "missing" and "is for s390x, and nodes are amd64, arm64" in answer.text
    answer = probe_image(f"{box}:1", SITE, [node("arm64"), node("s390x")])
    assert answer.state == "there" and "for amd64, arm64 only" in answer.text
    assert answer.hint == "node_selector: {kubernetes.io/arch: arm64}"
    assert probe_image(f"{box}:s390x", SITE.model_copy(update={"autoscaled": True}), [node("arm64")]).state == "there"
    chosen = SITE.model_copy(update={"autoscaled": True, "node_selector": {"kubernetes.io/arch": "riscv64"}})
    assert "nodes are riscv64" in probe_image(f"{box}:1", chosen, []).text


def test_nodes_that_have_it_are_believed_and_nobody_else_is_asked():
    digest = f"sha256:{'1' * 64}"
    names = [f"127.0.0.1:1/box@{digest}", "docker.io/library/python:3.11", "localhost/python:3.11"]
    for image in (f"127.0.0.1:1/box:1@{digest}", "python:3.11", "localhost/python:3.11"):
        assert probe_image(image, SITE, [node("arm64"), node("arm64", *names)]).state == "there"
    assert "no node is seen to have localhost/other:1" in probe_image("localhost/other:1", SITE, [node("arm64")]).text


def test_what_can_not_be_asked_is_unknown_with_the_reason(box: str, registry: Registry, tmp_path: Path):
    registry.stop()
    answer = probe_image(f"{box}:1", SITE, [node("arm64")])
    assert answer.state == "unknown" and "can't be asked from here" in answer.text and "gives no answer" in answer.text
    login = f"auth: {{htpasswd: {{realm: box, path: {tmp_path}/users}}}}"
    with start_registry(tmp_path, login) as private:
        assert "answers 401" in probe_image(f"{private.address}/tools/box:1", SITE, []).text


def test_a_page_that_is_no_registry_is_not_believed():
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with serving(Page) as port:
        answer = probe_image(f"127.0.0.1:{port}/box:1", SITE, [])
    assert answer.state == "unknown" and "answers 404" in answer.text


def test_an_image_by_no_name_is_missing():
    assert "does not name an image" in probe_image("../../etc/passwd", SITE, []).text


def test_anybody_gets_a_token_where_the_registry_wants_one(box: str, registry: Registry, tmp_path: Path):
    registry.stop()
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=tokens"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    scopes: list[str] = []

    class Tokens(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scopes.append(self.path)
            body = json.dumps({"token": token(key, certificate)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with serving(Tokens) as port:
        bundle = f"realm: 'http://127.0.0.1:{port}/token', service: box, issuer: tokens, rootcertbundle: {certificate}"
        with start_registry(tmp_path, f"auth: {{token: {{{bundle}}}}}") as private:
            name = f"{private.address}/tools/box"
            assert probe_image(f"{name}:1", SITE, [node("arm64")]).state == "there"
            assert probe_image(f"{name}:s390x", SITE, [node("arm64")]).state == "missing"
    assert len(scopes) == 2 and all("scope=repository%3Atools%2Fbox%3Apull" in path for path in scopes)


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """A page of this process; gives its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def token(key: Path, certificate: Path) -> str:
    """For whoever asks, to pull `tools/box`, as docker-registry wants it signed."""
    body = certificate.read_text().replace("\n", "").split("-----")[2]
    now = int(time.time())
    claims = {"iss": "tokens", "sub": "", "aud": "box", "exp": now + 60, "nbf": now - 60, "iat": now, "jti": "1"}
    claims["access"] = [{"type": "repository", "name": "tools/box", "actions": ["pull"]}]
    parts = [{"typ": "JWT", "alg": "RS256", "x5c": [body]}, claims]
    text = b".".join(_coded(json.dumps(part).encode()) for part in parts)
    signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text, check=True, capture_output=True)
    return (text + b"." + _coded(signed.stdout)).decode()


def _coded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
