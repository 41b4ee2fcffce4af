"""The processes of a trial on a node where its worker is not: they carry its id in their environment."""

import os
from collections.abc import Callable, Mapping
from functools import partial

from benchhouse.processes.owner import TAG
from benchhouse.processes.tree import all_pids
from benchhouse.worker.monitors.tree import ProcessTree

STEPS = "steps"
_TAG, _NODE, _STEP = TAG.encode(), b"SLURMD_NODENAME", b"SLURM_STEP_ID"
_RANKS = (
    (b"RANK", b"WORLD_SIZE"),  # torchrun and others
    (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_SIZE"),
    (b"SLURM_PROCID", b"SLURM_STEP_NUM_TASKS"),
)
"""Variables with the rank of a process and the number of all."""
_LOOKS = 2  # at a process: between fork and exec it still has the environment of whoever started it
_MOST_RANKS = 64  # of a node


class TrialProcesses:
    """Called, it tells the processes that were not told before. Made before the experiment starts any, so that those
    which run already need no look. Several nodes may share one kernel, as in a test.

    `add` is given the process tree of each rank of a distributed program, as soon as that is seen; on the experiment's
    own node (`apart`) also that of all that steps of the job run there, to be compared with what they run elsewhere.
    """

    def __init__(self, trial_id: str, add: Callable[[ProcessTree], object], *, apart: bool = False) -> None:
        self._trial, self._node = trial_id.encode(), os.environb.get(_NODE, b"")
        self._add = add
        self._looks = dict.fromkeys(all_pids(), _LOOKS)
        self._parts: dict[str, list[int]] = {}  # by scope
        self._step = os.environb.get(_STEP) if apart else None
        self._apart = apart

    def __call__(self) -> list[int]:
        pids = all_pids()
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        known = set(self._parts)
        ours = [pid for pid in pids if self._looks[pid] < _LOOKS and self._is_ours(pid)]
        for scope in sorted(self._parts.keys() - known):
            self._add(ProcessTree(scope, finder=partial(list, self._parts[scope])))
        return ours

    def _is_ours(self, pid: int) -> bool:
        self._looks[pid] += 1
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - of every process of the machine
                variables = dict(text.partition(b"=")[::2] for text in file.read().split(b"\0"))
        except OSError:  # another user's, or gone
            return False
        if variables.get(_TAG) != self._trial or variables.get(_NODE, self._node) != self._node:
            return False
        self._looks[pid] = _LOOKS
        if self._apart and variables.get(_STEP) not in (None, self._step):
            self._parts.setdefault(STEPS, []).append(pid)
        scope = f"rank:{rank}" if (rank := _rank(variables)) is not None else ""
        if scope and (scope in self._parts or len(self._parts) < _MOST_RANKS):
            self._parts.setdefault(scope, []).append(pid)
        return True


def _rank(variables: Mapping[bytes, bytes]) -> int | None:
    """None for a process that is not one of several."""
    for rank, count in _RANKS:
        number = variables.get(rank, b"")
        if number.isdigit() and variables.get(count, b"").isdigit() and int(variables[count]) > 1:
            return int(number)
    return None
