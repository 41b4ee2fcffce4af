"""Custom facts become JSON, whatever they are."""

import json
from pathlib import Path

import pytest

from benchhouse.worker.child import jsonable
from benchhouse.worker.results import Handover, plain_text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
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
    ],
)
def test_values_are_kept_or_told(given, kept):
    assert jsonable(given) == kept
    json.dumps(jsonable(given), allow_nan=False)


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
