"""The manifest of a pod with one container, from a site's Kubernetes settings."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite

Manifest = dict[str, Any]
RUN_LABEL, SCENARIO_LABEL = "benchhouse.dev/run", "benchhouse.dev/scenario"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([KMGTPE]i|[numkMGTPE])?")
_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)
}
VOLUME, _SHM = "shared", "shm"


def chosen(site: KubernetesSite, own: KubernetesSite | None) -> KubernetesSite:
    """Return the site's settings, overridden by those that a scenario sets."""
    return site.model_copy(update={name: getattr(own, name) for name in own.model_fields_set}) if own else site


def pinned_image(settings: KubernetesSite) -> str:
    """Return the image; raise BenchError if there is none or it is not pinned by digest."""
    if not settings.image:
        raise BenchError("there is no image for the pods", "kubernetes: {image: registry/name@sha256:...}")
    if "@sha256:" not in settings.image:
        raise BenchError(
            f"the image {settings.image} is not pinned: its pods may run different ones",
            f"kubernetes: {{image: {settings.image.partition(':')[0]}@sha256:...}}; "
            "the digest: skopeo inspect, or docker pull",
        )
    return settings.image


def quantities(cpus: float, memory: int | None, gpus: int, settings: KubernetesSite) -> Manifest:
    """Return requests equal to the limits, so that the pod is of the class Guaranteed and does not affect others."""
    amounts = {"cpu": f"{cpus:g}"}
    if memory:
        amounts["memory"] = str(memory)
    if gpus:
        amounts[settings.gpu_resource] = str(gpus)
    return {"requests": amounts, "limits": dict(amounts)}


def pod_template(
    settings: KubernetesSite,
    container: Mapping[str, Any],
    labels: Mapping[str, str],
    *,
    user: tuple[int, int] | None = None,
    api: bool = False,
) -> Manifest:
    """Return the pod of `container`, with the volume and the site's settings for all pods.

    `user` and group own the files written to the volume; None: the image's. `api`: the pod may use the API server.
    """
    mounts, volumes = [], []
    if settings.volume:
        mounts.append({"name": VOLUME, "mountPath": settings.volume.path})
        volumes.append({"name": VOLUME, "persistentVolumeClaim": {"claimName": settings.volume.claim}})
    if settings.shm:
        mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - where the pod has it
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": str(settings.shm)}})
    rights: Manifest = {"allowPrivilegeEscalation": False}
    identity: Manifest = {"runAsUser": user[0], "runAsGroup": user[1]} if user else {}
    if settings.restricted:
        rights["capabilities"] = {"drop": ["ALL"]}
        identity |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": api,
        "enableServiceLinks": False,
        "containers": [
            {
                **container,
                "image": settings.image,
                "securityContext": rights,
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    given: Manifest = {
        "securityContext": identity,
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "priorityClassName": settings.priority_class,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [item.model_dump(exclude_none=True) for item in settings.tolerations],
        "runtimeClassName": settings.runtime_class,
        "topologySpreadConstraints": [_spread(settings.spread, labels)] if settings.spread else [],
    }
    spec |= {key: value for key, value in given.items() if value}
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def _spread(key: str, labels: Mapping[str, str]) -> Manifest:
    """Return a spread over the pods of the run, or over pods with the same labels if they belong to none."""
    alike = {name: labels[name] for name in labels if RUN_LABEL not in labels or name == RUN_LABEL}
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": alike},
    }


def label(text: str) -> str:
    """Return text as a label's value: unchanged if valid, otherwise shortened and made unique by a digest."""
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        return text
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:50].strip("-._")
    return "-".join(filter(None, [plain, hashlib.sha256(text.encode()).hexdigest()[:8]]))


def read_quantity(text: object) -> float:
    """Return a Kubernetes quantity as a number: `500m` is 0.5, `2Gi` is 2147483648. Raise ValueError for other text."""
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(f"{text!r} is no quantity of Kubernetes")
    return float(match[1]) * _UNITS[match[2] or ""]
