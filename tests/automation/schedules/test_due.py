"""When slots are due, and what becomes of those that can't begin: tables of dates, each written down by hand."""

from datetime import UTC, datetime
from itertools import takewhile

import pytest
from tables import check_table

from benchhouse.automation.schedules.cron import check, slots, starts_at
from benchhouse.automation.schedules.due import ScheduleHistory, outlook
from benchhouse.schema.errors import BenchError
from benchhouse.schema.schedules import Schedule

HOUR = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def schedule(cron: str = "0 * * * *", **fields) -> Schedule:
    return Schedule(name="n", scenario="n.yaml", cron=cron, **fields)


def due(cron: str, begin: str, end: str, **fields) -> list[str]:
    last = at(end)
    found = takewhile(lambda moment: moment <= last, slots(schedule(cron, **fields), at(begin)))
    return [datetime.fromtimestamp(moment, UTC).isoformat()[5:16] for moment in found]


@check_table(
    "cron, begin, end, expected",
    [
        # Berlin, 2026-03-29: 02:00 becomes 03:00, so 02:30 does not exist; it comes at the end of the gap.
        ("30 2 * * *", "2026-03-28", "2026-03-31", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("0 2 * * *", "2026-03-28", "2026-03-30T23:00", ["03-28T01:00", "03-29T01:00", "03-30T00:00"]),
        # 2026-10-25: 02:00 to 03:00 comes twice; a fixed time comes once, the first time.
        ("30 2 * * *", "2026-10-24", "2026-10-27", ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
        # What has a star follows the clock that never jumps: each hour once, 25 hours that day.
        ("0 * * * *", "2026-10-25T00:00", "2026-10-25T03:00", ["10-25T01:00", "10-25T02:00", "10-25T03:00"]),
        ("0 * * * *", "2026-03-29T00:00", "2026-03-29T03:00", ["03-29T01:00", "03-29T02:00", "03-29T03:00"]),
    ],
)
def test_daylight_saving_repeats_and_loses_no_slot(cron, begin, end, expected):
    assert due(cron, begin, end, timezone="Europe/Berlin") == expected


@check_table("start", ["2026-10-25T00:30", "2026-10-25T00:59", "2026-10-25T01:00", "2026-10-25T01:29"])
def test_a_fixed_time_runs_once_in_the_repeated_hour(start):
    assert due("30 2 * * *", start, "2026-10-26T12:00", timezone="Europe/Berlin") == ["10-26T01:30"]


@check_table(
    "cron, reason",
    [
        ("0 0 31 2 *", "no schedule"),
        ("61 * * * *", "Bad minute"),
        ("* * * *", "no schedule"),
        ("* * * * * *", "no schedule"),
        ("@daily", "no schedule"),
        ("$(reboot) * * * *", "Bad minute"),
    ],
)
def test_a_cron_line_that_is_invalid_or_never_fires_is_refused(cron, reason):
    with pytest.raises(BenchError, match=reason):
        check(schedule(cron), at("2026-01-01"))


@check_table(
    "fields",
    [
        {"timezone": "Mars/Olympus"},
        {"timezone": "../../etc/passwd"},
        {"window": "25:00-26:00"},
        {"window": "08:00-08:00"},
        {"window": "08:00-12:00", "quiet": "07:00-13:00"},
        {"missed": "all", "overlap": "skip"},
        {"max_age_s": 0},
        {"jitter_s": -1},
        {"name": "../up"},
    ],
)
def test_settings_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError, match=r"validation error"):
        Schedule(**({"name": "n", "scenario": "n.yaml", "cron": "0 * * * *"} | fields))


def test_jitter_is_the_same_whoever_asks_and_spreads_slots():
    spread = schedule(jitter_s=600)
    late = [starts_at(spread, moment) - moment for moment, _ in zip(slots(spread, 0), range(200), strict=False)]
    assert late == [starts_at(spread, moment) - moment for moment, _ in zip(slots(spread, 0), range(200), strict=False)]
    assert 0 <= min(late) < 60 and 540 < max(late) <= 600 and 250 < sum(late) / 200 < 350


def choices(now: str, looked_to: str = "2026-01-01T00:30", *, running=False, failures=0, failed_at=0.0, **fields):
    """Slots as `hour` where they are run, `-hour` where not."""
    standing = ScheduleHistory(at(looked_to), running, failures, failed_at)
    decided = outlook(schedule(**fields), standing, at(now))
    return " ".join(("-" if choice.skip else "") + f"{choice.due / HOUR % 24:g}" for choice in decided.choices)


@check_table(
    "now, fields, expected",
    [
        ("2026-01-01T00:59", {}, ""),
        ("2026-01-01T01:00:01", {}, "1"),
        ("2026-01-01T03:30", {"missed": "once"}, "-1 -2 3"),
        ("2026-01-01T03:30", {"missed": "skip"}, "-1 -2 -3"),
        ("2026-01-01T03:00:30", {"missed": "skip"}, "-1 -2 3"),
        ("2026-01-01T03:30", {"missed": "all", "overlap": "allow"}, "1 2 3"),
        ("2026-01-01T03:30", {"missed": "all"}, "1"),  # the next when that one is over
        ("2026-01-01T03:30", {"missed": "all", "overlap": "allow", "max_age_s": 1.6 * HOUR}, "-1 2 3"),
        ("2026-01-08T03:30", {"missed": "once", "max_age_s": 1.6 * HOUR}, "-1 -2 3"),  # one line for a week
        ("2026-01-01T01:00:01", {"running": True}, ""),
        ("2026-01-01T01:00:01", {"running": True, "overlap": "skip"}, "-1"),
        ("2026-01-01T01:00:01", {"running": True, "overlap": "allow"}, "1"),
        ("2026-01-01T03:30", {"window": "05:00-07:00"}, ""),
        ("2026-01-01T05:00", {"window": "05:00-07:00"}, "-1 -2 -3 -4 5"),
        ("2026-01-01T03:30", {"window": "05:00-07:00", "missed": "skip"}, "-1 -2 -3"),
        ("2026-01-01T23:10", {"quiet": "22:00-06:00", "max_age_s": HOUR, "looked_to": "2026-01-01T22:30"}, ""),
        ("2026-01-02T06:00", {"quiet": "22:00-06:00", "looked_to": "2026-01-02T04:30"}, "-5 6"),
        ("2026-01-01T01:00:01", {"failures": 1, "failed_at": at("2026-01-01T00:00"), "backoff_s": 1800}, "1"),
        ("2026-01-01T01:00:01", {"failures": 3, "failed_at": at("2026-01-01T00:00"), "backoff_s": 1800}, "-1"),
    ],
)
def test_policies(now, fields, expected):
    assert choices(now, **fields) == expected


def test_a_clock_that_went_back_is_followed_and_one_that_is_ahead_runs_one_slot():
    ahead = outlook(schedule(), ScheduleHistory(at("2026-01-01T00:30")), at("2027-01-01T00:30"))
    assert sum(not choice.skip for choice in ahead.choices) == 1
    back = outlook(schedule(), ScheduleHistory(ahead.looked_to), at("2026-01-01T00:45"))
    assert back.choices == () and back.next_look == at("2026-01-01T01:00")
