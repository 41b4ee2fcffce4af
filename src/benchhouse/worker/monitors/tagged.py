"""The processes of a trial on a node where its worker is not: they carry its id in their environment."""

import os

from benchhouse.processes.owner import TAG
from benchhouse.processes.tree import all_pids

_NODE = "SLURMD_NODENAME"
_LOOKS = 2  # at a process: between fork and exec it still has the environment of whoever started it


class TrialProcesses:
    """Called, it tells the processes that were not told before. Made before the experiment starts any, so that those
    which run already need no look. Several nodes may share one kernel, as in a test."""

    def __init__(self, trial_id: str) -> None:
        self._tag = f"{TAG}={trial_id}".encode()
        self._node = f"{_NODE}={os.environ.get(_NODE, '')}".encode()
        self._looks = dict.fromkeys(all_pids(), _LOOKS)

    def __call__(self) -> list[int]:
        pids = all_pids()
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        return [pid for pid in pids if self._looks[pid] < _LOOKS and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        self._looks[pid] += 1
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - of every process of the machine
                variables = file.read().split(b"\0")
        except OSError:  # another user's, or gone
            return False
        nodes = [text for text in variables if text.startswith(f"{_NODE}=".encode())]
        ours = self._tag in variables and nodes in ([], [self._node])
        if ours:
            self._looks[pid] = _LOOKS
        return ours
