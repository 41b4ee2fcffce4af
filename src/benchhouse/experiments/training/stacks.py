"""Find out where the Python of a rank was: with `faulthandler`, an aborted interpreter prints the stack of each thread.

A rank that waits for the others is inside a collective operation; the one that they wait for is not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TELLS_STACK = {"PYTHONFAULTHANDLER": "1"}
"""The environment with which Python prints its stacks at SIGABRT, and at faults such as SIGSEGV."""
ABORTED = "Fatal Python error: Aborted"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_WAITS = re.compile(
    r"torch/distributed/(distributed_c10d|_functional_collectives\w*|rendezvous|c10d_logger|utils)\.py$"
    r"|torch/(autograd/graph|nn/parallel/distributed|cuda/__init__|cuda/streams)\.py$"
    r"|/(horovod|mpi4py|deepspeed/comm)/"
)


@dataclass(frozen=True)
class Frame:
    """One call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"

    @property
    def waits_for_ranks(self) -> bool:
        """Whether it is in a library function that returns only when the other ranks have come equally far."""
        return bool(_WAITS.search(self.file))


def read_stack(lines: Iterable[str]) -> list[Frame]:
    """Return the main thread's stack that an aborted Python printed, innermost call first; empty if it printed none."""
    stacks: list[list[Frame]] = []
    aborted = False
    for line in lines:
        if line.startswith(ABORTED):
            stacks, aborted = [], True
        elif aborted and line.rstrip().endswith("(most recent call first):"):
            stacks.append([])
        elif stacks and (frame := _FRAME.match(line)):
            stacks[-1].append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    whole = [stack for stack in stacks if stack and stack[-1].function == "<module>"]
    return next(iter(whole or stacks), [])


def odd_one(stacks: Mapping[int, Sequence[Frame]]) -> int | None:
    """Return the only rank, of three or more, whose innermost call differs from that of all others, or None."""
    places = {rank: stack[0] for rank, stack in stacks.items()}
    for rank, place in places.items():
        others = {other for number, other in places.items() if number != rank}
        if len(places) > 2 and len(others) == 1 and place not in others:
            return rank
    return None
