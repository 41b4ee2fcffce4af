"""Create the slots of a run as pods, watch them in one thread, report their ends, and delete them with their anchor."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchhouse.executors.cluster_engine import ClusterNode, WorkerSlot
from benchhouse.executors.kubernetes_kueue import KueueQueue
from benchhouse.executors.kubernetes_manifest import CONTAINER, INDEX, Pods
from benchhouse.executors.kubernetes_nodes import as_node, place_of, takes_pods
from benchhouse.executors.kubernetes_status import (
    PodWords,
    deletion_reason,
    first_container,
    hint_without_pod,
    read_pod,
)
from benchhouse.executors.kubernetes_waits import SCALING_FIELDS, Wait, WaitBook, scaling_waits
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, Unreachable, path_of, selector
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.pod_template import RUN_LABEL, label
from benchhouse.schema.quantities import show_seconds

_WATCH_S = 240  # after that the watch is renewed, which detects a connection that died silently
_AGAIN_S = 1.0
_LOOK_S = 5.0  # between two reads of the events of slots without a pod or a node
_AGAIN_TOLD_S = 60.0  # how long pods have waited is reported after one minute, two, four, ...
_GONE_S = 60.0  # longest wait for the end of pods that were told to end
_LOG_BYTES = 1 << 20
_PASSING = (410, 429, 500, 502, 503, 504)  # answers after which a watch starts again


def delete_run(client: KubeClient, namespace: str, run_id: str, anchor: str) -> None:
    """Delete all objects of a run by their anchor. Return when no pod of it runs, or after a minute."""
    client.delete(path_of("v1", namespace, "configmaps", anchor))
    query, deadline = {"labelSelector": selector({RUN_LABEL: label(run_id)})}, time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        pods = client.get(path_of("v1", namespace, "pods"), **query)["items"]
        if all(read_pod(pod).state == "ended" for pod in pods):
            return
        time.sleep(_AGAIN_S)


@dataclass
class SlotPod:
    """One slot, and what the cluster has reported about its pod."""

    slot: WorkerSlot
    job: str
    asked_at: float
    index: int = 0  # among the slots of its Job
    pod: Object = field(default_factory=dict)
    words: PodWords = field(default_factory=lambda: PodWords("waits"))
    made: Object = field(default_factory=dict)  # metadata of its Job
    wait: Wait = field(default_factory=Wait)
    scaling: Wait | None = None  # the last statement of an autoscaler about it
    registry: str = ""  # the registry's message when the image could not be pulled
    leaving_at: float | None = None  # when the pod was first seen to be terminating, for any reason
    is_stopped: bool = False  # by this run
    is_over: bool = False


class PodListener(Protocol):
    """Receives news of the run's pods that are not slots."""

    def take(self, pod: Object, *, is_deleted: bool) -> None: ...

    def take_list(self, pods: Sequence[Object]) -> None:
        """Take all existing pods; a pod that is missing from them has been deleted."""


