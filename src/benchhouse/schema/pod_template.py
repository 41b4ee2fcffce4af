"""The pod that a site's Kubernetes settings describe, as a plain manifest, around one container."""

from collections.abc import Mapping
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite

Manifest = dict[str, Any]
RUN_LABEL, SCENARIO_LABEL = "benchhouse.dev/run", "benchhouse.dev/scenario"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_VOLUME, _SHM = "workspace", "shm"


def chosen(site: KubernetesSite, own: KubernetesSite | None) -> KubernetesSite:
    """What a scenario says itself counts; the rest is the site's."""
    return site.model_copy(update={name: getattr(own, name) for name in own.model_fields_set}) if own else site


def pinned_image(settings: KubernetesSite) -> str:
    """The image; raises BenchError where there is none, or one that may be another tomorrow."""
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
    """Requests that are the limits too: the pod is of the class Guaranteed, and takes nothing from its neighbours."""
    amounts = {"cpu": f"{cpus:g}"}
    if memory:
        amounts["memory"] = str(memory)
    if gpus:
        amounts[settings.gpu_resource] = str(gpus)
    return {"requests": amounts, "limits": dict(amounts)}


def pod_template(
    settings: KubernetesSite, container: Mapping[str, Any], labels: Mapping[str, str], *, api: bool = False
) -> Manifest:
    """`container` with the volume, and what the site says of all pods; `api`: it may speak to the API server."""
    mounts, volumes = [], []
    if settings.volume:
        mounts.append({"name": _VOLUME, "mountPath": settings.volume.path})
        volumes.append({"name": _VOLUME, "persistentVolumeClaim": {"claimName": settings.volume.claim}})
    if settings.shm:
        mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - where the pod has it
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": str(settings.shm)}})
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": api,
        "containers": [
            {
                **container,
                "image": settings.image,
                "securityContext": {"allowPrivilegeEscalation": False},
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    given: Manifest = {
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "priorityClassName": settings.priority_class,
        "nodeSelector": settings.node_selector,
        "tolerations": [item.model_dump(exclude_none=True) for item in settings.tolerations],
        "runtimeClassName": settings.runtime_class,
        "topologySpreadConstraints": [_spread(settings.spread, labels)] if settings.spread else [],
    }
    spec |= {key: value for key, value in given.items() if value}
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def _spread(key: str, labels: Mapping[str, str]) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def label_value(name: str) -> str:
    """As much of a scenario's name as a label may hold."""
    return name[:63].strip("-_.")
