"""Accounts of a real cluster that may do just what a test says."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from services.kubernetes_cluster import KubernetesCluster

from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, path_of
from benchhouse.schema.kubernetes_rights import Right
from benchhouse.sites.kubernetes_manifests import role

_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass
class Accounts:
    """Accounts of one namespace, by what they may not do."""

    admin: KubeClient
    namespace: str
    folder: Path

    def make(self, name: str, rights: Iterable[Right]) -> Path:
        """A kubeconfig of an account with just these rights."""
        labels = {"name": name, "namespace": self.namespace}
        self._create("v1", "serviceaccounts", {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": labels})
        self._create(_RBAC, "roles", role(self.namespace, name, rights))
        binding = {
            "kind": "RoleBinding",
            "apiVersion": _RBAC,
            "metadata": labels,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **labels}],
        }
        self._create(_RBAC, "rolebindings", binding)
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 3600}}
        token = self.admin.create(path_of("v1", self.namespace, "serviceaccounts", name, "token"), asked)
        access = self.admin.access
        cluster = {"server": access.server, "certificate-authority": "ca.pem"}
        document = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token["status"]["token"]}}],
            "contexts": [{"name": name, "context": {"cluster": "c", "user": name, "namespace": self.namespace}}],
            "current-context": name,
        }
        (self.folder / "ca.pem").write_text(access.authority)
        (path := self.folder / f"{name}.json").write_text(json.dumps(document))
        return path

    def _create(self, api: str, plural: str, manifest: dict[str, Any]) -> None:
        self.admin.create(path_of(api, self.namespace, plural), manifest)


@pytest.fixture(scope="module")
def accounts(kubernetes_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
        admin = KubeClient(find_access())
    namespace = kubernetes_cluster.make_namespace()
    yield Accounts(admin, namespace, tmp_path_factory.mktemp("accounts"))
    kubernetes_cluster.forget(namespace)
