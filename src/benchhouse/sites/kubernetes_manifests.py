"""Manifests of a team's namespace, for an admin to read and apply. Pure."""

from collections.abc import Iterable
from typing import Any

from benchhouse.schema.kubernetes import NamespaceRequest
from benchhouse.schema.kubernetes_rights import RIGHTS, Right

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"
_LABELS = {"app.kubernetes.io/managed-by": "benchhouse"}


def namespace_manifests(request: NamespaceRequest) -> list[Object]:
    """Return the manifests in the order in which they can be applied."""
    space = request.namespace
    wanted = {
        "services": request.servers,
        "endpoints": request.endpoints,
        "ray": request.ray,
        "schedules": request.schedules,
    }
    rights = [right for right in RIGHTS if wanted.get(right.level, True)]
    named = [
        _object("v1", "Namespace", space, None),
        _object("v1", "ServiceAccount", request.service_account, space, automountServiceAccountToken=False),
        role(space, request.service_account, rights),
        _binding("Role", request.service_account, space, _subjects(request)),
        _limits(request),
        _object("v1", "PersistentVolumeClaim", request.claim, space, spec=_claim(request)),
    ]
    if quota := _quota(request):
        named.insert(4, _object("v1", "ResourceQuota", request.service_account, space, spec={"hard": quota}))
    if request.nodes:
        name = f"{space}-{request.service_account}-nodes"
        rules = [_rule(right) for right in RIGHTS if right.level == "cluster"]
        named.append(_object(f"{_RBAC}/v1", "ClusterRole", name, None, rules=rules))
        named.append(_binding("ClusterRole", name, None, _subjects(request)))
    if not request.egress:
        named.append(_closed(request))
    return named


def role(namespace: str, name: str, rights: Iterable[Right] = RIGHTS) -> Object:
    """Return the role with the smallest set of rights that a run and its check need."""
    rules = [_rule(right) for right in rights if right.level != "cluster" and right.verbs]
    return _object(f"{_RBAC}/v1", "Role", name, namespace, rules=rules)


def _rule(right: Right) -> Object:
    return {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}


def _object(api: str, kind: str, name: str, namespace: str | None, **content: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **place, "labels": dict(_LABELS)}, **content}


def _subjects(request: NamespaceRequest) -> list[Object]:
    account = {"kind": "ServiceAccount", "name": request.service_account, "namespace": request.namespace}
    return [account, *({"kind": "User", "name": user, "apiGroup": _RBAC} for user in request.users)]


def _binding(kind: str, name: str, namespace: str | None, subjects: list[Object]) -> Object:
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return _object(f"{_RBAC}/v1", f"{kind}Binding", name, namespace, roleRef=reference, subjects=subjects)


def _quota(request: NamespaceRequest) -> dict[str, str]:
    hard = {}
    if request.cpus is not None:
        hard["requests.cpu"] = str(request.cpus)
    if request.memory is not None:
        hard["requests.memory"] = hard["limits.memory"] = _size(request.memory)
    if request.gpus is not None:
        hard[f"requests.{request.gpu_resource}"] = str(request.gpus)
    return hard


def _limits(request: NamespaceRequest) -> Object:
    """Return the defaults of a container without requests. CPU has no limit, which would throttle the measurement."""
    container = {
        "type": "Container",
        "default": {"memory": "1Gi"},
        "defaultRequest": {"cpu": "1", "memory": "1Gi"},
    }
    return _object("v1", "LimitRange", request.service_account, request.namespace, spec={"limits": [container]})


def _claim(request: NamespaceRequest) -> Object:
    chosen = {"storageClassName": request.storage_class} if request.storage_class else {}
    return {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": _size(request.size)}}, **chosen}


def _closed(request: NamespaceRequest) -> Object:
    """Return the policy that lets pods of runs reach only each other and DNS."""
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    spec = {
        "podSelector": {"matchExpressions": [{"key": "benchhouse.dev/run", "operator": "Exists"}]},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"podSelector": {}}]}, {"ports": names}],
    }
    return _object(
        "networking.k8s.io/v1", "NetworkPolicy", f"{request.service_account}-no-egress", request.namespace, spec=spec
    )


def _size(size: int) -> str:
    unit = next((unit for unit, power in (("Gi", 30), ("Mi", 20), ("Ki", 10)) if size % (1 << power) == 0), "")
    return f"{size >> {'Gi': 30, 'Mi': 20, 'Ki': 10, '': 0}[unit]}{unit}"
