from datetime import UTC, datetime, timedelta

import pytest

from benchhouse.evidence.writing import after, clock_change, now


def test_a_time_after_another_is_written_alike():
    assert after("2026-10-31T23:59:59.250+00:00", 1.5) == "2026-11-01T00:00:00.750+00:00"


@pytest.mark.parametrize(("hours", "said"), [(1, "-3,6"), (-1, "+3,6")])
def test_a_clock_that_was_set_is_told_by_how_much(hours, said):
    """By the clock it is an hour earlier, or later, than it has to be."""
    expected = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="milliseconds")
    assert clock_change(expected).startswith(said)
    assert clock_change(now()) == ""
