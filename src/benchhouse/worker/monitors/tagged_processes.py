"""The processes of a trial on nodes without its worker, and the ranks on any node, identified by environment."""

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
"""Variables with the rank of a process and the number of ranks."""
_CLIENT = os.fsencode(node_call.__file__)
_LOOKS = 2  # checks of a process: between fork and exec it still has the environment of its parent
_MOST_RANKS = 64  # per node


class RankTagger:
    """Calls `add` with the process tree of each rank of a distributed program, once one of its processes is found."""

    def __init__(self, add: Callable[[ProcessTree], object]) -> None:
        self._add = add
        self._parts: dict[str, list[int]] = {}  # by scope
        self._trees = 0

    def take(self, pid: int, variables: Mapping[bytes, bytes]) -> bool:
        """Record the process if it belongs to a rank. Return whether it does."""
        if (rank := _rank(variables)) is None or _calls_another_node(pid):
            return False
        self.put(f"rank:{rank}", pid)
        return True

    def put(self, scope: str, pid: int) -> None:
        if scope in self._parts or len(self._parts) < _MOST_RANKS:
            self._parts.setdefault(scope, []).append(pid)

    def add_new(self) -> None:
        """Add the trees of new ranks, after all found processes are recorded: a tree finds later ones at its next
        search."""
        for scope in sorted(list(self._parts)[self._trees :]):
            self._add(ProcessTree(scope, finder=partial(list, self._parts[scope])))
        self._trees = len(self._parts)


class OwnRanks:
    """Called with all processes of a trial on this machine; checks new ones for ranks."""

    def __init__(self, add: Callable[[ProcessTree], object]) -> None:
        self._ranks = RankTagger(add)
        self._looks: dict[int, int] = {}

    def __call__(self, pids: Collection[int]) -> None:
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        for pid in [pid for pid, looks in self._looks.items() if looks < _LOOKS]:
            self._looks[pid] = _LOOKS if self._ranks.take(pid, _environment(pid)) else self._looks[pid] + 1
        self._ranks.add_new()


class TrialProcesses:
    """Returns, on each call, the processes of the trial that were not returned before.

    It is created before the experiment starts any, so that processes that already run are not checked. Several nodes
    may share one kernel, as in a test. `add` is called with the process tree of each rank; on the experiment's own node
    (`apart`) also with that of everything that steps of the job run there, for comparison with other nodes.
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
    """Whether the process only starts a rank elsewhere, and so has its environment."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        return False
    return os.path.basename(words[0]) == b"srun" or _CLIENT in words[:4]  # noqa: PTH119


def _environment(pid: int) -> dict[bytes, bytes]:
    """Return the environment of a process; empty if it belongs to another user or is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - of every process of the machine
            return dict(text.partition(b"=")[::2] for text in file.read().split(b"\0"))
    except OSError:
        return {}


def _rank(variables: Mapping[bytes, bytes]) -> int | None:
    """Return the rank; None for a process that is not one of several."""
    for rank, count in _RANKS:
        number = variables.get(rank, b"")
        if number.isdigit() and variables.get(count, b"").isdigit() and int(variables[count]) > 1:
            return int(number)
    return None
