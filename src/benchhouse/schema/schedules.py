"""Schedules: which scenario runs when, and what happens if it cannot run then."""

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.quoting import quote

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_DAY = 24 * 60
CRON_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Cron's names for some schedules."""

Missed = Literal["once", "skip", "all"]
Overlap = Literal["wait", "skip", "allow"]
SlotState = Literal["claimed", "running", "succeeded", "failed", "skipped", "lost"]


def minutes(hours: str) -> tuple[int, int]:
    """Return `22:00-06:00` as minutes of the day; the end is exclusive and may be before the start. Raise ValueError if
    invalid.
    """
    match = _HOURS.fullmatch(hours)
    if not match:
        raise ValueError(f"{quote(hours)} are no hours: write 22:00-06:00")
    begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if begin == end:
        raise ValueError(f"{quote(hours)} are no hours: they end where they begin")
    return begin, end


def _checked(hours: str) -> str:
    if hours:
        minutes(hours)
    return hours


Hours = Annotated[str, AfterValidator(_checked)]


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{quote(name)} is no time zone: write Europe/Berlin, or UTC") from error
    return name


TimeZone = Annotated[str, AfterValidator(_check_zone)]


def within(hours: str, minute: int) -> bool:
    """Return whether a minute of the day is within the hours."""
    begin, end = minutes(hours)
    return begin <= minute < end if begin < end else minute >= begin or minute < end


class Schedule(Model):
    """A schedule, as `bench schedule add` stores it."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    name: Name = Field(description="Name of the schedule; runs carry it.")
    scenario: str = Field(min_length=1, description="File of the scenario, relative to the workspace if it is in it.")
    cron: str = Field(min_length=1, description="When: minute, hour, day, month, day of the week.")
    timezone: TimeZone = Field("UTC", description="Time zone of `cron`, `window` and `quiet`, such as Europe/Berlin.")
    jitter_s: float = Field(
        0.0, ge=0, le=86400, description="A slot begins up to so much later, the same whoever asks."
    )
    window: Hours = Field("", description="Hours in which runs may begin: 22:00-06:00. Empty: always.")
    quiet: Hours = Field("", description="Hours in which none begins: 08:00-18:00. Empty: none.")
    max_age_s: float = Field(86400.0, gt=0, le=31 * 86400, description="A slot that is later than this is left out.")
    missed: Missed = Field("once", description="Slots that could not begin when due: the newest one, none, or all.")
    overlap: Overlap = Field("wait", description="While the run before goes on: wait, skip the slot, or run both.")
    backoff_s: float = Field(
        0.0, ge=0, le=86400, description="After a failure slots are left out for so long, twice as long after the next."
    )
    cadence: str = Field("", max_length=60, description="How people call it: nightly, weekly, per_release.")
    tell: list[Name] = Field(
        default_factory=empty_list, description="Channels of alarms.yaml to notify when it keeps failing; empty: all."
    )
    tell_after: int = Field(3, ge=1, le=100, description="Failures in a row after which they are notified.")
    executor: str | None = Field(None, description="Where it runs, whatever the scenario says.")
    runtime: str | None = Field(None, description="What its jobs run inside, whatever the scenario says.")
    site: str | None = Field(None, description="Site profile, by name or file.")
    added_by: str = Field("", description="Who added it: its runs are theirs, and within what they may start.")

    @model_validator(mode="after")
    def _check_storable(self) -> "Schedule":
        if not any(self.allows(minute) for minute in range(_DAY)):
            raise ValueError(f"no minute is within {self.window} and outside {self.quiet}: nothing would ever begin")
        if self.missed == "all" and self.overlap == "skip":
            raise ValueError("missed slots that are all made up for come one after the other: overlap is wait or allow")
        return self

    def allows(self, minute: int) -> bool:
        """Return whether a run may begin at this minute of the day, by `window` and `quiet`."""
        return (not self.window or within(self.window, minute)) and not (self.quiet and within(self.quiet, minute))
