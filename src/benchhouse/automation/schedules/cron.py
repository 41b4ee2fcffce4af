"""Due times of a cron line, in seconds since the epoch.

Daylight saving works as in Debian's cron: a fixed time that is skipped comes at the end of the gap, one that occurs
twice comes once; a line with a star in its minutes or hours follows the clock that never jumps.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import quote
from benchhouse.schema.schedules import Schedule

if TYPE_CHECKING:
    from cronsim import CronSim, CronSimError

_FORM = 'five fields: --cron "0 2 * * *" is each night at two'


def slots(schedule: Schedule, after: float) -> Iterator[float]:
    """Yield all due times later than `after`; end if none comes within fifty years."""
    CronSim, _ = _library()  # noqa: N806 - a class
    begin = datetime.fromtimestamp(after, UTC)
    zone = UTC if schedule.timezone == "UTC" else ZoneInfo(schedule.timezone)
    # From a local time that occurs twice, one slot may come again: only later ones count.
    for due in CronSim(schedule.cron, begin.astimezone(zone)):
        if (moment := due.timestamp()) > after:
            yield moment
            after = moment


def starts_at(schedule: Schedule, due: float) -> float:
    """Return when the slot begins; its jitter is the same for every process."""
    if not schedule.jitter_s:
        return due
    drawn = hashlib.sha256(f"{schedule.name} {due:.0f}".encode()).digest()
    return due + int.from_bytes(drawn[:8]) / 2**64 * schedule.jitter_s


def next_start(schedule: Schedule, after: float) -> float:
    """Return when the first slot later than `after` begins, regardless of forbidden hours; 0 if none comes."""
    due = next(slots(schedule, after), None)
    return 0.0 if due is None else starts_at(schedule, due)


def may_begin(schedule: Schedule, at: float) -> bool:
    """Return whether `window` and `quiet` allow a start at that time."""
    local = datetime.fromtimestamp(at, ZoneInfo(schedule.timezone))
    return schedule.allows(local.hour * 60 + local.minute)


def opening(schedule: Schedule, after: float) -> float:
    """Return the next full minute at which runs may begin."""
    at = after - after % 60 + 60
    while not may_begin(schedule, at):
        at += 60
    return at


def check(schedule: Schedule, now: float) -> None:
    """Raise BenchError if the line is not a cron line, or never fires."""
    if len(schedule.cron.split()) != 5:
        raise BenchError(f"{quote(schedule.cron)} is no schedule", _FORM)
    _, CronSimError = _library()  # noqa: N806 - a class
    try:
        first = next(slots(schedule, now), None)
    except CronSimError as error:
        raise BenchError(f"{quote(schedule.cron)} is no schedule: {error}", _FORM) from error
    if first is None:
        raise BenchError(f"{quote(schedule.cron)} never fires: no such day comes within fifty years", _FORM)


def _library() -> tuple[type["CronSim"], type["CronSimError"]]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise BenchError("schedules need cronsim", "pip install 'benchhouse[schedule]'") from error
    return CronSim, CronSimError
