"""The agent: claims due slots, starts and follows their runs, and notifies people.

The clock and the actions are injected.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchhouse.automation.schedules.store import ScheduleSlot, ScheduleStore, StoredSchedule
from benchhouse.processes.process_identity import boot, identity, is_gone
from benchhouse.schema.errors import BenchError
from benchhouse.schema.schedules import Schedule, SlotState

LEASE_S = 15.0
LONGEST_SLEEP_S = 1.0  # a changed clock or an added schedule is noticed within this time
_RENEW_S = 5.0
_LOST_S = 3600.0
_TELL_AGAIN_S = 60.0
_FIRST_LOOK_S, _LONGEST_LOOK_S = 2.0, 30.0  # between checks of a run: the longer it runs, the rarer they are


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    state: SlotState
    why: str = ""


class ScheduleActions(Protocol):
    """The effects of the agent."""

    def begin(self, schedule: Schedule, slot: ScheduleSlot) -> None:
        """Start the slot's run; two calls start one run. Raise BenchError if it can't be started."""

    def ending(self, slot: ScheduleSlot, since_s: float) -> Ending | None:
        """Return how the slot's run ended; None while it runs."""

    def tell(self, kept: StoredSchedule) -> list[str]:
        """Notify the channels of a schedule that keeps failing or has recovered; return the channels that know now."""

    def deliver(self) -> None:
        """Send notices that wait for channels that were quiet or unreachable."""

    def note(self, text: str) -> None:
        """Show a message to a person who watches the agent."""


@dataclass
class Agent:
    """The agent process of one workspace. `step` does everything that is due."""

    store: ScheduleStore
    deeds: ScheduleActions
    clock: Callable[[], float]
    place: str
    me: str
    is_gone: Callable[[str], bool]
    _leads: bool = False
    _renew_at: float = 0.0
    _last: float = 0.0
    _tell_at: float = 0.0
    _look_at: dict[str, float] = field(default_factory=dict)
    _trouble: str = ""

    def step(self) -> float:
        """Do everything that is due, and return the seconds until the next step."""
        now = self.clock()
        if now < self._last:
            self._clock_went_back()
        self._last = now
        try:
            self._follow(now)
            leads = self._lead(now)
            while leads and self.store.next_look() <= now:
                self.store.decide(now, self.place, self.me)
            self._begin_claimed(now)
            if leads:
                self._tell(now)
                self._trouble = ""  # a waiting agent reports once
            next_look = self.store.next_look()
        except BenchError as error:  # a full disk or an unreachable server: it may work again in a second
            self._note_once(str(error))
            return LONGEST_SLEEP_S
        return min(LONGEST_SLEEP_S, max(0.0, next_look - self.clock()))

    def stop(self) -> None:
        """Release the lease, so that another agent can take over immediately; runs continue."""
        if self._leads:
            self.store.release(self.me)
            self._leads = False

    @property
    def leads(self) -> bool:
        return self._leads

    def _clock_went_back(self) -> None:
        """Check everything that was due by the old time again by the new time."""
        self._renew_at = self._tell_at = 0.0
        self._look_at.clear()
        self._leads = False  # then all schedules are checked again

    def _lead(self, now: float) -> bool:
        if not self._leads or now >= self._renew_at:
            holder = self.store.lease(self.me, now, LEASE_S, self.is_gone)
            if holder == self.me and not self._leads:
                self.store.reschedule_all()
            elif holder != self.me:
                self._note_once(f"another agent carries out the schedules: {holder}")
            self._leads = holder == self.me
            self._renew_at = now + _RENEW_S
        return self._leads

    def _begin_claimed(self, now: float) -> None:
        """Start slots that were claimed just now, before a failed write of ours, or by an agent that was killed."""
        for slot in self.store.open_slots(self.place):
            if slot.state == "claimed" and self._may_begin(slot):
                self.begin(slot, now)

    def _may_begin(self, slot: ScheduleSlot) -> bool:
        """Return whether we may start a slot: we claimed it, or we lead and its claimer at this place has ended."""
        return slot.claimer == self.me or (self._leads and slot.place == self.place and self.is_gone(slot.claimer))

    def begin(self, slot: ScheduleSlot, now: float) -> None:
        """Start one slot and record it; a slot that can't be started has failed."""
        try:
            schedule = self.store.get(slot.schedule).schedule
            if now - slot.due > max(schedule.max_age_s, _LOST_S):
                self.store.ended(slot, "lost", now, "claimed by an agent that was killed, and now too late to begin")
                return
            self.deeds.begin(schedule, slot)
        except Exception as error:  # noqa: BLE001 - one broken scenario must not end the schedules of others
            text = error.message if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
            reason = text.strip().partition("\n")[0]
            self._tell_at = 0.0
            self.deeds.note(f"{slot.schedule}: not begun: {reason}")
            self.store.ended(slot, "failed", now, reason)
            return
        self.store.begun(slot, now)
        self.deeds.note(f"{slot.schedule}: began run {slot.run_id}")

    def _follow(self, now: float) -> None:
        for slot in self.store.open_slots(self.place):
            if slot.state != "running" or now < self._look_at.get(slot.run_id, 0.0):
                continue
            since_s = now - slot.begun
            if ending := self.deeds.ending(slot, since_s):
                self._look_at.pop(slot.run_id, None)
                self._tell_at = 0.0
                self.store.ended(slot, ending.state, now, ending.why)
                self.deeds.note(f"{slot.schedule}: run {slot.run_id} {ending.state} {ending.why}".rstrip())
            else:
                self._look_at[slot.run_id] = now + min(_LONGEST_LOOK_S, max(_FIRST_LOOK_S, since_s / 10))

    def _tell(self, now: float) -> None:
        if now < self._tell_at:
            return
        self.store.lose(now - _LOST_S, now, self._may_begin)
        for kept in self.store.untold():
            known = self.deeds.tell(kept)
            if sorted(known) != sorted(kept.told):
                self.store.told(kept.schedule.name, known)
        self.deeds.deliver()
        self._tell_at = now + _TELL_AGAIN_S

    def _note_once(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self.deeds.note(text)


def own_name() -> str:
    """Return the name of this process, unique in the team."""
    return f"{os.uname().nodename} {boot()} {identity()}"


def process_is_gone(name: str) -> bool:
    """Return whether the process with that name has ended, as far as this machine can check."""
    node, _, rest = name.partition(" ")
    when, _, process = rest.partition(" ")
    if node != os.uname().nodename:
        return False
    return when != boot() or is_gone(process)


def place_of(root: Path) -> str:
    """Return the name of a workspace that is unique across machines."""
    return f"{os.uname().nodename}:{root}"
