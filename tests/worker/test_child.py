"""Custom facts become JSON, whatever they are."""

import csv
import json
from pathlib import Path

import pytest
from tables import check_rows

from benchhouse.schema.experiment import Experiment
from benchhouse.worker import child
from benchhouse.worker.child import jsonable
from benchhouse.worker.context import TrialContext
from benchhouse.worker.results import Handover, plain_text


def test_values_are_kept_or_told():
    rows = [
        (None, None),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        (float("nan"), None),
        (float("-inf"), None),
        ("NaN Infinity", "NaN Infinity"),
        ("half \ud800", "half \\ud800"),
        (b"x", "b'x'"),
        (Path("/a"), "/a"),
        ({1: (2, {3})}, {"1": [2, [3]]}),
    ]

    def check(given, kept):
        assert jsonable(given) == kept
        json.dumps(jsonable(given), allow_nan=False)

    check_rows(check, rows)


def test_numpy_scalars_are_numbers_and_arrays_text():
    numpy = pytest.importorskip("numpy")
    assert jsonable({"a": numpy.int64(3), "b": numpy.float64("nan")}) == {"a": 3, "b": None}
    assert jsonable(numpy.arange(3)) == "[0 1 2]"


def test_what_holds_itself_ends():
    loop: list = []
    loop.append(loop)
    assert len(json.dumps(jsonable(loop))) < 1000


def test_long_text_is_cut_in_the_middle():
    text = plain_text("a" * 300_000 + "z")
    assert len(text) < 101_000
    assert text.startswith("aaa")
    assert text.endswith("az")
    assert "200001 characters not kept" in text


def test_a_crash_is_told_even_if_its_message_can_not_be():
    class Mute(Exception):  # noqa: N818
        def __str__(self):
            raise RuntimeError

    handover = Handover(finished=True)
    try:
        raise Mute
    except Mute as error:
        handover.crash(error)
    assert handover.failure.code == "Mute"
    assert "test_child.py" in handover.failure.traceback
    assert not handover.finished


@pytest.mark.parametrize("many", [10**6, 3])
def test_samples_are_written_so_that_every_bit_comes_back(many, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_MANY", many)
    values = [0.1, 1e-300, 5.0, -2.5e21, 123456789.123456789, 2**53 + 2.0, 5e-324, 1 / 3]
    ctx = TrialContext(Experiment("e", "1", lambda: None), "t", 0, 0, tmp_path, tmp_path, None)
    ctx.emit_all("x", values, window='of "a", b')
    ctx.emit("single", 1)
    child._write_samples(ctx, tmp_path / "samples.csv")
    with (tmp_path / "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == values
    assert {(row["metric"], row["window"], row["unit"]) for row in rows} == {("x", 'of "a", b', "1")}
    assert [row["index"] for row in rows] == [str(index) for index in range(len(values))]
