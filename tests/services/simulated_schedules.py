"""Days of schedules in seconds: real agents on a real store, a clock that they are given, runs that are files.

Agents are processes; each is killed with SIGKILL where it happens to be, again and again, while the clock goes on.
"""

import mmap
import os
import random
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchhouse.automation.schedules.agent import Agent, Ending, own_name, process_is_gone
from benchhouse.automation.schedules.store import ScheduleSlot, ScheduleStore, StoredSchedule, opened
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.schedules import Schedule


class Clock:
    """A time that several processes see."""

    def __init__(self, moment: float) -> None:
        self._page = mmap.mmap(-1, 8)
        self.set(moment)

    def __call__(self) -> float:
        return float(struct.unpack("d", self._page[:8])[0])

    def set(self, moment: float) -> None:
        self._page[:8] = struct.pack("d", moment)


@dataclass
class FakeRuns:
    """A run is a file of its id, made once whoever asks: as the ledger's folder is. It lasts `lasts_s`."""

    folder: Path
    clock: Callable[[], float]
    lasts_s: float = 0.0
    broken: bool = False
    told: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    deaf: bool = False

    def begin(self, schedule: Schedule, slot: ScheduleSlot) -> None:
        if self.broken:
            raise BenchError("the scenario is gone")
        temporary = self.folder.with_name(f"{slot.run_id}.{os.getpid()}")
        temporary.write_text(f"{slot.schedule} {slot.due!r} {self.clock()!r}\n")
        with suppress(FileExistsError):
            os.link(temporary, self.folder / slot.run_id)  # whole or not at all, as a ledger

    def ending(self, slot: ScheduleSlot, since_s: float) -> Ending | None:
        began = float((self.folder / slot.run_id).read_text().split()[2])
        return None if 0 <= self.clock() - began < self.lasts_s else Ending("succeeded")

    def tell(self, kept: StoredSchedule) -> list[str]:
        if self.deaf or (kept.failures and kept.told):
            return list(kept.told)
        self.told.append(f"{kept.schedule.name} {kept.failures}")
        return ["ops"] if kept.failures else []

    def deliver(self) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def began(self) -> dict[str, list[float]]:
        """Due times of each schedule's runs, in the order of their ids."""
        runs: dict[str, list[float]] = {}
        for path in sorted(self.folder.iterdir()):
            name, due, _ = path.read_text().split()
            runs.setdefault(name, []).append(float(due))
        return runs


def agent_of(store: ScheduleStore, runs: FakeRuns, name: str = "") -> Agent:
    """In this process, or in one that was forked from it."""
    return Agent(store, runs, runs.clock, "here", name or own_name(), process_is_gone)


def simulate(root: Path, schedules: list[Schedule], begin: float, days: float, *, kill_each_s: float) -> "Simulated":
    """Two agents for so many days of a clock; one of them is killed each `kill_each_s` of that clock."""
    workspace, clock, draw = WorkspaceFolder(root), Clock(begin), random.Random(7)
    runs = FakeRuns(root / "runs", clock, lasts_s=90.0)
    runs.folder.mkdir()
    with opened(workspace) as store:
        for schedule in schedules:
            store.add(schedule, begin)
    kills, agents = 0, [_start(workspace, runs) for _ in range(2)]
    next_kill, end = begin + kill_each_s, begin + days * 86400
    try:
        while clock() < end:
            _follow(workspace, clock, end)
            if clock() >= next_kill:
                at = draw.randrange(2)
                time.sleep(draw.random() * 0.004)  # anywhere in what it does
                _kill(agents[at])
                agents[at] = _start(workspace, runs)
                kills, next_kill = kills + 1, next_kill + kill_each_s
        _settle(workspace, clock)
    finally:
        for pid in agents:
            _kill(pid)
    with opened(workspace) as store:
        states = Counter(slot.state for schedule in schedules for slot in store.slots(schedule.name, 100_000))
    return Simulated(runs.began(), dict(states), kills)


@dataclass(frozen=True)
class Simulated:
    """What came of it."""

    began: dict[str, list[float]]
    states: dict[str, int]
    kills: int


def _follow(workspace: WorkspaceFolder, clock: Clock, end: float) -> None:
    """The clock goes on, at most five minutes, whenever the agents have decided all that is due."""
    with opened(workspace) as store:
        patience = time.monotonic() + 30
        # In five minutes of a real clock an agent takes 300 steps: here it is let take those that it needs.
        while store.next_look() <= clock() or any(slot.state == "claimed" for slot in store.open_slots("here")):
            assert time.monotonic() < patience, "the agents decide nothing"
            time.sleep(0.0005)
        clock.set(min(clock() + 300.0, max(clock() + 45.0, store.next_look()), end))


def _settle(workspace: WorkspaceFolder, clock: Clock) -> None:
    """Until every slot that was claimed has ended."""
    with opened(workspace) as store:
        patience = time.monotonic() + 60
        while (store.open_slots("here") or store.next_look() <= clock()) and time.monotonic() < patience:
            clock.set(clock() + 15.0)
            time.sleep(0.01)


def _start(workspace: WorkspaceFolder, runs: FakeRuns) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        with opened(workspace) as store:
            agent = agent_of(store, runs)
            while True:
                agent.step()
                time.sleep(0.001)
    finally:
        os._exit(1)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
