"""Build the Kubernetes objects of a run from values alone: the anchor that owns all, and Jobs whose pods are slots."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchhouse.executors.cluster_engine import SlotRequest, WorkerSlot
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

OWNER, SLOT, GANG = "benchhouse.dev/owner", "benchhouse.dev/slot", "benchhouse.dev/gang"
SERVER = "benchhouse.dev/server"  # label of a server's pods: its name
HOST = "kubernetes.io/hostname"  # label of a node
INDEX = "batch.kubernetes.io/job-completion-index"  # annotation of the pods of an Indexed Job
CODE = ".benchhouse"  # folder of the volume that pods with `code: volume` run from, mounted read-only
CONTAINER = "slot"
_INDEXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex")
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}
_ENDED_BY_CLUSTER = [{"type": "DisruptionTarget", "status": "True"}]
SOON_GONE = [  # the pods of a node that does not answer are removed after one minute instead of five
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    for state in ("unreachable", "not-ready")
]


@dataclass(frozen=True)
class Pods:
    """The values that all pods of a run share."""

    site: KubernetesSite
    namespace: str
    run_id: str
    scenario: str
    owner: str
    command: tuple[str, ...]  # the command that starts `slot_pod` in the image
    needs: tuple[str, ...] = ()  # variables that must come from Secrets
    known: frozenset[str] = frozenset()  # fields of a Job's spec that this server keeps
    # the pod's own, initially empty folder, filled from our side through a bucket; empty without a bucket
    scratch: str = ""
    user: tuple[int, int] | None = None  # user and group that write files of the volume; None: those of the image
    beside: tuple[str, ...] = ()  # servers on whose nodes slots must run
    away: tuple[str, ...] = ()  # servers whose nodes slots must avoid

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
        """Whether all slots of a kind can be one Job, in which a failed pod does not end the others."""
        return all(field in self.known for field in _INDEXED)

    def anchor(self) -> Manifest:
        """Return the object that owns all others of the run; deleting it deletes them."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.anchor_name, "namespace": self.namespace, "labels": self.labels},
            "data": {"run": self.run_id, "scenario": self.scenario, "owner": self.owner},
        }

    def probe(self) -> Manifest:
        """Return a Job with every field that only some servers know; a dry run of it shows which a server keeps."""
        slot = WorkerSlot(name="probe", ask=SlotRequest(), folder="/", python=())
        everything = replace(self, known=frozenset([*_INDEXED, "suspend"]))
        job = everything.job([slot])
        job["metadata"]["name"] = f"{self.anchor_name[:50]}-probe"
        job["spec"]["suspend"] = True
        return job

    def kinds(self, slots: Sequence[WorkerSlot]) -> list[list[WorkerSlot]]:
        """Group slots into Jobs: with Indexed Jobs, equal slots of one gang or of none, otherwise one slot each."""
        kinds: list[list[WorkerSlot]] = []
        for slot in slots:
            same = (kind for kind in kinds if (kind[0].ask, kind[0].gang) == (slot.ask, slot.gang) and self.is_indexed)
            alike = next(same, None)
            alike.append(slot) if alike else kinds.append([slot])
        return kinds

    def job(self, slots: Sequence[WorkerSlot], anchor_uid: str = "") -> Manifest:
        """Return a Job with one pod per slot. Several slots must be equal, and need an Indexed Job."""
        first, site = slots[0], self.site
        labels = self.labels | {SLOT: label(first.name)} | ({GANG: label(first.gang)} if first.gang else {})
        template = self._template(slots, labels)
        spec: Manifest = {
            "completions": len(slots),
            "parallelism": len(slots),
            "activeDeadlineSeconds": max(1, round(site.time)),
            "ttlSecondsAfterFinished": round(site.keep),
            "template": template,
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
        return self.as_job(name("bench", first.name), labels, spec, anchor_uid)

    def as_job(self, own: str, labels: Mapping[str, str], spec: Manifest, anchor_uid: str = "") -> Manifest:
        """Return a Job with that name, owned by the anchor and admitted by the site's queue."""
        metadata: Manifest = {"name": own, "namespace": self.namespace, "labels": dict(labels)}
        if anchor_uid:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": self.anchor_name, "uid": anchor_uid}
            ]
        if self.site.queue:
            metadata["labels"][QUEUE_LABEL] = self.site.queue
            if "suspend" in self.known:
                spec = spec | {"suspend": True}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _template(self, slots: Sequence[WorkerSlot], labels: Mapping[str, str]) -> Manifest:
        given = {
            "folders": [slot.folder for slot in slots],
            "environment": slots[0].environment,
            "patience_s": slots[0].patience_s,
            "needs": list(self.needs),
            "bucket": f"{(self.site.bucket or '').rstrip('/')}/{self.run_id}" if self.scratch else "",
        }
        template = self.template(given, self.resources(slots[0].ask), labels)
        near = [self.on_node_of(server) for server in self.beside]
        away = [self.on_node_of(server) for server in self.away]
        if slots[0].gang:  # each slot on a node of its own
            away.append(_on_node_with({GANG: labels[GANG]}))
        affinity = {
            kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            for kind, terms in (("podAffinity", near), ("podAntiAffinity", away))
            if terms
        }
        if affinity:
            template["spec"]["affinity"] = affinity
        return template

    def on_node_of(self, server: str) -> Manifest:
        """Return an affinity term: the nodes with pods of that server of the run."""
        return _on_node_with({RUN_LABEL: label(self.run_id), SERVER: label(server)})

    def template(self, given: Manifest, resources: Manifest, labels: Mapping[str, str]) -> Manifest:
        """Return a pod template with the trials' image that runs `slot_pod` with these orders."""
        site = self.site
        fields = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _FIELDS.items()]
        container: Manifest = {
            "name": CONTAINER,
            "command": list(self.command),
            "env": [*fields, {"name": GIVEN, "value": json.dumps(given)}],
            "resources": resources,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        if secrets := [*site.secrets, *([site.bucket_secret] if site.bucket_secret else [])]:
            container["envFrom"] = [{"secretRef": {"name": item}} for item in secrets]
        template = pod_template(site, container, labels, user=self.user)
        pod = template["spec"]
        pod["tolerations"] = [*SOON_GONE, *pod.get("tolerations", ())]
        mounts = pod["containers"][0]["volumeMounts"]
        if site.volume and site.code == "volume":
            place = str(Path(site.volume.path) / CODE)
            mounts.append({"name": VOLUME, "mountPath": place, "subPath": CODE, "readOnly": True})
        if site.restricted:
            pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = True
            pod["volumes"].append({"name": "tmp", "emptyDir": {}})
            mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108 - a path inside the pod
        if self.scratch:
            pod["volumes"].append({"name": "files", "emptyDir": {}})
            mounts.append({"name": "files", "mountPath": self.scratch})
        return template

    def resources(self, ask: SlotRequest) -> Manifest:
        amounts = quantities(ask.cpus, ask.memory, ask.gpus, self.site)
        more = {key: f"{amount:g}" for key, amount in ask.custom.items()}
        return {kind: amounts[kind] | more for kind in amounts}


def _on_node_with(labels: Mapping[str, str]) -> Manifest:
    """Return an affinity term: the nodes with pods that have these labels."""
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": HOST}


def supported_fields(answer: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields of a Job's spec that a server has kept in its answer to the probe."""
    return frozenset(answer.get("spec") or {})


def name(*words: str) -> str:
    """Return a DNS label of at most 57 characters, so that its pods can add a suffix of five letters."""
    text = "-".join(words)
    plain = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    if plain == text and len(plain) <= 57:
        return plain
    return f"{plain[:48].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
