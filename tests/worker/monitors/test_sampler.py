"""The sampler keeps time, keeps going, and tells what it costs."""

import itertools
import threading
import time
from math import isnan

import pytest

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.machine import node
from benchhouse.worker.monitors.sampler import Sampler


class Counting:
    """A source that counts how often it was read."""

    def __init__(self, name="count", slow=False, pause_s=0.0, fails_from=10**9):
        self.name, self.slow, self.pause_s, self.fails_from = name, slow, pause_s, fails_from
        self.series = [Series(name="reads", family="node", kind="counter")]
        self.reads = 0
        self.closed = False
        self.threads = set()

    def sample(self):
        time.sleep(self.pause_s)
        self.reads += 1
        self.threads.add(threading.get_ident())
        if self.reads >= self.fails_from:
            raise RuntimeError("it broke")
        return [float(self.reads)]

    def close(self):
        self.closed = True


@pytest.mark.serial
def test_samples_are_due_at_multiples_of_the_interval_however_long_each_takes():
    source = Counting(pause_s=0.03)
    sampler = Sampler([source], 0.1)
    sampler.start()
    time.sleep(1.06)
    recording = sampler.stop()
    ticks = recording.tracks[0].column(0)[1:-1]  # without the one at the start and the one at the end
    assert len(ticks) + recording.ticks_missed >= 10
    late = [at % 0.1 for at in ticks]
    assert sorted(late)[5] < 0.02  # no drift: the tenth is as late as the first
    assert source.closed


def test_a_slow_source_has_its_own_thread_and_delays_nobody():
    """The slow source is only done when the quick one has been read ten times."""
    quick, slow = Counting("quick"), Counting("slow", slow=True)
    ten_reads = threading.Event()
    sample = quick.sample
    quick.sample = lambda: [ten_reads.set() if quick.reads >= 10 else None, sample()][1]
    wait = slow.sample
    slow.sample = lambda: [ten_reads.wait(60), wait()][1]
    sampler = Sampler([slow, quick], 0.1)
    sampler.start()
    assert ten_reads.wait(60)
    recording = sampler.stop()
    by_scope = {track.scope: track for track in recording.tracks}
    assert by_scope["quick"].samples >= 10 > 5 > by_scope["slow"].samples >= 1
    assert recording.ticks_missed >= 4


def test_a_slow_source_is_read_once_more_at_the_end():
    read, source = threading.Event(), Counting("slow", slow=True)
    sample = source.sample
    source.sample = lambda: [read.set(), sample()][1]
    sampler = Sampler([source], 3600)
    sampler.start()
    assert read.wait(60)
    (track,) = sampler.stop().tracks
    assert list(track.column(1)) == [1.0, 2.0]


def test_a_slow_source_that_hangs_does_not_hold_up_the_end_and_is_named():
    sampler = Sampler([Counting("stuck", slow=True, pause_s=10.0)], 0.1)
    sampler.start()
    began = time.monotonic()
    recording = sampler.stop()
    assert time.monotonic() - began < 8
    assert recording.problems == ["stuck: did not answer in time at the end"]


def test_a_source_that_fails_becomes_nan_is_named_once_and_leaves_the_others_alone():
    sampler = Sampler([Counting("bad", fails_from=3), Counting("good")], 0.1)
    sampler.start()
    time.sleep(0.55)
    recording = sampler.stop()
    bad, good = (track.column(1) for track in recording.tracks)
    assert [isnan(value) for value in bad[:4]] == [False, False, True, True]
    assert not any(isnan(value) for value in good)
    assert recording.problems == ["bad: RuntimeError: it broke"]


def test_a_source_can_be_added_while_it_runs_and_a_second_of_its_name_gets_a_number():
    sampler = Sampler([Counting("service:a")], 0.1)
    sampler.start()
    time.sleep(0.25)
    assert sampler.add(Counting("service:a")) == "service:a-2"
    time.sleep(0.25)
    first, second = sampler.stop().tracks
    assert (first.scope, second.scope) == ("service:a", "service:a-2")
    assert second.column(0)[0] > 0.2
    assert second.samples >= 3


def test_what_takes_long_to_open_is_added_when_it_is_found_and_named_when_it_fails():
    go_on = threading.Event()

    def fails():
        raise OSError("no such device")

    def opens():
        assert go_on.wait(60)
        return [Counting("gpu0", slow=True), Counting("gpu1")]

    sampler = Sampler([Counting("quick")], 0.1)
    sampler.start()
    sampler.find(fails)
    sampler.find(opens)
    go_on.set()  # neither `start` nor `find` has waited for it
    time.sleep(0.6)
    recording = sampler.stop()
    assert sorted(track.scope for track in recording.tracks if track.samples) == ["gpu0", "gpu1", "quick"]
    assert recording.problems == ["OSError: no such device"]


def test_a_trial_shorter_than_an_interval_has_a_sample_at_its_start_and_one_at_its_end():
    sampler = Sampler([Counting()], 10.0)
    sampler.start()
    time.sleep(0.01)
    began = time.monotonic()
    recording = sampler.stop()
    assert time.monotonic() - began < 9
    assert list(recording.tracks[0].column(1)) == [1.0, 2.0]


@pytest.mark.serial
def test_its_own_cost_is_what_the_process_paid():
    sampler = Sampler([node()], 0.1)
    before = time.process_time()
    sampler.start()
    time.sleep(1.5)
    recording = sampler.stop()
    paid = time.process_time() - before
    assert recording.samples >= 10
    assert paid * 0.5 <= recording.cpu_s <= paid * 1.05


def test_ticks_that_were_slept_through_are_counted():
    source = Counting(pause_s=0.0)
    pauses = itertools.chain([0.0, 0.0, 0.45], itertools.repeat(0.0))
    original = source.sample
    source.sample = lambda: (time.sleep(next(pauses)), original())[1]
    sampler = Sampler([source], 0.1)
    sampler.start()
    time.sleep(1.0)
    recording = sampler.stop()
    assert recording.ticks_missed >= 2
    assert recording.samples + recording.ticks_missed >= 9
