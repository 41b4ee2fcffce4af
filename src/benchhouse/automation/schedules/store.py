"""Schedules and their slots in a database: every decision is one transaction, so that a slot is claimed once."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from benchhouse.automation import leases
from benchhouse.automation.database import AutomationDatabase, Sqlite
from benchhouse.automation.schedules.cron import check
from benchhouse.automation.schedules.database import TABLES, PostgresScheduleDatabase
from benchhouse.automation.schedules.due import NEVER, Outlook, ScheduleHistory, outlook
from benchhouse.documents.problems import did_you_mean
from benchhouse.runs.ledger import new_run_id
from benchhouse.runs.sharing import workspace_file
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quoting import quote
from benchhouse.schema.schedules import Schedule, SlotState

_OPEN = "('claimed', 'running')"
_BATCH = 100  # schedules that are decided in one transaction
_SLOT = "schedule, due, state, run_id, place, claimer, begun, ended, why"
_LEASE = "agent"


@dataclass(frozen=True)
class ScheduleSlot:
    """One due time of a schedule and its outcome. Times are in seconds since the epoch, 0 if there is none."""

    schedule: str
    due: float
    state: SlotState
    run_id: str
    place: str
    """The machine and workspace of the run."""
    claimer: str
    begun: float
    ended: float
    why: str


@dataclass(frozen=True)
class StoredSchedule:
    """A schedule and its state."""

    schedule: Schedule
    paused: bool
    failures: int
    """The number of consecutive failures."""
    failed_at: float
    looked_to: float
    next_look: float
    told: tuple[str, ...]
    """The channels that were notified that it keeps failing."""


class ScheduleStore:
    """The store of one workspace or of a team. Close it, or use `closing`."""

    def __init__(self, database: AutomationDatabase) -> None:
        self._db = database

    @classmethod
    def open(cls, workspace: WorkspaceFolder) -> "ScheduleStore":
        """Open the database of workspace.yaml, by default a file in the workspace."""
        file = workspace_file(workspace)
        if file is None or file.schedules is None:
            return cls(Sqlite(workspace.schedules, TABLES, "the schedules"))
        from benchhouse.warehouse.transfer import postgres_address

        return cls(PostgresScheduleDatabase(postgres_address(file.schedules)))

    def close(self) -> None:
        self._db.close()

    # -- schedules

    def add(self, schedule: Schedule, now: float, *, replace: bool = False) -> None:
        """Add a schedule from now on; times before are not its slots. Raise BenchError if it exists, unless
        `replace`."""
        check(schedule, now)
        with self._db.alone():
            if self._db.ask("SELECT 1 FROM schedules WHERE name = ?", [schedule.name]):
                if not replace:
                    raise BenchError(f"there is a schedule {schedule.name}", "change it: bench schedule add --replace")
                self._db.ask("DELETE FROM schedules WHERE name = ?", [schedule.name])
            values = [schedule.name, schedule.model_dump_json(), 0, now, now, 0.0, 0, 0.0, "[]"]
            self._db.ask("INSERT INTO schedules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def remove(self, name: str) -> None:
        """Remove a schedule. Its runs continue, and its slots stay on record."""
        with self._db.alone():
            self.get(name)
            self._db.ask("DELETE FROM schedules WHERE name = ?", [name])

    def pause(self, name: str, now: float, *, paused: bool = True) -> None:
        """Pause or resume a schedule; slots that were due in the meantime are not made up for."""
        with self._db.alone():
            if self.get(name).paused == paused:
                return
            self._db.ask(
                "UPDATE schedules SET paused = ?, looked_to = ?, next_look = 0 WHERE name = ?",
                [int(paused), now, name],
            )

    def all(self) -> list[StoredSchedule]:
        """Return all schedules by name."""
        return self._kept("ORDER BY name")

    def get(self, name: str) -> StoredSchedule:
        if kept := self._kept("WHERE name = ?", [name]):
            return kept[0]
        names = [row[0] for row in self._db.ask("SELECT name FROM schedules ORDER BY name")]
        hint = did_you_mean(name, names) or (f"there are {', '.join(names[:20])}" if names else "bench schedule add")
        raise NotFoundError(f"no schedule {quote(name)}", hint)

    def slots(self, name: str, limit: int = 20) -> list[ScheduleSlot]:
        """Return the newest slots first."""
        sql = f"SELECT {_SLOT} FROM slots WHERE schedule = ? ORDER BY due DESC LIMIT ?"  # noqa: S608 - our own names
        return [ScheduleSlot(*row) for row in self._db.ask(sql, [name, limit])]

    # -- what an agent does

    def lease(self, holder: str, now: float, for_s: float, is_gone: Callable[[str], bool]) -> str:
        """Take or renew the lease of the agent that decides slots; return the holder."""
        return leases.take(self._db, _LEASE, holder, now, for_s, is_gone)

    def holder(self, now: float) -> str:
        """Return the holder of the lease; empty if there is none."""
        rows = self._db.ask("SELECT holder FROM leases WHERE name = ? AND until > ?", [_LEASE, now])
        return str(rows[0][0]) if rows else ""

    def release(self, holder: str) -> None:
        leases.release(self._db, _LEASE, holder)

    def reschedule_all(self) -> None:
        """Check every schedule again, after a start and after a change of the clock."""
        with self._db.alone():
            self._db.ask("UPDATE schedules SET next_look = 0")

    def next_look(self) -> float:
        soonest = self._db.ask("SELECT min(next_look) FROM schedules WHERE paused = 0")[0][0]
        return NEVER if soonest is None else float(soonest)

    def decide(self, now: float, place: str, claimer: str) -> None:
        """Claim the due slots of some schedules, or record them as skipped. Repeat until `next_look` is later."""
        where = f"WHERE paused = 0 AND next_look <= ? ORDER BY next_look LIMIT {_BATCH}"
        with self._db.alone():
            for kept in self._kept(where, [now]):
                sql = f"SELECT 1 FROM slots WHERE schedule = ? AND state IN {_OPEN} LIMIT 1"  # noqa: S608 - our own names
                running = bool(self._db.ask(sql, [kept.schedule.name]))
                standing = ScheduleHistory(kept.looked_to, running, kept.failures, kept.failed_at)
                self._write(kept.schedule.name, outlook(kept.schedule, standing, now), (now, place, claimer))

    def _write(self, name: str, decided: Outlook, by: tuple[float, str, str]) -> None:
        now, place, claimer = by
        for choice in decided.choices:
            self._insert(
                ScheduleSlot(name, choice.due, "skipped", "", "", "", 0.0, now, choice.skip)
                if choice.skip
                else ScheduleSlot(name, choice.due, "claimed", new_run_id(), place, claimer, now, 0.0, ""),
                now,
            )
        values = [decided.looked_to, decided.next_look, name]
        self._db.ask("UPDATE schedules SET looked_to = ?, next_look = ? WHERE name = ?", values)

    def _insert(self, slot: ScheduleSlot, now: float) -> None:
        """Insert a slot. An earlier decision stays if the clock went back, except for slots that were skipped because
        the clock was ahead."""
        names = ("state", "run_id", "place", "claimer", "begun", "ended", "why")
        anew = ", ".join(f"{name} = excluded.{name}" for name in names)
        self._db.ask(
            f"INSERT INTO slots ({_SLOT}) VALUES ({', '.join('?' * 9)}) ON CONFLICT (schedule, due) "  # noqa: S608
            f"DO UPDATE SET {anew} WHERE slots.state = 'skipped' AND slots.ended > ?",
            [*vars(slot).values(), now],
        )

    def claim_now(self, name: str, now: float, place: str, claimer: str) -> ScheduleSlot:
        """Claim a slot outside the cron line, regardless of other runs."""
        with self._db.alone():
            self.get(name)
            slot = ScheduleSlot(name, now, "claimed", new_run_id(), place, claimer, now, 0.0, "by hand")
            self._insert(slot, now)
        return slot

    def open_slots(self, place: str) -> list[ScheduleSlot]:
        """Return slots that are claimed or running at that place, oldest first."""
        sql = f"SELECT {_SLOT} FROM slots WHERE state IN {_OPEN} AND place = ? ORDER BY due"  # noqa: S608 - our own names
        return [ScheduleSlot(*row) for row in self._db.ask(sql, [place])]

    def begun(self, slot: ScheduleSlot, now: float) -> None:
        with self._db.alone():
            self._db.ask(
                "UPDATE slots SET state = 'running', begun = ? WHERE schedule = ? AND due = ? AND state = 'claimed'",
                [now, slot.schedule, slot.due],
            )

    def ended(self, slot: ScheduleSlot, state: SlotState, now: float, why: str = "") -> None:
        """Record the end of a slot once, and count consecutive failures; further calls change nothing."""
        with self._db.alone():
            rows = self._db.ask("SELECT state FROM slots WHERE schedule = ? AND due = ?", [slot.schedule, slot.due])
            if not rows or rows[0][0] not in ("claimed", "running"):
                return
            self._db.ask(
                "UPDATE slots SET state = ?, ended = ?, why = ? WHERE schedule = ? AND due = ?",
                [state, now, why or slot.why, slot.schedule, slot.due],
            )
            failures = "0" if state == "succeeded" else "failures + 1"
            self._db.ask(
                f"UPDATE schedules SET failures = {failures}, failed_at = ?, next_look = 0 WHERE name = ?",  # noqa: S608
                [now, slot.schedule],
            )

    def lose(self, before: float, now: float, may_begin: Callable[[ScheduleSlot], bool]) -> None:
        """Give up slots that were claimed before that time, never began, and whose start can't be determined."""
        sql = f"SELECT {_SLOT} FROM slots WHERE state = 'claimed' AND begun < ?"  # noqa: S608 - our own names
        for slot in [ScheduleSlot(*row) for row in self._db.ask(sql, [before])]:
            if not may_begin(slot):
                self.ended(slot, "lost", now, f"claimed by {slot.claimer}, which was not heard of again")

    def untold(self) -> list[StoredSchedule]:
        """Return schedules whose failures or recovery are not yet reported."""
        return [
            kept for kept in self._kept("WHERE failures > 0 OR told <> '[]'")
            if kept.failures >= kept.schedule.tell_after or (kept.told and not kept.failures)
        ]  # fmt: skip

    def told(self, name: str, channels: Sequence[str]) -> None:
        with self._db.alone():
            self._db.ask("UPDATE schedules SET told = ? WHERE name = ?", [json.dumps(sorted(channels)), name])

    def _kept(self, where: str, values: Sequence[object] = ()) -> list[StoredSchedule]:
        columns = "document, told, paused, failures, failed_at, looked_to, next_look"
        rows = self._db.ask(f"SELECT {columns} FROM schedules {where}", values)  # noqa: S608 - our own names
        return [_as_stored(*row) for row in rows]


def _as_stored(
    text: str, told: str, paused: int, failures: int, failed_at: float, looked_to: float, next_look: float
) -> StoredSchedule:
    schedule = Schedule.model_validate_json(text)
    return StoredSchedule(schedule, bool(paused), failures, failed_at, looked_to, next_look, tuple(json.loads(told)))


def opened(workspace: WorkspaceFolder) -> "closing[ScheduleStore]":
    """Return a store that is closed at the end of a `with`."""
    return closing(ScheduleStore.open(workspace))
