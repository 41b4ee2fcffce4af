"""Explain why a pod waits, from reports of the scheduler and autoscalers, and record the waits of slots."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

_STARTS = "waits for a node, which the autoscaler is starting"
_SCALING = {
    "TriggeredScaleUp": _STARTS,  # reason in events of the Cluster Autoscaler
    "NotTriggerScaleUp": "waits for a node, and the autoscaler does not start one",
    "Nominated": _STARTS,  # reason in events of Karpenter
}
_USUAL = ("Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "SuccessfulAttachVolume")
SCALING_FIELDS = ",".join(["involvedObject.kind=Pod", "type=Normal", *(f"reason!={reason}" for reason in _USUAL)])
"""A selector for events that keeps those of autoscalers; reasons can be excluded, but not listed."""


@dataclass(frozen=True)
class Wait:
    """What a slot waits for: the cluster's reason, and a sentence whose subject is the pod."""

    reason: str = ""
    text: str = ""

    @property
    def brings_node(self) -> bool:
        return self.text.startswith(_STARTS)


def scaling_waits(events: Sequence[Mapping[str, Any]]) -> dict[str, Wait]:
    """Return the last statement of an autoscaler about each pod, by the pod's name."""
    known = [event for event in events if event.get("reason") in _SCALING and not _names_old_node(event)]
    return {
        event["involvedObject"]["name"]: Wait(
            event["reason"], f"{_SCALING[event['reason']]}: {event.get('message', '')}"
        )
        for event in sorted(known, key=_time_of)
    }


def _names_old_node(event: Mapping[str, Any]) -> bool:
    """Return whether Karpenter only announces a pod's place on an existing node."""
    return event["reason"] == "Nominated" and "nodeclaim/" not in event.get("message", "")


def _time_of(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")


class WaitBook:
    """Writes a line whenever the reason for which a slot waits changes; times are from this machine's clock.

    The keys are the same as in the record of Slurm's states. Without a path, nothing is written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._last: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def note(self, slot: str, state: Literal["PENDING", "RUNNING", "ENDED"], wait: Wait | None = None) -> None:
        wait = wait or Wait()
        with self._lock:
            if self._path is None or self._last.get(slot) == (state, wait.reason):
                return
            lines = [] if self._last else [{"state": "SESSION"}]  # slots of an earlier session no longer wait
            self._last[slot] = (state, wait.reason)
            lines.append({"task": slot, "state": state, "reason": wait.reason, "says": wait.text})
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps({"time": now} | line) + "\n" for line in lines))
