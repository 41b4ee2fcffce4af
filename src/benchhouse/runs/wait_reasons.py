"""What a batch system said while trials of a run waited: kept by its executor, for afterwards nobody can ask it."""

import json
from collections import Counter

from benchhouse.schema.layout import RunFolder

_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")


def read_waits(folder: RunFolder) -> dict[str, int]:
    """The reasons, and of how many jobs each was said at any time; torn lines are left out.

    jobs/states.jsonl has a line whenever the state or the reason of a job was another than at the last look.
    """
    try:
        lines = (folder.jobs / "states.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    said = set[tuple[str, str]]()
    for line in lines:
        try:
            row = json.loads(line)
            if row["state"] in _WAITING and row["reason"]:
                said.add((str(row["reason"]), str(row["task"])))
        except (ValueError, KeyError, TypeError):
            continue
    return dict(Counter(reason for reason, _ in said))
