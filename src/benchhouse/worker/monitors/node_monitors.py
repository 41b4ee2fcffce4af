"""The samplers on the other nodes of a trial, run by its worker: one step of the batch job each.

They are up before the experiment starts, and end after it. If a node can't be sampled, that is reported, and the trial
only loses its series.
"""

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

from benchhouse.analysis.clocks import NodeClock, RoundTrip
from benchhouse.processes.process_identity import TAG
from benchhouse.processes.python_command import python_command
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.telemetry import MonitorSettings, NodeSummary
from benchhouse.worker import nodes
from benchhouse.worker.monitors.node_messages import NodeOrder, SampleBatch, SampleRequest, SamplerReply, unpack
from benchhouse.worker.monitors.sampler import Track

_ROUND_TRIPS = 32
_START_S = 30.0  # for all samplers to be up and their clocks to be known
_END_S = 10.0
_GO_S = 2.0  # for a step to end after its last reply


@dataclass
class _Step:
    """One sampler on another node."""

    node: str
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    rest: bytes = b""
    asked_s: float = 0.0
    trips: list[RoundTrip] = field(default_factory=list)
    known: int = 0  # round trips before the trial started
    tracks: dict[str, Track] = field(default_factory=dict)
    part: SampleBatch | None = None  # the newest
    over: bool = False  # it has sent everything, or never will
    problem: str = ""

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def handle(self) -> int:
        return self.output.fileno()

    def ask(self, ask: SampleRequest | NodeOrder) -> None:
        assert self.process.stdin is not None
        self.asked_s = time.monotonic()
        with contextlib.suppress(OSError):  # it is gone, which the end of its output shows
            self.process.stdin.write(ask.model_dump_json(exclude_defaults=True).encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> None:
        """Process what it has sent, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                block = os.read(self.handle, 1 << 16)
                *lines, self.rest = (self.rest + block).split(b"\n")
                for line in lines:
                    self._take(SamplerReply.model_validate_json(line))
                if not block:
                    self.lose("its sampler ended during the trial" if self.known else "no sampler could be started")

    def _take(self, reply: SamplerReply) -> None:
        """Store the answer of one round trip, or a batch of samples."""
        if reply.monotonic_s is not None and reply.wall_s is not None:
            heard_s = time.monotonic()
            ahead_s = (reply.wall_s - reply.monotonic_s) - (time.time() - heard_s)
            self.trips.append(RoundTrip(self.asked_s, heard_s, reply.monotonic_s, ahead_s))
        if reply.part is not None:
            self.part = reply.part
            unpack(reply.part, self.tracks)
        self.over |= reply.last

    def lose(self, what: str) -> None:
        self.over = True
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        self.problem = f"{what} ({lines[-1].strip()})" if lines else what


class NodeMonitors:
    """Samples other nodes. Call order: `start`, `look` from time to time, `end`, `close`. `command` returns a command
    that runs on a node."""

    def __init__(
        self,
        monitors: MonitorSettings | None,
        trial_id: str,
        command: Callable[[str, int], list[str]] = nodes.command_on,
    ) -> None:
        self._monitors, self._trial_id, self._command = monitors, trial_id, command
        self.own = ""  # the node of the worker
        self._steps: dict[str, _Step] = {}
        self._refused: dict[str, str] = {}  # nodes on which nothing could be started, and why

    def start(self, names: Sequence[str]) -> None:
        """Start samplers on all nodes but the first, which is ours. Returns once all that come up in time are up."""
        if self._monitors is None or len(names) < 2:
            return
        self.own = names[0]
        order = NodeOrder(trial_id=self._trial_id, interval_s=self._monitors.interval, sources=self._monitors.sources)
        for name in names[1:]:
            try:
                self._steps[name] = self._begin(name)
            except (OSError, ExperimentFailed) as error:
                self._refused[name] = str(error)
            else:
                self._steps[name].ask(order)
        self._measure_clocks(_ROUND_TRIPS, _START_S, "no sampler was up within {:g} s")
        for step in self._steps.values():
            step.known = len(step.trips)

    def _begin(self, name: str) -> _Step:
        command = [*self._command(name, 1), *python_command(), "-m", "benchhouse.worker", "--sample"]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the step
        # the sampler is not part of the trial
        environment = {key: value for key, value in os.environ.items() if key != TAG}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env=environment,
        )
        step = _Step(name, process, errors)
        os.set_blocking(step.handle, False)
        return step

    @property
    def pids(self) -> list[int]:
        """The pids of the local processes of these samplers, which are not part of the trial."""
        return [step.process.pid for step in self._steps.values()]

    def watch(self, node: str, scope: str, pid: int) -> bool:
        """Sample a process tree of that node from now on. Return False if it has no sampler."""
        if node not in self._steps:
            return False
        self._steps[node].ask(SampleRequest(scope=scope, pid=pid))
        return True

    def look(self) -> None:
        """Process what was received, so that the senders are not blocked."""
        for step in self._steps.values():
            step.read()

    def end(self) -> None:
        """Compare the clocks again and take the last samples."""
        self.look()
        self._measure_clocks(_ROUND_TRIPS // 4, _END_S, "its sampler did not answer within {:g} s at the end")
        for step in self._steps.values():
            step.ask(SampleRequest(end=True))
        self._until(lambda step: step.over, _END_S, "its sampler did not give its last samples within {:g} s")

    def close(self) -> None:
        """End all samplers. Also safe to call if nothing was started, or twice."""
        for step in self._steps.values():
            assert step.process.stdin is not None
            with contextlib.suppress(OSError):
                step.process.stdin.close()
        deadline = time.monotonic() + _GO_S
        for step in self._steps.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.process.wait(max(0.0, deadline - time.monotonic()))
            step.process.kill()  # the batch system ends the step with it
            step.process.wait()
            step.output.close()
            step.errors.close()

    def tracks(self, zero_s: float) -> list[Track]:
        """Return all samples, with times in seconds since `zero_s` of this node's monotonic clock."""
        return [
            _placed(track, step, NodeClock(step.trips[: step.known], step.trips[step.known :]), zero_s)
            for step in self._steps.values()
            if step.known and step.part
            for track in step.tracks.values()
            if track.samples
        ]

    def summaries(self) -> list[NodeSummary]:
        """Return the summary of each node."""
        told = [_summary(step) for step in self._steps.values()]
        return [*told, *(NodeSummary(name=name, problem=why) for name, why in self._refused.items())]

    def _measure_clocks(self, count: int, most_s: float, late: str) -> None:
        """Make `count` more round trips with each node, all in parallel."""
        aims = {name: len(step.trips) + count for name, step in self._steps.items()}
        for step in self._steps.values():
            step.ask(SampleRequest(clock=True))

        def known(step: _Step) -> bool:
            return step.over or len(step.trips) >= aims[step.node]

        self._until(known, most_s, late, again=SampleRequest(clock=True))

    def _until(
        self, done: Callable[[_Step], bool], most_s: float, late: str, again: SampleRequest | None = None
    ) -> None:
        """Wait until all are done; `again` is sent after each answer of one that is not. Late ones are given up."""
        deadline = time.monotonic() + most_s
        while waiting := [step for step in self._steps.values() if not done(step)]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                for step in waiting:
                    step.lose(late.format(most_s))
                return
            for step in _readable(waiting, left_s):
                before = len(step.trips)
                step.read()
                if again and len(step.trips) > before and not done(step):
                    step.ask(again)


def _readable(steps: Iterable[_Step], most_s: float) -> list[_Step]:
    poll = select.poll()
    by_handle = {step.handle: step for step in steps}
    for handle in by_handle:
        poll.register(handle, select.POLLIN)
    return [by_handle[handle] for handle, _ in poll.poll(most_s * 1000)]


def _placed(track: Track, step: _Step, clock: NodeClock, zero_s: float) -> Track:
    assert step.part is not None
    rows = track.rows[:]
    for at in range(0, len(rows), track.width):
        rows[at] = clock.here_s(step.part.zero_s + rows[at]) - zero_s
    return Track(f"{step.node}/{track.scope}", track.series, rows, node=step.node)


def _summary(step: _Step) -> NodeSummary:
    if not step.known:
        return NodeSummary(name=step.node, problem=step.problem)
    clock, part = NodeClock(step.trips[: step.known], step.trips[step.known :]), step.part
    problem = step.problem
    if step.part is None:
        problem = f"{problem}: nothing of it was sampled"
    return NodeSummary(
        name=step.node,
        clock_ahead_s=clock.ahead_s,
        clock_uncertainty_s=clock.uncertainty_s,
        clock_drift_ppm=clock.drift * 1e6,
        samples=max((track.samples for track in step.tracks.values()), default=0),
        cores=part.cpu_s / part.lasted_s if part and part.lasted_s else None,
        ticks_missed=part.ticks_missed if part else 0,
        problem=problem,
    )