class KubernetesEngine:
    """The engine of Kubernetes, which runs in this process because its client is light.

    The thread processes what the watch reports; all other methods are called by the executor's thread.
    """

    def __init__(
        self,
        client: KubeClient,
        pods: Pods,
        patience_s: float,
        say: Callable[[str], None],
        book: WaitBook | None = None,
    ) -> None:
        self.client, self.pods, self.patience_s, self.say = client, pods, patience_s, say
        self.book = book or WaitBook()
        self.nodes: list[ClusterNode] = []
        self.suitable: list[Object] = []  # the same nodes, as the API server returns them
        self.answered = False
        self.lost = ""
        self.out_of_memory: set[str] = set()  # slots whose pod ran out of memory
        self._labels: dict[str, dict[str, str]] = {}  # labels of nodes, by name
        self._slots: dict[str, SlotPod] = {}
        self._new: list[WorkerSlot] = []
        self._gone: dict[str, str] = {}
        self._news: list[str] = []
        self._said: set[str] = set()
        self._refusal: BenchError | None = None
        self._anchor = ""
        self._servers: PodListener | None = None
        self._next_look, self._next_word_s = 0.0, _AGAIN_TOLD_S
        self._scales = False  # whether an autoscaler was seen to start a node
        self._queue = KueueQueue(client, pods.namespace, pods.site.queue) if pods.site.queue else None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    # -- what the executor requests -------------------------------------------------------------------------------

    def start(self, slot: WorkerSlot) -> None:
        """Queue a slot; the next `gone` creates it together with the others of this round."""
        self._new.append(slot)

    def gone(self) -> Mapping[str, str]:
        try:
            self._make()
            self._read_wait_reasons()
        except Unreachable as error:
            self.lost = error.message
        with self._lock:
            news, self._news = self._news, []
            gone, self._gone = self._gone, {}
            refusal, self._refusal = self._refusal, None
        for text in news:
            self.say(text)
        if refusal:
            raise refusal
        return gone

    def is_lost(self) -> bool:
        return bool(self.lost)

    def ask_nodes(self) -> None:
        self.look(0.0)

    def look(self, limit_s: float) -> list[ClusterNode]:
        self.take_nodes(self.list_nodes())
        return self.nodes

    def list_nodes(self) -> list[Object] | None:
        """Return the nodes as the API server lists them, or None if this account may not list them."""
        try:
            items: list[Object] = self.client.get("/api/v1/nodes")["items"]
        except KubernetesRefused as error:
            if error.status != 403:
                raise
            return None
        return items

    def take_nodes(self, items: Sequence[Object] | None) -> None:
        """Keep the nodes that accept pods.

        `answered` stays False if they are not conclusive: the account may not list them, or an autoscaler adds nodes
        when pods wait.
        """
        if items is None:
            return
        site = self.pods.site
        self._labels = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in items}
        self.suitable = [item for item in items if takes_pods(item) and self._selects(item)]
        self.nodes = [as_node(item, site.gpu_resource) for item in self.suitable]
        self.answered = not site.autoscaled and not self._scales

    def _selects(self, node: Object) -> bool:
        return self.pods.site.node_selector.items() <= (node["metadata"].get("labels") or {}).items()

    def place(self, slot: str) -> dict[str, str] | None:
        """Return what the cluster knows about a slot's place, for evidence; None until its container runs."""
        with self._lock:
            item = self._slots.get(slot)
            pod = item.pod if item else {}
        if item is None or not pod:
            return None
        facts = place_of(pod, self._labels.get(pod["spec"].get("nodeName", ""), {}))
        admission = self._queue.admission(item.made) if facts and self._queue else {}
        return facts and {"job_created": item.made["creationTimestamp"], **admission, **facts}

    def stop(self, slots: Sequence[str]) -> None:
        self._new = [slot for slot in self._new if slot.name not in slots]
        for item in [self._slots[name] for name in slots if name in self._slots]:
            if not item.is_over:
                item.is_stopped = True
                if self.pods.is_indexed:
                    self._delete_pod(item)
                else:
                    self.client.delete(self._path("jobs", item.job))
                    self._free_place(item)

    def _delete_pod(self, item: SlotPod, grace_s: int | None = None) -> None:
        """Delete the pod of a Job that has other pods. Its index has then failed, so it is not created again."""
        if item.pod:
            self.client.delete(self._path("pods", item.pod["metadata"]["name"]), grace_s=grace_s)

    def _free_place(self, item: SlotPod) -> None:
        """Delete a pod that never began at once, to free its resources.

        It has nothing to clean up, and a kubelet takes up to a minute, in which the next run waits. If this account may
        not do that, the kubelet does it.
        """
        if item.words.state in ("waits", "refused"):
            with contextlib.suppress(KubernetesRefused):
                self._delete_pod(item, grace_s=0)

    def close(self) -> None:
        """Delete everything that the run has created, and wait until no pod that was told to end still runs."""
        try:
            if self._anchor:
                self.client.delete(self._path("configmaps", self.pods.anchor_name))
                deadline = time.monotonic() + _GONE_S
                while any(self._runs_on(item) for item in self._slots.values()) and time.monotonic() < deadline:
                    time.sleep(0.05)
        finally:
            self._over.set()

    def _runs_on(self, item: SlotPod) -> bool:
        return item.is_stopped and item.words.state == "runs" and not item.is_over and not self.lost

    def give_back(self) -> None:
        """Do nothing: nothing is kept of a cluster that was only read."""

    # -- slots become Jobs ---------------------------------------------------------------------------------------

    def _make(self) -> None:
        if not self._new:
            return
        self.anchor()
        new, self._new = self._new, []
        for kind in self.pods.kinds(new):
            job = self.pods.job(kind, self._anchor)
            name, now = job["metadata"]["name"], time.monotonic()
            with self._lock:
                made = {slot.name: SlotPod(slot, name, now, index) for index, slot in enumerate(kind)}
                self._slots |= made
            for slot in kind:
                self.book.note(slot.name, "PENDING")
            metadata = self._make_job(job)
            for item in made.values():
                item.made = metadata
        self._begin_watch()

    def anchor(self) -> str:
        """Return the uid of the object that owns everything the run creates."""
        if not self._anchor:
            self._anchor = self._create_anchor()
        return self._anchor

    def follow(self, servers: PodListener) -> None:
        """Pass news of the run's pods that are not slots to `servers`."""
        self._servers = servers
        self._begin_watch()

    def _begin_watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True, name="pods")
            self._thread.start()

    def _create_anchor(self) -> str:
        """Create the anchor and return its uid. An existing one is from a lost answer, and owns nothing."""
        manifest, path = self.pods.anchor(), self._path("configmaps")
        try:
            return str(self.client.create(path, manifest)["metadata"]["uid"])
        except KubernetesRefused as error:
            if error.reason != "AlreadyExists":
                raise
            self.client.delete(self._path("configmaps", self.pods.anchor_name))
            return str(self.client.create(path, manifest)["metadata"]["uid"])

    def _make_job(self, job: Object) -> Object:
        """Create a Job and return its metadata. Names are unique to slots: an existing Job comes from a lost answer."""
        try:
            made = self.client.create(self._path("jobs"), job)
        except KubernetesRefused as error:
            if error.reason != "AlreadyExists":
                raise
            made = self.client.get(self._path("jobs", job["metadata"]["name"]))
        metadata: Object = made["metadata"]
        return metadata

    def _path(self, plural: str, name: str = "", part: str = "") -> str:
        return path_of("batch/v1" if plural == "jobs" else "v1", self.pods.namespace, plural, name, part)

    # -- one watch for all ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """List the pods, then follow them, until the engine is closed. If a watch ends early, list again.

        Trials continue without an answer, because only new slots need the API server.
        """
        query, path, version = {"labelSelector": selector({RUN_LABEL: label(self.pods.run_id)})}, self._path("pods"), ""
        while not self._over.is_set():
            try:
                if not version:
                    listed = self.client.get(path, **query)
                    self._replace_objects(listed["items"])
                    version = listed["metadata"]["resourceVersion"]
                for kind, pod in self.client.watch(path, version, _WATCH_S, **query):
                    version = pod["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(pod, is_deleted=kind == "DELETED")
                    if self._over.is_set():
                        return
            except Unreachable as error:
                version = ""
                self._tell(f"{error.message}; trials that run go on, and it is asked again")
                self._over.wait(_AGAIN_S)
            except KubernetesRefused as error:
                version = ""
                if error.status not in _PASSING:
                    self.lost = error.message
                    return
                self._over.wait(max(_AGAIN_S, error.wait_s))

    def _replace_objects(self, items: Sequence[Object]) -> None:
        """Take a complete list; slots whose pods are missing from it were deleted while no watch was open."""
        for pod in items:
            self._take(pod, is_deleted=False)
        there = {pod["metadata"]["uid"] for pod in items}
        for item in list(self._slots.values()):
            if item.pod and item.pod["metadata"]["uid"] not in there:
                self._take(item.pod, is_deleted=True)
        if self._servers:
            self._servers.take_list([pod for pod in items if self._slot_of(pod) is None])

    def _take(self, pod: Object, *, is_deleted: bool) -> None:
        item = self._slot_of(pod)
        if item is None and self._servers:
            self._servers.take(pod, is_deleted=is_deleted)
        if item is None or item.is_over:
            return
        waiting = (first_container(pod).get("state") or {}).get("waiting") or {}
        if waiting.get("reason") == "ErrImagePull":
            item.registry = waiting.get("message", "")
        with self._lock:
            item.pod, item.words = pod, read_pod(pod, item.registry)
        if item.words.state == "runs":
            self._note_begun(item)
        if pod["metadata"].get("deletionTimestamp"):
            item.leaving_at = item.leaving_at or time.monotonic()
        if is_deleted or item.words.state == "ended":
            self._end(item, self._last_words(item))
        elif item.words.state == "refused":
            self._keep_evidence(item)
            self._refuse(item.words.text, item.words.hint)
        elif item.words.state == "waits" and item.words.is_worth_telling:
            self._note_wait(item, item.scaling or Wait(item.words.reason, item.words.text))

    def _last_words(self, item: SlotPod) -> PodWords:
        """Return why a pod has ended or is gone: from its status, or why it was told to end."""
        words = item.words
        if item.pod["status"].get("phase") == "Succeeded":
            return words
        events = self._keep_evidence(item)
        if words.state == "ended" and not (words.is_killed and item.leaving_at):
            return words
        return PodWords("ended", deletion_reason(events, self._job_conditions(item)))

    def _slot_of(self, pod: Object) -> SlotPod | None:
        metadata = pod["metadata"]
        job = (metadata.get("labels") or {}).get("job-name")
        index = int((metadata.get("annotations") or {}).get(INDEX) or 0)
        of_job = (item for item in list(self._slots.values()) if (item.job, item.index) == (job, index))
        return next(of_job, None)

    def _note_wait(self, item: SlotPod, wait: Wait) -> None:
        item.wait = wait
        self.book.note(item.slot.name, "PENDING", wait)
        self._tell(f"a pod {wait.text}")

    def _note_begun(self, item: SlotPod) -> None:
        self.book.note(item.slot.name, "RUNNING")
        if item.wait.reason:
            item.wait = Wait()
            waited = show_seconds(time.monotonic() - item.asked_at)
            self._tell(f"a pod that waited {waited} has begun; the wait is part of no result")

    def _end(self, item: SlotPod, words: PodWords) -> None:
        self.book.note(item.slot.name, "ENDED")
        with self._lock:
            item.is_over = True
            if words.out_of_memory:
                self.out_of_memory.add(item.slot.name)
            self._gone[item.slot.name] = words.text

    def _refuse(self, text: str, hint: str) -> None:
        with self._lock:
            self._refusal = BenchError(f"no trial can begin on Kubernetes: {text}", hint, Exit.TRIAL_FAILED)

    def _tell(self, text: str) -> None:
        """Report a text once, through the executor's thread."""
        with self._lock:
            if text not in self._said:
                self._said.add(text)
                self._news.append(text)

    # -- slots that wait, or do not leave ------------------------------------------------------------------------

    def _read_wait_reasons(self) -> None:
        """Read events: only they state why a Job has no pod (a quota, a policy) and why a pod does not begin."""
        now = time.monotonic()
        look_s = min(_LOOK_S, self.patience_s / 4)
        if now < self._next_look:
            return
        self._next_look = now + look_s
        items = [item for item in self._slots.values() if not item.is_over]
        for item in items:
            if item.leaving_at and now - item.leaving_at > _GONE_S:
                self._end(item, PodWords("ended", "its node was lost: it was told to end its pod, and did not answer"))
            is_late = now - item.asked_at > self.patience_s
            if item.words.is_far_from_volume and is_late and not (self.pods.site.autoscaled or self._scales):
                hint = "the claim's volume is in a zone without nodes: kubectl describe pv; name another claim"
                self._refuse(f"a pod {item.words.text}", hint)
        late = [item for item in items if item.words.state == "waits" and now - item.asked_at > look_s]
        if late:
            self._explain(late, {item.job for item in late if not item.pod}, now)
            self._explain_queue([item for item in late if not item.pod])
            self._explain_scaling([item for item in late if item.words.is_worth_telling])
            self._report_wait(late, now)
        else:
            self._next_word_s = _AGAIN_TOLD_S

    def _report_wait(self, late: Sequence[SlotPod], now: float) -> None:
        known = [item for item in late if item.wait.reason]
        waited_s = now - min((item.asked_at for item in known), default=now)
        if waited_s >= self._next_word_s:
            self._next_word_s = 2 * waited_s
            pods = f"{len(known)} pods have" if len(known) > 1 else "a pod has"
            self._tell(f"{pods} waited for {show_seconds(waited_s)} now; the last word: it {known[0].wait.text}")

    def _explain_scaling(self, unplaced: Sequence[SlotPod]) -> None:
        waits = scaling_waits(self._events(SCALING_FIELDS)) if unplaced else {}
        for item in unplaced:
            if wait := waits.get(item.pod["metadata"]["name"]):
                self._scales = self._scales or wait.brings_node
                item.scaling = wait
                self._note_wait(item, wait)

    def _explain_queue(self, podless: Sequence[SlotPod]) -> None:
        waits = self._queue.waits(item.made for item in podless) if self._queue and podless else {}
        for item in podless:
            if wait := waits.get(item.made.get("uid", "")):
                self._note_wait(item, wait)

    def _explain(self, late: Sequence[SlotPod], podless: set[str], now: float) -> None:
        """Explain all late slots from one request for events."""
        names = {item.pod["metadata"]["name"] for item in late if item.pod}
        for event in self._events("type!=Normal"):
            about = event["involvedObject"]["name"]
            if about in podless:
                self._tell(f"no pod yet: {event['message']}")
                reason = "ExceededQuota" if "exceeded quota" in event["message"] else event["reason"]
                for item in (item for item in late if item.job == about):
                    item.wait = Wait(reason, f"can't be made: {event['message']}")
                    self.book.note(item.slot.name, "PENDING", item.wait)
                oldest = min(item.asked_at for item in late if not item.pod)
                if now - oldest > self.patience_s:
                    self._refuse(event["message"], hint_without_pod(event["message"]))
            elif about in names and event.get("reason") in ("FailedMount", "FailedAttachVolume"):
                self._tell(f"a pod waits for its volume: {event['message'][:300]}")

    def _events(self, fields: str) -> list[Object]:
        try:
            items: list[Object] = self.client.get(self._path("events"), fieldSelector=fields)["items"]
        except KubernetesRefused:
            return []
        return items

    # -- evidence ------------------------------------------------------------------------------------------------

    def _job_conditions(self, item: SlotPod) -> list[dict[str, Any]]:
        with contextlib.suppress(BenchError):
            return self.client.get(self._path("jobs", item.job))["status"].get("conditions") or []
        return []

    def _keep_evidence(self, item: SlotPod) -> list[Object]:
        """Write pod.json, events.json, and log.txt of a failed pod next to the slot's orders; return the events."""
        folder, metadata = Path(item.slot.folder), item.pod["metadata"]
        metadata.pop("managedFields", None)
        events: list[Object] = []
        log = ""
        with contextlib.suppress(BenchError):
            events = self._events(f"involvedObject.uid={metadata['uid']}")
            log = self.client.text(
                self._path("pods", metadata["name"], "log"), container=CONTAINER, limitBytes=str(_LOG_BYTES)
            )
        with contextlib.suppress(OSError):
            (folder / "pod.json").write_text(json.dumps(item.pod, indent=1) + "\n", encoding="utf-8")
            (folder / "events.json").write_text(json.dumps(events, indent=1) + "\n", encoding="utf-8")
            (folder / "log.txt").write_text(log, encoding="utf-8")
        return events
