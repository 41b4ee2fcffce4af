"""Why the jobs or slots of a run waited, as recorded by its executor: jobs/states.jsonl (Slurm), waits.jsonl."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.schema.layout import RunFolder

_BLANK = {"task": "", "state": "", "reason": "", "says": "", "time": ""}
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")


@dataclass(frozen=True)
class SlotWait:
    """A place for trials that a cluster has not given yet."""

    slot: str
    since: str
    waited_s: float
    reason: str
    """The cluster's term: InsufficientResources, TriggeredScaleUp, QuotaReserved, ..."""
    says: str
    """The reason in a sentence whose subject is the pod."""


def read_waits(folder: RunFolder) -> dict[str, int]:
    """Return the reasons that were given while jobs or slots waited, with the number of jobs or slots for each."""
    rows = (row for path in (folder.jobs / "states.jsonl", folder.waits) for row in _changes(path))
    waits = {(row["reason"], row["task"]) for row in rows if row["state"] in _WAITING and row["reason"]}
    return dict(Counter(reason for reason, _ in waits))


def waiting_slots(folder: RunFolder) -> list[SlotWait]:
    """Return the slots that the newest session of a run on this machine waits for, the longest wait first."""
    last, since = dict[str, dict[str, str]](), dict[str, str]()
    for row in _changes(folder.waits):
        if row["state"] == "SESSION":
            last.clear()
            continue
        last[row["task"]] = row
        since.setdefault(row["task"], row["time"])
    now = datetime.now(UTC)
    waits = [
        SlotWait(
            task, since[task], max(0.0, (now - datetime.fromisoformat(since[task])).total_seconds()), row["reason"],
            row["says"],
        )
        for task, row in last.items()
        if row["state"] in _WAITING
    ]  # fmt: skip
    return sorted(waits, key=lambda wait: wait.since)


def _changes(path: Path) -> Iterator[dict[str, str]]:
    """Yield a row for each change in the state or reason of a job or slot; torn lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            yield _BLANK | {key: str(value) for key, value in json.loads(line).items()}
        except (ValueError, AttributeError):
            continue
