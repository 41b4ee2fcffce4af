"""What looks outward beside a running sampler: drivers that hang, and trials too short for any of it.

GPUs that come and fail: cases_nvml.py.
"""

import threading
import time

import pytest

from benchhouse.schema.telemetry import MonitorSettings
from benchhouse.worker.monitors import nvml, watch
from benchhouse.worker.monitors.sampler import Sampler
from benchhouse.worker.monitors.watch import Outward

ASKED = MonitorSettings(interval=0.1, sources=["gpu"])


@pytest.fixture
def fake_driver(monkeypatch):
    monkeypatch.setattr(watch, "driver_is_here", lambda: True)


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


def test_a_trial_that_is_over_at_once_opens_nothing(fake_driver, monkeypatch):
    monkeypatch.setattr(nvml, "open_gpus", lambda: pytest.fail("it was opened"))
    assert watched(0.01).tracks == []


def test_without_a_driver_no_thread_is_started():
    before = threading.active_count()
    beside = Outward(MonitorSettings(), None, Sampler([], 1.0))
    beside.begin()
    assert threading.active_count() == before
    beside.end()


def test_a_driver_that_hangs_does_not_hold_up_the_end(fake_driver, monkeypatch):
    let_go = threading.Event()
    closed = []

    class Late(nvml.GpuSource):
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
