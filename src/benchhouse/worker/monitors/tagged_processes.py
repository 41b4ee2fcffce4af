"""The processes of a trial on a node where its worker is not, and the ranks among those of any: by environment."""

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial

from benchhouse.processes.process_identity import TAG
from benchhouse.processes.tree import all_pids
from benchhouse.worker import node_call
from benchhouse.worker.monitors.tree import ProcessTree

STEPS = "steps"
_TAG, _STEP = TAG.encode(), b"SLURM_STEP_ID"
_NODES = (b"BENCHHOUSE_NODE", b"SLURMD_NODENAME")
_RANKS = (
    (b"RANK", b"WORLD_SIZE"),  # torchrun and others
    (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_SIZE"),
    (b"SLURM_PROCID", b"SLURM_STEP_NUM_TASKS"),
)
"""Variables with the rank of a process and the number of all."""
_CLIENT = os.fsencode(node_call.__file__)
_LOOKS = 2  # at a process: between fork and exec it still has the environment of whoever started it
_MOST_RANKS = 64  # of a node


class RankTagger:
    """Gives `add` the process tree of each rank of a distributed program, as soon as one of its processes is seen."""

    def __init__(self, add: Callable[[ProcessTree], object]) -> None:
        self._add = add
        self._parts: dict[str, list[int]] = {}  # by scope
        self._trees = 0

    def take(self, pid: int, variables: Mapping[bytes, bytes]) -> bool:
        """Whether it is of a rank."""
        if (rank := _rank(variables)) is None or _calls_another_node(pid):
            return False
        self.put(f"rank:{rank}", pid)
        return True

    def put(self, scope: str, pid: int) -> None:
        if scope in self._parts or len(self._parts) < _MOST_RANKS:
            self._parts.setdefault(scope, []).append(pid)

    def add_new(self) -> None:
        """Once all that were seen are put: what a tree is given later is found when it looks again."""
        for scope in sorted(list(self._parts)[self._trees :]):
            self._add(ProcessTree(scope, finder=partial(list, self._parts[scope])))
        self._trees = len(self._parts)


class OwnRanks:
    """Called with all processes of a trial on this machine, looks at those that are new for ranks."""

    def __init__(self, add: Callable[[ProcessTree], object]) -> None:
        self._ranks = RankTagger(add)
        self._looks: dict[int, int] = {}

    def __call__(self, pids: Collection[int]) -> None:
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        for pid in [pid for pid, looks in self._looks.items() if looks < _LOOKS]:
            self._looks[pid] = _LOOKS if self._ranks.take(pid, _environment(pid)) else self._looks[pid] + 1
        self._ranks.add_new()


class TrialProcesses:
    """Called, it tells the processes that were not told before. Made before the experiment starts any, so that those
    which run already need no look. Several nodes may share one kernel, as in a test.

    `add` is given the process tree of each rank; on the experiment's own node (`apart`) also that of all that steps of
    the job run there, to be compared with what they run elsewhere.
    """

    def __init__(self, trial_id: str, add: Callable[[ProcessTree], object], *, apart: bool = False) -> None:
        self._trial, self._node = trial_id.encode(), _node(os.environb, b"")
        self._ranks = RankTagger(add)
        self._looks = dict.fromkeys(all_pids(), _LOOKS)
        self._step = os.environb.get(_STEP) if apart else None
        self._apart = apart

    def __call__(self) -> list[int]:
        pids = all_pids()
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        ours = [pid for pid in pids if self._looks[pid] < _LOOKS and self._is_ours(pid)]
        self._ranks.add_new()
        return ours

    def _is_ours(self, pid: int) -> bool:
        self._looks[pid] += 1
        variables = _environment(pid)
        if variables.get(_TAG) != self._trial or _node(variables, self._node) != self._node:
            return False
        self._looks[pid] = _LOOKS
        if self._apart and variables.get(_STEP) not in (None, self._step):
            self._ranks.put(STEPS, pid)
        self._ranks.take(pid, variables)
        return True


def _node(variables: Mapping[bytes, bytes], otherwise: bytes) -> bytes:
    return next((variables[name] for name in _NODES if name in variables), otherwise)


def _calls_another_node(pid: int) -> bool:
    """Whether it only holds a rank that runs elsewhere, and so has its environment."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        return False
    return os.path.basename(words[0]) == b"srun" or _CLIENT in words[:4]  # noqa: PTH119


def _environment(pid: int) -> dict[bytes, bytes]:
    """Empty of another user's, and of one that is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - of every process of the machine
            return dict(text.partition(b"=")[::2] for text in file.read().split(b"\0"))
    except OSError:
        return {}


def _rank(variables: Mapping[bytes, bytes]) -> int | None:
    """None for a process that is not one of several."""
    for rank, count in _RANKS:
        number = variables.get(rank, b"")
        if number.isdigit() and variables.get(count, b"").isdigit() and int(variables[count]) > 1:
            return int(number)
    return None
