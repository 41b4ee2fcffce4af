"""Actions of the agent of schedules: it submits scenarios, checks the state of runs, and notifies channels."""

import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

from benchhouse.api.execution import QUIET, OnBehalf, PlaceKeywords, submit_as
from benchhouse.automation.alarms import AlarmState, read_alarms
from benchhouse.automation.channels import is_quiet, tell
from benchhouse.automation.notices import deliver
from benchhouse.automation.schedules.agent import Agent, Ending
from benchhouse.automation.schedules.store import ScheduleSlot, StoredSchedule
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.runs.ledger import ScheduledRun
from benchhouse.schema.alarms import Notice
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.schedules import Schedule

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

YOUNG_S = 60.0  # within this time after a run started, its process may not have taken it over yet


class RunActions:
    """The agent's actions on the runs of one workspace."""

    def __init__(self, workspace: "Workspace", note: Callable[[str], None]) -> None:
        self._workspace, self.note = workspace, note

    def begin(self, schedule: Schedule, slot: ScheduleSlot) -> None:
        due = datetime.fromtimestamp(slot.due, UTC).isoformat(timespec="seconds")
        scheduled = ScheduledRun(schedule=schedule.name, due=due, cadence=schedule.cadence)
        where: PlaceKeywords = {"executor": schedule.executor, "runtime": schedule.runtime, "site": schedule.site}
        folder = self._workspace.folder
        behalf = OnBehalf(schedule.added_by, scheduled=scheduled)
        submit_as(folder, slot.run_id, folder.root / schedule.scenario, where, QUIET, behalf)

    def ending(self, slot: ScheduleSlot, since_s: float) -> Ending | None:
        try:
            return ending(self._workspace, slot.run_id, since_s)
        except BenchError as error:  # a batch system that does not answer now
            self.note(f"{slot.schedule}: run {slot.run_id} can't be looked at: {error.message}")
            return None

    def tell(self, kept: StoredSchedule) -> list[str]:
        """Notify the channels of a schedule that fails or has recovered, and return the channels that know of a
        failure.

        Channels that could not be reached are tried again later. Without alarms.yaml there is only a note in the
        agent's log.
        """
        schedule, failing = kept.schedule, kept.failures >= kept.schedule.tell_after
        try:
            file = read_alarms(self._workspace.folder)
        except NotFoundError:
            self.note(f"{schedule.name}: failed {kept.failures} times in a row, and there is no alarms.yaml")
            return list(kept.told)
        except BenchError as error:
            self.note(f"{schedule.name}: nobody is notified: {error.message}")
            return list(kept.told)
        channels = file.channels
        wanted = file.reach(schedule.tell or channels) if failing else list(kept.told)
        name = f"schedule {schedule.name}"
        how = f"has failed {kept.failures} times in a row" if failing else "runs again"
        text = f"{name} {how}: bench schedule show {schedule.name}"
        message = asdict(AlarmState(name, "firing" if failing else "ok", text)) | {
            "state": "firing" if failing else "over",
            "text": text,
        }
        known = set(kept.told)
        for channel in wanted:
            there = channel in channels  # otherwise it was removed from the file since
            quiet = there and is_quiet(*file.quiet_hours(channel), datetime.now(UTC))
            if quiet or (failing and (channel in known or not there)):
                continue
            problem = tell(channels[channel], message) if there else ""
            self._keep(Notice(time=now(), action="told", alarm=name, sentence=text, channel=channel, error=problem))
            if problem:
                self.note(f"{name}: {channel} could not be notified: {problem}")
            elif failing:
                known.add(channel)
            else:
                known.discard(channel)
        return sorted(known)

    def deliver(self) -> None:
        folder = self._workspace.folder
        if folder.alarms.is_file():
            with contextlib.suppress(BenchError):  # mistakes in the file are reported when a schedule fails
                deliver(folder, read_alarms(folder), self.note)

    def _keep(self, line: Notice) -> None:
        with contextlib.suppress(BenchError):  # the store also records who was notified
            journals.append(self._workspace.folder.notice_journal, line, "bench agent")


def ending(workspace: "Workspace", run_id: str, since_s: float) -> Ending | None:
    """Return how a run ended that started `since_s` seconds ago, with its results collected; None while it is running.

    Raises BenchError if its state can't be read or its results can't be written now: an agent outlives a full disk.
    """
    young = 0 <= since_s < YOUNG_S  # below zero: the clock was set back
    try:
        run = workspace[run_id]
        status = run.status()
        if status.state in ("running", "waiting") or (status.state == "interrupted" and young):
            return None
        if run.collect().under_way:
            return None
        status = run.status()
    except NotFoundError:
        return None if young else Ending("failed", "its ledger is gone")
    except OSError as error:
        raise BenchError(str(error), "make room, or make it writable; it is looked at again") from error
    if status.state == "finished" and set(status.outcomes) <= {"succeeded"}:
        return Ending("succeeded")
    if status.state == "interrupted":
        return Ending("failed", f"interrupted; carry it on: bench run --resume {run_id}")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(status.outcomes.items()))
    return Ending("failed", status.stopped or outcomes)


def carry_out(agent: Agent, *, once: bool = False) -> None:
    """Run step after step until SIGTERM or Ctrl-C, or one step if `once`. Another agent may take over at once."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        pause_s = agent.step()
        while not once and not ended.wait(pause_s):
            pause_s = agent.step()
    finally:
        agent.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
