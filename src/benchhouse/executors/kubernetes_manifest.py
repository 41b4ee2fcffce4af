"""The objects of a run on Kubernetes, from values alone: the anchor that owns all, and Jobs whose pods are slots."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchhouse.executors.cluster_engine import Ask, Slot
from benchhouse.executors.slot_pod import GIVEN
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import (
    QUEUE_LABEL,
    RUN_LABEL,
    SCENARIO_LABEL,
    VOLUME,
    Manifest,
    label,
    pod_template,
    quantities,
)

OWNER, SLOT = "benchhouse.dev/owner", "benchhouse.dev/slot"
INDEX = "batch.kubernetes.io/job-completion-index"  # an annotation of the pods of an Indexed Job
CODE = ".benchhouse"  # of the volume: what pods of `code: volume` run, shown to them read-only
CONTAINER = "slot"
_INDEXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex")
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}
_ENDED_BY_CLUSTER = [{"type": "DisruptionTarget", "status": "True"}]
_SOON_GONE = [  # a node that does not answer loses its pods after a minute, and not after five
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    for state in ("unreachable", "not-ready")
]


@dataclass(frozen=True)
class Pods:
    """What all pods of a run have in common."""

    site: KubernetesSite
    namespace: str
    run_id: str
    scenario: str
    owner: str
    command: tuple[str, ...]  # that starts `slot_pod` in the image
    needs: tuple[str, ...] = ()  # variables that must come from Secrets
    known: frozenset[str] = frozenset()  # fields of a Job's spec that this server keeps
    scratch: str = ""  # folder that is the pod's own and empty: what is there on our side, a bucket carries
    user: tuple[int, int] | None = None  # and group, by which files of the volume are written; None: the image's

    @property
    def labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/managed-by": "benchhouse",
            RUN_LABEL: label(self.run_id),
            SCENARIO_LABEL: label(self.scenario),
            OWNER: label(self.owner),
        }

    @property
    def anchor_name(self) -> str:
        return name("bench", self.run_id)

    @property
    def is_indexed(self) -> bool:
        """Whether all slots of a kind can be one Job: where one pod that fails does not end the others."""
        return all(field in self.known for field in _INDEXED)

    def anchor(self) -> Manifest:
        """What owns all other objects of the run: deleted, it takes them with it."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.anchor_name, "namespace": self.namespace, "labels": self.labels},
            "data": {"run": self.run_id, "scenario": self.scenario, "owner": self.owner},
        }

    def probe(self) -> Manifest:
        """A Job with every field that only some servers know: made as a dry run, it tells which they keep."""
        slot = Slot(name="probe", ask=Ask(), folder="/", python=())
        everything = replace(self, known=frozenset([*_INDEXED, "suspend"]))
        job = everything.job([slot])
        job["metadata"]["name"] = f"{self.anchor_name[:50]}-probe"
        job["spec"]["suspend"] = True
        return job

    def job(self, slots: Sequence[Slot], anchor_uid: str = "") -> Manifest:
        """A Job with a pod a slot; several, which are alike, only where it is Indexed."""
        first, site = slots[0], self.site
        labels = self.labels | {SLOT: label(first.name)}
        metadata: Manifest = {"name": name("bench", first.name), "namespace": self.namespace, "labels": dict(labels)}
        if anchor_uid:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": self.anchor_name, "uid": anchor_uid}
            ]
        spec: Manifest = {
            "completions": len(slots),
            "parallelism": len(slots),
            "activeDeadlineSeconds": max(1, round(site.time)),
            "ttlSecondsAfterFinished": round(site.keep),
            "template": self._template(slots, labels),
        }
        if self.is_indexed:
            spec |= {
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 0,
                "maxFailedIndexes": len(slots),
                "podFailurePolicy": {
                    "rules": [{"action": "FailIndex", "onPodConditions": [dict(item) for item in _ENDED_BY_CLUSTER]}]
                },
            }
        else:
            spec["backoffLimit"] = 0
        if site.queue:
            metadata["labels"][QUEUE_LABEL] = site.queue
            if "suspend" in self.known:
                spec["suspend"] = True
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _template(self, slots: Sequence[Slot], labels: Mapping[str, str]) -> Manifest:
        site = self.site
        container: Manifest = {
            "name": CONTAINER,
            "command": list(self.command),
            "env": self._environment(slots),
            "resources": self._resources(slots[0].ask),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        if secrets := [*site.secrets, *([site.bucket_secret] if site.bucket_secret else [])]:
            container["envFrom"] = [{"secretRef": {"name": item}} for item in secrets]
        template = pod_template(site, container, labels, user=self.user)
        pod = template["spec"]
        pod["tolerations"] = [*_SOON_GONE, *pod.get("tolerations", ())]
        mounts = pod["containers"][0]["volumeMounts"]
        if site.volume and site.code == "volume":
            place = str(Path(site.volume.path) / CODE)
            mounts.append({"name": VOLUME, "mountPath": place, "subPath": CODE, "readOnly": True})
        if self.scratch:
            pod["volumes"].append({"name": "files", "emptyDir": {}})
            mounts.append({"name": "files", "mountPath": self.scratch})
        return template

    def _environment(self, slots: Sequence[Slot]) -> list[Manifest]:
        given = {
            "folders": [slot.folder for slot in slots],
            "environment": slots[0].environment,
            "patience_s": slots[0].patience_s,
            "needs": list(self.needs),
            "bucket": f"{(self.site.bucket or '').rstrip('/')}/{self.run_id}" if self.scratch else "",
        }
        fields = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _FIELDS.items()]
        return [*fields, {"name": GIVEN, "value": json.dumps(given)}]

    def _resources(self, ask: Ask) -> Manifest:
        amounts = quantities(ask.cpus, ask.memory, ask.gpus, self.site)
        more = {key: f"{amount:g}" for key, amount in ask.custom.items()}
        return {kind: amounts[kind] | more for kind in amounts}


def kept_fields(answer: Mapping[str, Any]) -> frozenset[str]:
    """Which fields of a Job's spec a server has not dropped, by its answer to the probe."""
    return frozenset(answer.get("spec") or {})


def name(*words: str) -> str:
    """A name that also its pods can have, with five letters behind it: a DNS label of at most 57."""
    text = "-".join(words)
    plain = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    if plain == text and len(plain) <= 57:
        return plain
    return f"{plain[:48].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
