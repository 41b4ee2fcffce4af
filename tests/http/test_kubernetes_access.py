"""Who we are on a cluster: kubeconfig files as kubectl reads them, and each credential at the real API server."""

import base64
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from services.kubernetes_cluster import KubernetesCluster

from benchhouse.http.kubeconfig import ClusterAccess, find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Unreachable, path_of
from benchhouse.schema.errors import BenchError


def config(name: str, **more: Any) -> dict[str, Any]:
    """A kubeconfig with one cluster, user and context of that name."""
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}}],
        "users": [{"name": name, "user": {"token": f"of {name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        **more,
    }


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, *documents: Any) -> list[Path]:
    paths = [folder / f"{number}.yaml" for number, _ in enumerate(documents)]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
    return paths


def test_files_are_joined_and_the_first_that_says_something_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    other = config("a", **{"current-context": "b"})
    other["clusters"][0]["cluster"]["server"] = "https://hidden"
    use(monkeypatch, tmp_path, config("a"), other, config("b", **{"current-context": "a"}))
    assert (find_access().server, find_access().namespace) == ("https://b", "ns-b")
    assert (find_access("a").server, find_access("a").token) == ("https://a", "of a")


def test_files_that_a_kubeconfig_names_lie_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    document = config("a", **{"current-context": "a"})
    document["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    document["users"][0]["user"] = {
        "client-certificate": "me.pem",
        "client-key-data": base64.b64encode(b"key").decode(),
    }
    for name in ("ca.pem", "me.pem"):
        (tmp_path / name).write_text(name)
    use(monkeypatch, tmp_path, document)
    access = find_access()
    assert (access.authority, access.certificate) == ("ca.pem", ("me.pem", "key"))
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(BenchError, match="which can't be read"):
        find_access()


@pytest.mark.parametrize(
    ("document", "context", "words"),
    [
        (config("a"), "b", "there is no context 'b' in .*; it has: a"),
        (config("a"), None, "there is no context ''"),
        ({"contexts": [{"name": "a", "context": {"cluster": "gone"}}]}, "a", "does not have: 'gone'"),
        ("[]", None, "is no kubeconfig"),
        ("{", None, "can't be read as a kubeconfig"),
    ],
)
def test_a_bad_kubeconfig_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, document: Any, context: str | None, words: str
):
    use(monkeypatch, tmp_path, document)
    with pytest.raises(BenchError, match=words):
        find_access(context)


def test_no_kubeconfig_at_all_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BenchError, match="there is no kubeconfig"):
        find_access()


@pytest.fixture
def access(kubernetes_cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterAccess:
    """The administrator's, at the real server."""
    monkeypatch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
    return find_access()


@pytest.fixture
def token(kubernetes_cluster: KubernetesCluster) -> str:
    """Of an account without any right."""
    for secret in kubernetes_cluster.get("secrets", "--namespace", "kube-public"):
        if secret["type"] == "kubernetes.io/service-account-token":
            return base64.b64decode(secret["data"]["token"]).decode()
    pytest.fail("the account of kube-public has no token")


def who(access: ClusterAccess) -> str:
    """Whose account it is, by what the server says when it refuses; the administrator is refused nothing."""
    try:
        KubeClient(access).get(path_of("v1", "default", "pods"))
    except KubernetesRefused as error:
        assert (error.status, error.reason) == (403, "Forbidden")
        return error.message.split('User "')[1].split('"')[0]
    return "admin"


ACCOUNT = "system:serviceaccount:kube-public:default"


def test_a_certificate_and_a_token_are_credentials(access: ClusterAccess, token: str, tmp_path: Path):
    assert who(access) == "admin"
    bare = ClusterAccess(access.server, authority=access.authority)
    with pytest.raises(KubernetesRefused, match=r"system:anonymous|Unauthorized"):
        KubeClient(bare).get(path_of("v1", "default", "pods"))
    (tmp_path / "token").write_text(f"{token}\n")
    assert who(ClusterAccess(access.server, authority=access.authority, token=token)) == ACCOUNT
    assert who(ClusterAccess(access.server, authority=access.authority, token_file=str(tmp_path / "token"))) == ACCOUNT


def plugin(folder: Path, *tokens: str) -> dict[str, Any]:
    """A program that prints one of the tokens a call, the last one for ever."""
    for number, text in enumerate(tokens):
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": text}}
        (folder / f"answer-{number}").write_text(json.dumps(answer))
    program = folder / "plugin"
    program.write_text(
        f"#!/bin/sh\nn=$(ls {folder}/called-* 2>/dev/null | wc -l)\ntouch {folder}/called-$n\n"
        f"[ $n -lt {len(tokens)} ] || n={len(tokens) - 1}\ncat {folder}/answer-$n\n"
    )
    program.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "args": None}


def test_a_plugin_is_asked_for_a_token_and_again_when_the_server_does_not_know_it(
    access: ClusterAccess, token: str, tmp_path: Path
):
    asking = ClusterAccess(access.server, authority=access.authority, plugin=plugin(tmp_path, "out-of-date", token))
    assert who(asking) == ACCOUNT
    assert len(list(tmp_path.glob("called-*"))) == 2


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo log in first >&2; exit 1", "gave no token: log in first"), ("echo no json", "gave no token that can")],
)
def test_a_plugin_that_fails_is_told(tmp_path: Path, script: str, words: str):
    asked = {"command": "/bin/sh", "args": ["-c", script]}
    with pytest.raises(BenchError, match=words):
        KubeClient(ClusterAccess("https://127.0.0.1:1", plugin=asked)).get("/version")


def test_a_plugin_that_is_not_installed_is_told():
    asked = {"command": "no-such-program", "installHint": "install it from there"}
    with pytest.raises(BenchError, match="no-such-program for a token, and it is not installed") as raised:
        KubeClient(ClusterAccess("https://127.0.0.1:1", plugin=asked)).get("/version")
    assert raised.value.hint == "install it from there"


def test_a_server_that_is_not_there_and_one_with_another_authority_are_told(access: ClusterAccess):
    with pytest.raises(Unreachable, match="can't be reached: Connection refused"):
        KubeClient(ClusterAccess("https://127.0.0.1:1"), outage_s=0.1).get("/version")
    with pytest.raises(Unreachable, match=r"can't be reached: .*certificate"):
        KubeClient(ClusterAccess(access.server)).get("/version")


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A small proxy that carries TLS to where it is told, and the lines that it was asked with."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            near, _ = server.accept()
            with near:
                line = near.recv(4096).decode().splitlines()[0]
                asked.append(line)
                host, _, port = line.split()[1].rpartition(":")
                with socket.create_connection((host, int(port))) as far:
                    near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    other = {near: far, far: near}
                    while data := (ready := select.select([near, far], [], [])[0][0]).recv(65536):
                        other[ready].sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked


def test_a_proxy_of_the_kubeconfig_carries_requests(access: ClusterAccess, proxy: tuple[str, list[str]]):
    access.proxy, asked = proxy
    assert KubeClient(access).get("/version")["major"]
    assert asked[0].startswith("CONNECT ")
