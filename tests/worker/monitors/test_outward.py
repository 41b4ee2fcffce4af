"""What looks outward beside a running sampler: GPUs that come, fail and hang, and trials too short for any of it."""

import functools
import math
import threading
import time

import pytest

from benchhouse.schema.telemetry import Monitors
from benchhouse.worker.monitors import nvml, outward, smi
from benchhouse.worker.monitors.outward import Outward
from benchhouse.worker.monitors.sampler import Sampler

ASKED = Monitors(interval=0.1, sources=["gpu"])


@pytest.fixture
def fake_driver(library, faults, monkeypatch):
    monkeypatch.setattr(outward, "driver_is_here", lambda: True)
    monkeypatch.setattr(nvml, "open_gpus", functools.partial(nvml.open_gpus, library))
    return faults


def watched(seconds: float, meanwhile=None):
    sampler = Sampler([], ASKED.interval)
    sampler.start()
    beside = Outward(ASKED, None, sampler)
    beside.begin()
    time.sleep(seconds)
    if meanwhile:
        meanwhile()
        time.sleep(seconds)
    beside.end()
    return sampler.stop()


def test_gpus_are_sampled_in_threads_of_their_own(fake_driver):
    recording = watched(0.6)
    assert [track.scope for track in recording.tracks] == ["gpu0", "gpu1"]
    busy = [track.column(1) for track in recording.tracks]
    assert len(busy[0]) >= 4
    assert set(busy[0]) == {0.97}
    assert recording.problems == []


def test_a_gpu_that_falls_off_the_bus_ends_nothing_and_is_named(fake_driver):
    recording = watched(0.6, lambda: fake_driver.write_text("* 0 15\n"))
    lost, well = (track.column(1) for track in recording.tracks)
    assert lost[0] == 0.97
    assert math.isnan(lost[-1])
    assert set(well) == {0.0}
    assert recording.problems == ["gpu0 NVIDIA H200: the GPU is lost, its series end here"]


def test_a_trial_that_is_over_at_once_opens_nothing(fake_driver, monkeypatch):
    monkeypatch.setattr(nvml, "open_gpus", lambda: pytest.fail("it was opened"))
    assert watched(0.01).tracks == []


def test_without_a_driver_no_thread_is_started():
    before = threading.active_count()
    beside = Outward(Monitors(), None, Sampler([], 1.0))
    beside.begin()
    assert threading.active_count() == before
    beside.end()


def test_a_driver_that_hangs_does_not_hold_up_the_end(fake_driver, monkeypatch):
    let_go = threading.Event()
    closed = []

    class Late(nvml.Gpu):
        def __init__(self):
            self.name, self.series = "late", ()

        def close(self):
            closed.append(self.name)

    monkeypatch.setattr(nvml, "open_gpus", lambda: let_go.wait(120) and [Late()])
    sampler = Sampler([], 0.1)
    sampler.start()
    beside = Outward(ASKED, None, sampler)
    beside.begin()
    time.sleep(0.4)
    began = time.monotonic()
    beside.end()
    assert time.monotonic() - began < 60
    assert sampler.stop().tracks == []
    let_go.set()
    beside._thread.join(120)
    assert closed == ["late"], "what came too late is closed, not sampled"


def test_nvidia_smi_stands_in_where_nvml_can_not_be_loaded(monkeypatch):
    monkeypatch.setattr(nvml, "open_gpus", lambda: None)
    monkeypatch.setattr(smi, "open_gpus", lambda interval_s: [f"by nvidia-smi every {interval_s} s"])
    assert outward.open_gpus(0.5) == ["by nvidia-smi every 0.5 s"]
