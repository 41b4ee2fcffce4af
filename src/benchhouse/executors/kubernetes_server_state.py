"""Translate the cluster's reports about a server with its own image into the files that a keeper would write.

A restarted container or a replaced pod is not the server that was measured. The server then counts as dead, and the end
of its log is reported.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from benchhouse.executors.kubernetes_server import CONTAINER, ImageServer
from benchhouse.executors.kubernetes_status import first_container, read_pod
from benchhouse.http.kubernetes import Object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.recipe import fill
from benchhouse.schema.secrets import blanker, secret_values
from benchhouse.schema.service import (
    OVER,
    Address,
    Addresses,
    Phase,
    Replica,
    ServiceFolder,
    ServiceState,
    read_state,
)

_BEAT_S = 5.0  # trials treat a server as dead if its state is not renewed
_TAIL_LINES = 15
_LOG_LINES = 100_000

ReadLog = Callable[[str, Mapping[str, str]], str]
"""A function that returns the log of a pod, by the pod's name and the query of the request."""


class PodServerState:
    """The state of one server, from pods (by the watch) and time (by the keepers' thread); writes `state.json`."""

    def __init__(
        self, folder: ServiceFolder, server: ImageServer, read_log: ReadLog, uids: Mapping[str, str] | None = None
    ) -> None:
        """Create the state. `uids` are those of the pods it was started with, by name, if another process did that."""
        self.uids = dict(uids or {})
        self.folder, self.server, self._read_log = folder, server, read_log
        self._blank = blanker([server.secret, *secret_values(server.spec.model_dump(mode="json"), server.environ)])
        self._began = time.monotonic()
        self._pods: dict[str, Object] = {}  # by name
        self._runs_since: dict[str, float] = {}
        self._next_beat = 0.0
        self._is_over = False
        self._lock = threading.RLock()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def take(self, pod: Object, *, is_deleted: bool) -> None:
        """Process a change of a pod."""
        with self._lock:
            if self._is_over:
                return
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            if self.uids.setdefault(name, uid) != uid:
                self._fail(f"{self._said(name)} was replaced: Kubernetes made another pod of its name")
            elif is_deleted or pod["metadata"].get("deletionTimestamp"):
                self._fail(f"{self._said(name)} is over: its pod was deleted{self._last_words(name)}")
            else:
                self._pods[name] = pod
                self._judge(name, pod)

    def take_list(self, names: set[str]) -> None:
        """Process a complete list: these are all existing pods."""
        for name in [name for name in list(self._pods) if name not in names]:
            self.take(self._pods[name], is_deleted=True)

    def look(self) -> None:
        """Process the passing of time: check deadlines of a starting server, renew the state of one that is up."""
        with self._lock:
            state = read_state(self.folder)
            if self._is_over or state is None or state.phase in OVER:
                return
            if state.phase == "starting":
                self._check_deadlines()
            elif time.monotonic() >= self._next_beat:
                self._next_beat = time.monotonic() + _BEAT_S
                silent = [self._said(name) for name, pod in sorted(self._pods.items()) if not _is_ready(pod)]
                words = f"{', '.join(silent)} does not answer ({self.server.recipe.ready.kind})" if silent else ""
                phase: Phase = "unhealthy" if silent else "ready"
                since = {"since": _now()} if phase != state.phase else {}
                self._write(state, phase=phase, message=words, **since, **({} if silent else {"checked": _now()}))

    def close(self) -> None:
        """Keep the logs. From now on, the end of the server is intended."""
        with self._lock:
            for name in self._pods:
                if not self._is_over:
                    self._keep_log(name)
            self._is_over = True

    # -- judgement -------------------------------------------------------------------------------------------------

    def _judge(self, name: str, pod: Object) -> None:
        words = read_pod(pod)
        if words.state == "refused":
            self._fail(f"{self._said(name)} can't be started: {words.text}")
            return
        for status in pod["status"].get("initContainerStatuses") or ():
            if (ended := _terminated(status)) and ended.get("exitCode"):
                tail = self._tail(name, status["name"], again=bool(status.get("restartCount")))
                self._fail(f"{self._said(name)} could not be prepared ({status['name']}):\n{tail}")
                return
        container, state = first_container(pod), read_state(self.folder)
        if died := describe_pod_end(pod):
            when = "" if state and state.phase != "starting" else " before it was ready"
            again = bool(container.get("restartCount"))
            self._fail(f"{self._said(name)} {died}{when}{self._last_words(name, again=again)}")
            return
        if "running" in (container.get("state") or {}):
            self._runs_since.setdefault(name, time.monotonic())
        ready = [item for item in self._pods.values() if _is_ready(item)]
        if state and state.phase == "starting" and len(ready) == self.server.spec.replicas:
            self._enter_ready(state, sorted(ready, key=_number))

    def _check_deadlines(self) -> None:
        limit_s = self.server.recipe.ready.timeout
        for name, since in self._runs_since.items():
            if not _is_ready(self._pods[name]) and time.monotonic() - since > limit_s:
                kind = self.server.recipe.ready.kind
                self._fail(f"{self._said(name)} was not up within {limit_s:g} s ({kind}){self._last_words(name)}")
                return

    def _enter_ready(self, state: ServiceState, pods: Sequence[Object]) -> None:
        recipe, replicas, servers = self.server.recipe, [], []
        for pod in pods:
            places = self.server.places(self.server.host_of(pod))
            endpoint, status = fill(recipe.endpoint, places), pod["status"]["containerStatuses"][0]
            servers.append(Address(name=self._said(pod["metadata"]["name"]), endpoint=endpoint, places=places))
            replicas.append(
                Replica(
                    endpoint=self._blank(endpoint),
                    pid=0,
                    node=pod["spec"]["nodeName"],
                    metrics=self._blank(fill(recipe.metrics, places)),
                    image=str(status.get("imageID", "")).rpartition("sha256:")[2],
                    start_s=time.monotonic() - self._began,
                )
            )
        descriptor = os.open(self.folder.endpoints, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(Addresses(servers=servers).model_dump_json())
        # No run renews the state of a server that was started without one, so an old state means nothing: host is
        # empty.
        host = ", ".join(sorted({item.node for item in replicas})) if self.server.spec.run_id else ""
        for pod in pods:
            self._keep_log(pod["metadata"]["name"])
        now = _now()
        self._write(state, phase="ready", message="", since=now, checked=now, host=host, replicas=replicas)

    def _fail(self, message: str) -> None:
        for name in self._pods:
            self._keep_log(name)
        self._is_over = True
        if (state := read_state(self.folder)) and state.phase not in OVER:
            self.folder.endpoints.unlink(missing_ok=True)
            self._write(state, phase="failed", message=self._blank(message), since=_now())

    def _write(self, state: ServiceState, **changes: Any) -> None:
        made = self.folder.state.with_name(".state.json.new")
        made.write_text(state.model_copy(update=changes).model_dump_json(indent=2) + "\n", encoding="utf-8")
        made.replace(self.folder.state)

    # -- words -----------------------------------------------------------------------------------------------------

    def _said(self, pod: str) -> str:
        """Return the name that a server with that number has elsewhere."""
        number = pod.rpartition("-")[2]
        return self.server.spec.id if number == "0" else f"{self.server.spec.id}-{number}"

    def _last_words(self, pod: str, *, again: bool = False) -> str:
        tail = self._tail(pod, CONTAINER, again=again)
        return f":\n{tail}" if tail else ""

    def _tail(self, pod: str, container: str, *, again: bool) -> str:
        return self._text(pod, container, _TAIL_LINES, again=again).rstrip("\n")

    def _text(self, pod: str, container: str, lines: int, *, again: bool) -> str:
        query = {"container": container, "tailLines": str(lines)} | ({"previous": "true"} if again else {})
        try:
            return self._blank(self._read_log(pod, query))
        except BenchError:
            return ""

    def _keep_log(self, pod: str) -> None:
        """Keep the log as evidence, where other servers have theirs; after a restart, that of the first container."""
        status = first_container(self._pods[pod])
        text = self._text(pod, CONTAINER, _LOG_LINES, again=bool(status.get("restartCount")))
        if text:
            logs = self.folder.path / "logs"
            logs.mkdir(exist_ok=True)
            (logs / f"{self._said(pod)}.log").write_text(text, encoding="utf-8")


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a container ended, now or before its restart; empty if it has not."""
    now = (status.get("state") or {}).get("terminated")
    before = (status.get("lastState") or {}).get("terminated") if status.get("restartCount") else None
    return before or now or {}


def describe_pod_end(pod: Object) -> str:
    """Return how the server in a pod ended, restarted or not; empty if it has not."""
    ended = _terminated(first_container(pod))
    if not ended:
        return ""
    code = ended.get("exitCode", 0)
    how = f"ended by signal {code - 128}" if code > 128 else f"ended with {code}"
    return f"{how}, as it used more memory than its limit" if ended.get("reason") == "OOMKilled" else how


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _number(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
