"""Describe the state of a pod for people, with what to do next."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["waits", "runs", "ended", "refused"]
_NEVER = {  # reasons why a container can never begin, so that waiting is useless
    "ErrImageNeverPull": "the image is not on the node, and may not be pulled",
    "ImagePullBackOff": "the image can't be pulled",
    "InvalidImageName": "that is no name of an image",
    "CreateContainerConfigError": "the container can't be set up",
    "CreateContainerError": "the container can't be made",
    "RunContainerError": "the container can't be started",
}
_NO_SUCH_IMAGE = ("not found", "manifest unknown", "no match for platform")  # messages that a retry does not change
_HINTS = {
    "ErrImageNeverPull": "is it on every node? name another under kubernetes: {image: ...}",
    "ImagePullBackOff": "check kubernetes: {image: ...}; a private registry needs pull_secrets",
    "InvalidImageName": "write kubernetes: {image: registry/name@sha256:...}",
    "CreateContainerConfigError": "a Secret that it names must be in the namespace: kubectl get secrets",
    "RunContainerError": "is kubernetes: {python: ...} in the image, and is the image for the nodes' architecture?",
}
_AS_ROOT = "give the image a user that is not root, by its number (USER 1000), or run bench as one"
_NEVER_STARTED = ("StartError", "ContainerCannotRun")  # reasons of a container that has ended
_FOREIGN = re.compile(r"(exec \S+|standard_init_linux.*): exec format error")  # the complete output in that case
_NO_CODE = re.compile(r"can't open file '(\S+)/\.benchhouse/")
_FAR_VOLUME = re.compile(r"0/(\d+) nodes are available: \1 node\(s\) had volume node affinity conflict")
_CLUSTER_ENDS = {
    "Evicted": "the node evicted its pod",
    "Preempted": "its pod had to make room for one of higher priority",
    "Preempting": "its pod had to make room for one of higher priority",
    "TaintManagerEviction": "its node was lost or drained",
    "NodeControllerEviction": "its node was lost",
    "NodeLost": "its node was lost",
    "NodeShutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Shutdown": "its node was shut down",
    "DeadlineExceeded": "its pod lived longer than kubernetes: {time: ...} allows",
    "UnexpectedAdmissionError": "the node did not take its pod",
    "OutOfcpu": "the node had no cores left for its pod",
    "OutOfmemory": "the node had no memory left for its pod",
}


@dataclass(frozen=True)
class PodWords:
    """The state of a pod in words."""

    state: State
    text: str = ""
    hint: str = ""
    out_of_memory: bool = False
    is_worth_telling: bool = False  # to a person who waits
    reason: str = ""  # why it waits, in one word
    is_killed: bool = False  # by a signal

    @property
    def is_far_from_volume(self) -> bool:
        """Whether no current node can reach the volume, however long the pod waits."""
        return bool(_FAR_VOLUME.search(self.text))


def read_pod(pod: Mapping[str, Any], earlier: str = "") -> PodWords:
    """Return the state of a pod. `earlier` is the registry's message, which later reports of the kubelet lack."""
    status = pod.get("status") or {}
    phase, reason, message = status.get("phase", ""), status.get("reason", ""), status.get("message", "")
    container = first_container(pod)
    state, image = container.get("state") or {}, container.get("image", "")
    if phase in ("Failed", "Succeeded"):
        terminated = state.get("terminated") or {}
        return _never_ran(terminated, image) or _ended(phase, reason, message, terminated)
    if "running" in state:
        return PodWords("runs")
    waiting = state.get("waiting") or {}
    why = waiting.get("reason", "")
    words = earlier or waiting.get("message", "")
    if why == "ErrImagePull":
        if not any(text in words for text in _NO_SUCH_IMAGE):
            text = f"waits for its image, which is tried again: {words}"
            return PodWords("waits", text, is_worth_telling=True, reason="ErrImagePull")
        why = "ImagePullBackOff"
    if why in _NEVER:
        hint = _AS_ROOT if "runAsNonRoot" in words else _HINTS.get(why, "")
        return PodWords("refused", f"{_NEVER[why]} ({image}): {words}".rstrip(": "), hint)
    return _waits(status, why)


def first_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of the first container; empty before the kubelet has reported one."""
    containers = (pod.get("status") or {}).get("containerStatuses") or [{}]
    container: Mapping[str, Any] = containers[0]
    return container


def _waits(status: Mapping[str, Any], why: str) -> PodWords:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            words = condition.get("message") or condition.get("reason") or "the scheduler does not say why"
            # The scheduler uses one reason for both, but full nodes are temporary and unsuitable ones are not.
            reason = "InsufficientResources" if "Insufficient" in words else condition.get("reason") or "Unschedulable"
            return PodWords("waits", f"waits for a node: {words}", is_worth_telling=True, reason=reason)
    return PodWords("waits", "its pod is being made" if why in ("", "ContainerCreating", "PodInitializing") else why)


def hint_without_pod(message: str) -> str:
    """Return what to do if a Job may not create pods."""
    if "PodSecurity" in message:
        return "write kubernetes: {restricted: true}, with an image that names a user that is not root"
    return "ask for less under resources:, or see: bench site check"


def deletion_reason(events: Sequence[Mapping[str, Any]], conditions: Sequence[Mapping[str, Any]]) -> str:
    """Return why a pod disappeared without ending, from its events and its Job's conditions."""
    for condition in conditions:
        if condition.get("type") == "Failed" and (reason := condition.get("reason")) in _CLUSTER_ENDS:
            return f"{_CLUSTER_ENDS[reason]}: {condition.get('message', '')}".rstrip(": ")
    for event in reversed(events):
        if (reason := event.get("reason")) in _CLUSTER_ENDS:
            return f"{_CLUSTER_ENDS[reason]}: {event.get('message', '')}".rstrip(": ")
    return "its pod was deleted"


def _never_ran(terminated: Mapping[str, Any], image: str) -> PodWords | None:
    """Return the refusal of a container whose command or code can never run; None for other ends."""
    words = " ".join((terminated.get("message") or "").split())
    if terminated.get("reason") in _NEVER_STARTED or _FOREIGN.fullmatch(words):
        text = f"{_NEVER['RunContainerError']} ({image}): {words[-300:]}"
        return PodWords("refused", text.rstrip(": "), _HINTS["RunContainerError"])
    if match := _NO_CODE.search(words):
        text = f"pods do not see what this machine has at {match[1]}: the claim is another volume"
        return PodWords("refused", text, "correct kubernetes: {volume: ...}; bench site check --job compares both")
    return None


def _ended(phase: str, reason: str, message: str, terminated: Mapping[str, Any]) -> PodWords:
    words = " ".join((terminated.get("message") or "").split())
    if terminated.get("reason") == "OOMKilled":
        return PodWords("ended", "the kernel ended its pod, which used more memory than its limit", out_of_memory=True)
    if reason in _CLUSTER_ENDS:
        return PodWords("ended", f"{_CLUSTER_ENDS[reason]}: {message}".rstrip(": "))
    if reason:
        return PodWords("ended", f"{reason}: {message}".rstrip(": "))
    if phase == "Succeeded":
        return PodWords("ended", "its pod ended")
    code = terminated.get("exitCode")
    is_killed = code is None or code > 128
    died = f"its pod ended with code {code}"
    if is_killed:
        died = f"its pod was killed by signal {code - 128}" if code else "its pod was ended"
    return PodWords("ended", f"{died}: {words[-300:]}" if words else died, is_killed=is_killed)
