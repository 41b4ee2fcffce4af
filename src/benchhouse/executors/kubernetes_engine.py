"""The slots of a run as pods: made, watched by one thread, told of when they end, and deleted with their anchor."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.executors.cluster_engine import Node, Slot
from benchhouse.executors.kubernetes_manifest import CONTAINER, INDEX, RUN, SLOT, Pods, label
from benchhouse.executors.kubernetes_words import PodWords, first_container, read_pod
from benchhouse.http.kubernetes import KubeClient, Object, Refused, Unreachable, path_of, selector
from benchhouse.schema.errors import BenchError, Exit

_WATCH_S = 240  # then asked for anew; a connection that died silently is noticed at the latest then
_AGAIN_S = 1.0
_UNSEEN_S = 5.0  # after so long without a pod, its Job's events are asked for
_GONE_S = 30.0  # how long the end of pods that were told to end is waited for
_LOG_BYTES = 1 << 20
_LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "node.kubernetes.io/instance-type": "instance_type",
    "beta.kubernetes.io/instance-type": "instance_type",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "agentpool": "pool",
    "karpenter.sh/nodepool": "pool",
    "kubernetes.io/arch": "arch",
    "nvidia.com/gpu.product": "gpu",
}


@dataclass
class SlotPod:
    """One slot, and what the cluster has said of its pod."""

    slot: Slot
    asked_at: float
    job: str = ""
    pod: Object = field(default_factory=dict)
    words: PodWords = field(default_factory=lambda: PodWords("waits"))
    registry: str = ""  # what was said when the image could not be pulled
    is_over: bool = False
    looked_at: float = 0.0


class KubernetesEngine:
    """The same few methods as `EngineProcess`, in this process: the client is light."""

    def __init__(self, client: KubeClient, pods: Pods, say: Callable[[str], None]) -> None:
        self.client, self.pods, self.say = client, pods, say
        self.nodes: list[Node] = []
        self.answered = False
        self.lost = ""
        self.labels: dict[str, dict[str, str]] = {}  # of nodes, by name
        self.out_of_memory: set[str] = set()  # slots whose pod was ended for it
        self._slots: dict[str, SlotPod] = {}
        self._new: list[Slot] = []
        self._gone: dict[str, str] = {}
        self._refusal: BenchError | None = None
        self._said: set[str] = set()
        self._anchor = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    # -- what the executor asks for ------------------------------------------------------------------------------

    def start(self, slot: Slot) -> None:
        """It is made with the others of this round, by the next `gone`."""
        self._new.append(slot)

    def gone(self) -> Mapping[str, str]:
        self._make()
        with self._lock:
            if self._refusal:
                raise self._refusal
            gone, self._gone = self._gone, {}
        if not gone:
            self._look_at_unseen()
        return gone

    def is_lost(self) -> bool:
        return bool(self.lost)

    def ask_nodes(self) -> None:
        self.look(0.0)

    def look(self, limit_s: float) -> list[Node]:
        """All nodes that take pods. An account that may not list them has none to show: `answered` stays False."""
        try:
            items = self.client.get("/api/v1/nodes")["items"]
        except Refused as error:
            if error.status != 403:
                raise
            return []
        self.labels = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in items}
        self.nodes = [as_node(item, self.pods.site.gpu_resource) for item in items if _takes_pods(item)]
        self.answered = True
        return self.nodes

    def facts(self, slot: str) -> dict[str, str] | None:
        """What the cluster knows of a slot's place, for evidence; None until its container runs."""
        with self._lock:
            pod = self._slots[slot].pod if slot in self._slots else {}
        status = pod.get("status") or {}
        container = first_container(pod)
        if "running" not in (container.get("state") or {}):
            return None
        spec = pod["spec"]
        resources = spec["containers"][0].get("resources") or {}
        node = spec.get("nodeName", "")
        known = {_LABELS[key]: value for key, value in self.labels.get(node, {}).items() if key in _LABELS}
        return {
            "image": container.get("image", ""),
            "image_id": container.get("imageID", ""),
            "qos": status.get("qosClass", ""),
            "requests": _amounts(resources.get("requests")),
            "limits": _amounts(resources.get("limits")),
            **known,
            **_times(pod, container),
        }

    def waits(self, slot: str) -> str:
        with self._lock:
            return self._slots[slot].words.text if slot in self._slots else ""

    def stop(self, slots: Sequence[str]) -> None:
        self._new = [slot for slot in self._new if slot.name not in slots]
        for name in slots:
            if (item := self._slots.get(name)) and item.job and not item.is_over:
                self.client.delete(self._path("jobs", item.job))

    def close(self) -> None:
        """Delete all that the run has made, and wait until no pod of it runs."""
        if self._anchor:
            self.client.delete(path_of("v1", self.pods.namespace, "configmaps", self.pods.anchor_name))
            deadline = time.monotonic() + _GONE_S
            while time.monotonic() < deadline and any(item.pod and not item.is_over for item in self._slots.values()):
                time.sleep(0.05)
        self._over.set()

    def give_back(self) -> None:
        """Nothing is kept of a cluster that was only looked at."""

    def sweep(self) -> None:
        """Delete what earlier sessions of this run have left: one that was killed could not."""
        self.client.delete(path_of("v1", self.pods.namespace, "configmaps", self.pods.anchor_name))

    # -- slots become Jobs ---------------------------------------------------------------------------------------

    def _make(self) -> None:
        if not self._new:
            return
        if not self._anchor:
            self._anchor = self._made("configmaps", self.pods.anchor())["metadata"]["uid"]
        new, self._new = self._new, []
        kinds: list[list[Slot]] = []
        for slot in new:
            alike = next((kind for kind in kinds if kind[0].ask == slot.ask), None)
            alike.append(slot) if alike else kinds.append([slot])
        now = time.monotonic()
        with self._lock:
            self._slots |= {slot.name: SlotPod(slot, now) for slot in new}
        for kind in kinds:
            for job, slots in zip(
                self.pods.jobs(kind, self._anchor), [kind] if self.pods.is_indexed else [[slot] for slot in kind],
                strict=True,
            ):  # fmt: skip
                for slot in slots:
                    self._slots[slot.name].job = job["metadata"]["name"]
                self._made("jobs", job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True, name="pods")
            self._thread.start()

    def _made(self, plural: str, manifest: Object) -> Object:
        """Our names are our own: what is there already was made by a request whose answer was lost, or by a session
        of this run that was killed."""
        try:
            return self.client.create(self._path(plural), manifest)
        except Refused as error:
            if error.reason != "AlreadyExists":
                raise
            return self.client.get(self._path(plural, manifest["metadata"]["name"]))

    def _path(self, plural: str, name: str = "", part: str = "") -> str:
        api = "batch/v1" if plural == "jobs" else "v1"
        return path_of(api, self.pods.namespace, plural, name, part)

    # -- one watch for all ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until the engine is closed: list, then follow; whatever ends a watch, it is listed again."""
        query = {"labelSelector": selector({RUN: label(self.pods.run_id)})}
        path = self._path("pods")
        version = ""
        while not self._over.is_set():
            try:
                if not version:
                    listed = self.client.get(path, **query)
                    self._take_list(listed["items"])
                    version = listed["metadata"]["resourceVersion"]
                for kind, pod in self.client.watch(path, version, _WATCH_S, **query):
                    version = pod["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(pod, is_deleted=kind == "DELETED")
                    if self._over.is_set():
                        return
            except Unreachable as error:  # requests wait for two minutes by themselves
                version = ""
                if self._over.wait(_AGAIN_S):
                    return
                self._note_outage(error)
            except Refused as error:
                version = ""
                if error.status not in (410, 429, 500, 503, 504):
                    self.lost = error.message
                    return
                self._over.wait(_AGAIN_S)

    def _note_outage(self, error: BenchError) -> None:
        try:
            self.client.get("/version")
        except Unreachable:
            self.lost = error.message
            self._over.set()

    def _take_list(self, items: Sequence[Object]) -> None:
        """What is not in it any more has been deleted while nobody watched."""
        for pod in items:
            self._take(pod, is_deleted=False)
        there = {pod["metadata"]["uid"] for pod in items}
        for item in list(self._slots.values()):
            if item.pod and item.pod["metadata"]["uid"] not in there:
                self._take(item.pod, is_deleted=True)

    def _take(self, pod: Object, *, is_deleted: bool) -> None:
        item = self._slot_of(pod)
        if item is None or item.is_over:
            return
        words = read_pod(pod, item.registry)
        if is_deleted and words.state != "ended":
            words = PodWords("ended", "its pod was deleted")
        with self._lock:
            item.pod, item.words = pod, words
        waiting = (first_container(pod).get("state") or {}).get("waiting") or {}
        if waiting.get("reason") == "ErrImagePull":
            item.registry = waiting.get("message", "")
        if words.state == "refused":
            self._keep_evidence(item)
            self._refuse(words)
        elif words.state == "ended":
            if pod["status"].get("phase") != "Succeeded":
                self._keep_evidence(item)
            self._end(item, words)
        elif words.state == "waits" and words.text.startswith("waits for a node") and words.text not in self._said:
            self._said.add(words.text)
            self.say(f"a pod {words.text}")

    def _end(self, item: SlotPod, words: PodWords) -> None:
        with self._lock:
            item.is_over = True
            if words.out_of_memory:
                self.out_of_memory.add(item.slot.name)
            self._gone[item.slot.name] = words.text

    def _refuse(self, words: PodWords) -> None:
        with self._lock:
            self._refusal = self._refusal or BenchError(
                f"no trial can begin on Kubernetes: {words.text}", words.hint, Exit.TRIAL_FAILED
            )

    def _slot_of(self, pod: Object) -> SlotPod | None:
        metadata = pod["metadata"]
        index = int((metadata.get("annotations") or {}).get(INDEX) or 0)
        of_job = [item for item in list(self._slots.values()) if item.job and label_of(item) == _label(metadata)]
        if not of_job:
            job = (metadata.get("labels") or {}).get("job-name")
            of_job = [item for item in list(self._slots.values()) if item.job == job]
        return of_job[index] if index < len(of_job) else None

    # -- what is told of slots without a pod, and evidence ---------------------------------------------------------

    def _look_at_unseen(self) -> None:
        """A Job without a pod: its events say why (a quota, a policy, an account that is not there)."""
        now = time.monotonic()
        for item in self._slots.values():
            if item.pod or item.is_over or not item.job or now - max(item.asked_at, item.looked_at) < _UNSEEN_S:
                continue
            item.looked_at = now
            for event in self._events(f"involvedObject.kind=Job,involvedObject.name={item.job}"):
                if event.get("type") == "Warning" and (text := event.get("message", "")) not in self._said:
                    self._said.add(text)
                    self.say(f"no pod yet: {text}")

    def _events(self, fields: str) -> list[Object]:
        try:
            items: list[Object] = self.client.get(self._path("events"), fieldSelector=fields)["items"]
        except BenchError:
            return []
        return items

    def _keep_evidence(self, item: SlotPod) -> None:
        """pod.json, events.json and log.txt beside the slot's orders: what the cluster said of a pod that failed."""
        folder, metadata = Path(item.slot.folder), item.pod["metadata"]
        metadata.pop("managedFields", None)
        events = self._events(f"involvedObject.uid={metadata['uid']}")
        log = ""
        with contextlib.suppress(BenchError):
            log = self.client.text(
                self._path("pods", metadata["name"], "log"), container=CONTAINER, limitBytes=str(_LOG_BYTES)
            )
        with contextlib.suppress(OSError):
            (folder / "pod.json").write_text(json.dumps(item.pod, indent=1) + "\n", encoding="utf-8")
            (folder / "events.json").write_text(json.dumps(events, indent=1) + "\n", encoding="utf-8")
            (folder / "log.txt").write_text(log, encoding="utf-8")


def label_of(item: SlotPod) -> str:
    return label(item.slot.name)


def _label(metadata: Object) -> str:
    return str((metadata.get("labels") or {}).get(SLOT, ""))


def _takes_pods(node: Object) -> bool:
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions") or ())
    return ready and not node["spec"].get("unschedulable")


def as_node(node: Object, gpu: str) -> Node:
    """What a node can give to pods in all, whether or not it is free."""
    have = node["status"].get("allocatable") or {}
    return Node(
        name=node["metadata"]["name"],
        cpus=quantity(have.get("cpu", "0")),
        gpus=quantity(have.get(gpu, "0")),
        memory=int(quantity(have.get("memory", "0"))),
    )


_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "n": 1e-9, "u": 1e-6} | {
    f"{letter}i": float(1 << (10 * power)) for power, letter in enumerate("KMGTPE", 1)
}


def quantity(text: str) -> float:
    """A Kubernetes quantity: 100m, 2, 1536Mi, 1e3."""
    for unit in sorted(_UNITS, key=len, reverse=True):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * _UNITS[unit]
    return float(text)


def _amounts(amounts: Mapping[str, str] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in (amounts or {}).items())


def _times(pod: Object, container: Mapping[str, Any]) -> dict[str, str]:
    """By the clocks of the cluster: they are compared with each other alone."""
    scheduled = next(
        (
            item.get("lastTransitionTime", "")
            for item in pod["status"].get("conditions") or ()
            if item["type"] == "PodScheduled" and item["status"] == "True"
        ),
        "",
    )
    times = {
        "pod_created": pod["metadata"].get("creationTimestamp", ""),
        "pod_scheduled": scheduled,
        "pod_started": container["state"]["running"].get("startedAt", ""),
    }
    return {key: value for key, value in times.items() if value}
