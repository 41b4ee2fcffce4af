"""Durations and sizes as people write them."""

import pytest
from pydantic import TypeAdapter, ValidationError
from tables import check_table

from benchhouse.schema.quantities import Bytes, Seconds, show_bytes, show_seconds

SECONDS, BYTES = TypeAdapter(Seconds), TypeAdapter(Bytes)


@check_table(
    "written, seconds",
    [
        ("90s", 90), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), ("2d", 172800), ("500us", 0.0005),
        ("10 min", 600), ("1H", 3600), ("5", 5), ("0.5", 0.5), (7, 7), (0.25, 0.25), (" 3s ", 3), ("1h 30m", 5400),
    ],
)  # fmt: skip
def test_durations(written, seconds):
    assert SECONDS.validate_python(written) == pytest.approx(seconds)


@check_table(
    "wrong", ["", "s", "10 parsecs", "1h-30m", "m5", "1:30", "5 5", "-5s", -1, "1e3", "nan", "9" * 400, [], None]
)
def test_invalid_durations_are_refused(wrong):
    with pytest.raises(ValidationError):
        SECONDS.validate_python(wrong)


@check_table(
    "written, size",
    [
        ("512MiB", 2**29), ("4GB", 4 * 10**9), ("4G", 4 * 10**9), ("4gib", 4 * 2**30), ("10", 10), ("1.5kB", 1500),
        ("1 TiB", 2**40), (1024, 1024), ("0B", 0), ("3b", 3),
    ],
)  # fmt: skip
def test_sizes(written, size):
    assert BYTES.validate_python(written) == size


@check_table("wrong", ["", "GB", "4 fish", "-1GB", -1, "4GBs", "1e3", "9" * 400 + "TB", [], 1.5])
def test_invalid_sizes_are_refused(wrong):
    with pytest.raises(ValidationError):
        BYTES.validate_python(wrong)


@check_table("seconds, shown", [(0.25, "250 ms"), (12.34, "12.3 s"), (245, "4 m 05 s"), (7830, "2 h 10 m")])
def test_durations_are_shown_for_people(seconds, shown):
    assert show_seconds(seconds) == shown


@check_table("size, shown", [(12, "12 B"), (3.4 * 2**20, "3.4 MiB"), (2**45, "32.0 TiB")])
def test_sizes_are_shown_for_people(size, shown):
    assert show_bytes(size) == shown
