"""Compare the clocks of the other nodes before and after a training, to put all times on the first node's clock.

A monotonic clock counts from the start of its machine, and the time of day may be wrong by hours: neither matters.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from benchhouse.analysis.clocks import NodeClock, RoundTrip
from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.training import rank
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.launchers import Launch
from benchhouse.schema.experiment import Context

_ROUND_TRIPS = 20
_START_S, _ANSWER_S = 30.0, 5.0
_TIMES = ("t", "t_start", "t_end")  # of a record


class NodeClocks:
    """Clocks of the other nodes, each answered by a process there: `with NodeClocks(launch) as clocks:`."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._clock_processes: dict[str, subprocess.Popen[bytes]] = {}
        self._before: dict[str, list[RoundTrip]] = {}
        self._after: dict[str, list[RoundTrip]] = {}

    def __enter__(self) -> "NodeClocks":
        for node in self._launch.nodes[1:]:
            self._clock_processes[node] = subprocess.Popen(
                [*self._launch.on_node(node), sys.executable, "-I", "-S", rank.__file__, "--clock"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        self._before = {node: _ask(process, _START_S) for node, process in self._clock_processes.items()}
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._clock_processes.values():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()

    def remeasure(self) -> None:
        self._after = {node: _ask(process, _ANSWER_S) for node, process in self._clock_processes.items()}

    def by_node(self) -> dict[str, NodeClock]:
        """Return the clocks that are known."""
        return {node: NodeClock(trips, self._after.get(node, ())) for node, trips in self._before.items() if trips}

    @property
    def unknown(self) -> list[str]:
        return [node for node, trips in self._before.items() if not trips]


def _ask(process: "subprocess.Popen[bytes]", most_s: float) -> list[RoundTrip]:
    """Return round trips to the clock process; empty if it does not answer."""
    assert process.stdin is not None and process.stdout is not None
    trips: list[RoundTrip] = []
    with contextlib.suppress(OSError, ValueError):
        for _ in range(_ROUND_TRIPS):
            asked_s, ours_s = time.monotonic(), time.time()
            process.stdin.write(b"\n")
            if not select.select([process.stdout], [], [], _ANSWER_S if trips else most_s)[0]:
                break
            answer = os.read(process.stdout.fileno(), 100)  # one line, because it is one write
            heard_s = time.monotonic()
            there_s, wall_s = map(float, answer.split())
            trips.append(RoundTrip(asked_s, heard_s, there_s, (wall_s - there_s) - (ours_s - asked_s)))
    return trips


def put_on_one_clock(
    asked: NodeClocks, emitted: Iterable[Emitted], attempts: Sequence[Sequence[RankProcess]], ctx: Context
) -> None:
    """Move all times to the clock of the first node, and record the offset of the other clocks."""
    clocks = asked.by_node()
    move_ranks(attempts, clocks)
    move_records(emitted, attempts, clocks)
    if asked.unknown:
        said = "no step of theirs can be told beside those of other nodes"
        ctx.warn("clock_unknown", f"the clocks of {', '.join(asked.unknown)} could not be asked: {said}")
    if clocks:
        ctx.metadata(clocks={node: _facts(clock) for node, clock in clocks.items()})


def _facts(clock: NodeClock) -> dict[str, float]:
    return {
        "monotonic_ahead_s": clock.offset_s,
        "time_of_day_ahead_s": clock.ahead_s,
        "uncertainty_s": clock.uncertainty_s,
        "drift_ppm": clock.drift * 1e6,
    }


def move_ranks(attempts: Iterable[Sequence[RankProcess]], clocks: Mapping[str, NodeClock]) -> None:
    """Put times of other nodes on the clock of the first one."""
    for process in (process for ranks in attempts for process in ranks):
        if clock := clocks.get(process.node):
            process.lines = [(clock.here_s(at_s), line) for at_s, line in process.lines]
            process.ended_s = None if process.ended_s is None else clock.here_s(process.ended_s)
            moments = [name for name in ("told_to_end_s", "asked_s", "ended_s", "mono") if name in process.facts]
            process.facts |= {name: clock.here_s(process.facts[name]) for name in moments}


def move_records(
    emitted: Iterable[Emitted], attempts: Sequence[Sequence[RankProcess]], clocks: Mapping[str, NodeClock]
) -> None:
    """Do the same for records, by the node of their rank in that attempt."""
    nodes = {(attempt, process.number): process.node for attempt, ranks in enumerate(attempts) for process in ranks}
    for item in emitted:
        if clock := clocks.get(nodes.get((item.writer.get("attempt", 0), item.writer.get("rank", 0)), "")):
            for record in item.records:
                for name in _TIMES:
                    if isinstance(moment_s := record.get(name), int | float):
                        record[name] = clock.here_s(moment_s)
