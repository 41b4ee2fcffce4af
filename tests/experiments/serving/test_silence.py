"""Silence: what is none, what is one, and that hours of load keep it small."""

import random
from array import array

from benchhouse.experiments.serving.steadiness import _MOST_SILENCE_BINS, Silence

MS = 1_000_000


def test_a_pause_while_a_request_waits_is_found_with_its_place():
    silence = Silence()
    silence.hear(0, 0, 2000 * MS, array("q", [100 * MS, 200 * MS, 1500 * MS, 2000 * MS]))
    assert max(silence.gaps(3.0)) == (1.3, 0.2)


def test_quiet_without_anybody_waiting_is_no_silence():
    silence = Silence()
    silence.hear(0, 0, 100 * MS, array("q", [100 * MS]))
    silence.hear(0, 1500 * MS, 1600 * MS, array("q", [1600 * MS]))
    assert all(length <= 0.1 for length, _ in silence.gaps(3.0))


def test_hours_of_load_keep_it_small_and_a_stall_is_still_found():
    silence, second = Silence(), 1000 * MS
    for at in range(4 * 3600):
        if not 7000 <= at < 7060:  # a minute without any output
            stamps = array("q", [at * second + part * 10 * MS for part in range(100)])
            silence.hear(0, at * second, (at + 120) * second, stamps)
    assert len(silence._sounds) <= _MOST_SILENCE_BINS
    length_s, began_s = max(silence.gaps(4 * 3600.0))
    assert abs(length_s - 60) < 1
    assert abs(began_s - 7000) < 1


def test_merging_two_widths_is_hearing_all_at_the_wider_one():
    draw = random.Random(1)
    heard = [(at * MS, at * MS + draw.randrange(500) * MS) for at in range(0, 50_000, 7)]
    whole, wide, narrow = Silence(), Silence(), Silence()
    whole._widen()
    wide._widen()
    for number, (sent, ended) in enumerate(heard):
        whole.hear(0, sent, ended, array("q", [ended]))
        (wide if number % 2 else narrow).hear(0, sent, ended, array("q", [ended]))
    for first, second in ((wide, narrow), (narrow, wide)):
        merged = Silence()
        merged.merge(first)
        merged.merge(second)
        assert merged.gaps(50.0) == whole.gaps(50.0)
