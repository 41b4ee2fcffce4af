from datetime import UTC, datetime, timedelta

import pytest

from benchhouse.evidence.writing import after, clock_change, now, replacing, write_text


def test_a_time_after_another_is_written_alike():
    assert after("2026-10-31T23:59:59.250+00:00", 1.5) == "2026-11-01T00:00:00.750+00:00"


@pytest.mark.parametrize(("hours", "said"), [(1, "-3,6"), (-1, "+3,6")])
def test_a_clock_that_was_set_is_told_by_how_much(hours, said):
    """By the clock it is an hour earlier, or later, than it has to be."""
    expected = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="milliseconds")
    assert clock_change(expected).startswith(said)
    assert clock_change(now()) == ""


def fail(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_file_that_could_not_be_written_is_as_it_was_and_nothing_is_left_beside_it(tmp_path, monkeypatch, call):
    path = tmp_path / "x.json"
    write_text(path, "before")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(f"os.{call}", fail)
        write_text(path, "after")
    assert [item.read_text() for item in tmp_path.iterdir()] == ["before"]


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.tar"
    with replacing(path) as temporary:
        temporary.write_text("before")
    with pytest.raises(OSError, match="No space left"), replacing(path) as temporary:
        temporary.write_text("half")
        fail()
    assert [item.read_text() for item in tmp_path.iterdir()] == ["before"]
