"""Access to a Kubernetes cluster, by kubeconfig files or a pod's own account: certificates, tokens, plugins."""

import base64
import json
import os
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from benchhouse.schema.errors import BenchError

IN_CLUSTER = "in-cluster"  # the context of a pod that has no kubeconfig
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass
class ClusterAccess:
    """The address of a cluster and the credentials for it. Tokens and keys are never printed."""

    server: str
    context: str = ""
    namespace: str = "default"
    authority: str = ""  # PEM; empty: the machine's own authorities
    verify: bool = True
    server_name: str = ""
    certificate: tuple[str, str] = ("", "")  # certificate and key, PEM
    token: str = ""
    token_file: str = ""
    plugin: Mapping[str, Any] | None = None  # `exec` of the kubeconfig: a program that prints a token
    proxy: str = ""
    expires: float = 0.0  # of the plugin's token, seconds since the epoch


def kubeconfig_files() -> list[Path]:
    named = os.environ.get("KUBECONFIG", "")
    return [Path(name) for name in named.split(os.pathsep) if name] or [Path.home() / ".kube" / "config"]


def find_access(context: str | None = None) -> ClusterAccess:
    """Return the access by kubeconfig as kubectl reads it: the files of $KUBECONFIG are merged, and the first value
    counts. In a pod without a kubeconfig, return that of the pod's service account."""
    files = [path for path in kubeconfig_files() if path.is_file()]
    if not files:
        if context is None and (_ACCOUNT / "token").exists():
            return _account_of_pod()
        raise BenchError(
            f"there is no kubeconfig: {', '.join(map(str, kubeconfig_files()))}", "export KUBECONFIG=/path/to/config"
        )
    clusters: dict[str, Any] = {}
    users: dict[str, Any] = {}
    contexts: dict[str, Any] = {}
    current = ""
    for path in files:
        document = _read_config(path)
        current = current or str(document.get("current-context") or "")
        for items, key, kind in ((clusters, "clusters", "cluster"), (users, "users", "user")):
            for item in document.get(key) or ():
                items.setdefault(item["name"], (path.parent, item.get(kind) or {}))
        for item in document.get("contexts") or ():
            contexts.setdefault(item["name"], item.get("context") or {})
    name = context or current
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise BenchError(
            f"there is no context {name!r} in {', '.join(map(str, files))}; it has: {known}",
            "name one of them in the site profile: kubernetes: {context: ...}",
        )
    chosen = contexts[name]
    try:
        folder, cluster = clusters[chosen["cluster"]]
        home, user = users.get(chosen.get("user", ""), (folder, {}))
    except KeyError as error:
        raise BenchError(f"the context {name!r} names a cluster that its kubeconfig does not have: {error}") from error
    return ClusterAccess(
        server=str(cluster.get("server") or ""),
        context=name,
        namespace=chosen.get("namespace") or "default",
        authority=_material(folder, cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify"),
        server_name=cluster.get("tls-server-name") or "",
        certificate=(_material(home, user, "client-certificate"), _material(home, user, "client-key")),
        token=user.get("token") or "",
        token_file=str(home / user["tokenFile"]) if user.get("tokenFile") else "",
        plugin=user.get("exec"),
        proxy=cluster.get("proxy-url") or "",
    )


def _account_of_pod() -> ClusterAccess:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        context=IN_CLUSTER,
        namespace=(_ACCOUNT / "namespace").read_text().strip(),
        authority=(_ACCOUNT / "ca.crt").read_text(),
        token_file=str(_ACCOUNT / "token"),  # renewed during the run
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise BenchError(f"{path}: can't be read as a kubeconfig: {error}", "kubectl config view") from error
    if not isinstance(document, dict):
        raise BenchError(f"{path}: is no kubeconfig", "export KUBECONFIG=/path/to/config")
    return document


def _material(folder: Path, item: Mapping[str, Any], key: str) -> str:
    """Return PEM text from the kubeconfig itself, or from a file that it names."""
    if data := item.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    if not item.get(key):
        return ""
    path = folder / str(item[key])
    try:
        return path.read_text()
    except OSError as error:
        raise BenchError(f"the kubeconfig names {path}, which can't be read: {error.strerror}") from error


def tls_context(access: ClusterAccess) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority or None)
    if not access.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = access.certificate
    if certificate:
        with NamedTemporaryFile("w", suffix=".pem") as file:  # only the owner can read it, and it is removed at once
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def run_credential_plugin(plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    command = [str(plugin["command"]), *(str(word) for word in plugin.get("args") or ())]
    asked = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {item["name"]: item["value"] for item in plugin.get("env") or ()}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            capture_output=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        status: Mapping[str, Any] = json.loads(done.stdout)["status"]
        return status
    except FileNotFoundError as error:
        hint = plugin.get("installHint") or "install it, or choose another context"
        raise BenchError(f"the kubeconfig asks {command[0]} for a token, and it is not installed", hint) from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise BenchError(f"{command[0]} gave no token: {' '.join(last)[:300]}", "log in there first") from error
    except (subprocess.TimeoutExpired, KeyError, ValueError) as error:
        raise BenchError(f"{command[0]} gave no token that can be used", "run it by hand to see why") from error


def seconds_of(stamp: str | None) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
