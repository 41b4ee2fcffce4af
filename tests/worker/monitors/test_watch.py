"""What goes wrong with monitors is told, and ends nothing."""

import math
import os
import threading
import time

from benchhouse.schema.service import LiveServices, Replica
from benchhouse.schema.telemetry import MonitorSettings, Series
from benchhouse.worker.monitors.watch import SHORTEST_S, TrialMonitor


class Broken:
    name = "gpu0"
    series = (Series(name="gpu_power", unit="W", family="energy"),)

    def sample(self):
        raise RuntimeError("fell off the bus")

    def close(self):
        pass


def watch(*, ago_s: float = 0.0, **asked) -> TrialMonitor:
    """Of a trial that began so long ago."""
    return TrialMonitor(MonitorSettings.model_validate(asked), "2026-11-15T00:00:00+00:00", time.monotonic() - ago_s)


def test_a_source_that_fails_is_named_once_and_the_rest_is_written(tmp_path):
    watching = watch(interval=0.1, ago_s=0.05)
    watching.begin({})
    watching._sampler.add(Broken())
    time.sleep(watching.due_s)
    watching.look(tmp_path / "services.json")
    time.sleep(0.5)
    watching.end()
    summary = watching.write(tmp_path / "telemetry", [])
    assert watching.trouble == "gpu0: RuntimeError: fell off the bus"
    assert summary.scopes["gpu0"].series["gpu_power"].phases == {}
    assert summary.stats("node", "cpu_busy", "trial").n > 0
    assert summary.energy_j is None


def test_without_a_thread_there_are_two_samples_and_that_is_told(tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    watching = watch(interval=0.1, ago_s=1)
    watching.begin({})
    time.sleep(watching.due_s)
    watching.look(tmp_path / "services.json")
    assert watching.due_s == math.inf  # it is not tried again
    watching.end()
    assert watching.write(tmp_path / "telemetry", []).scopes["node"].samples == 2
    assert watching.trouble == "only the first and the last sample were taken: can't start new thread"


def test_a_trial_shorter_than_an_interval_pays_for_no_thread(tmp_path, monkeypatch):
    def refuse(self):
        raise AssertionError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    watching = watch(interval=600, ago_s=1)
    watching.begin({})
    watching.look(tmp_path / "services.json")
    watching.end()
    assert {scope.samples for scope in watching.write(tmp_path / "telemetry", []).scopes.values()} == {2}
    assert watching.trouble == ""


def test_services_are_watched_where_they_are_asked_for(tmp_path):
    for sources, scopes in ((["services"], {"service:self"}), (["node"], {"node"})):
        watching = watch(interval=0.1, sources=sources, ago_s=1)
        watching.begin({})
        live = LiveServices(services={"self": Replica(endpoint="", pid=os.getpid(), start_s=0)})
        (tmp_path / "services.json").write_text(live.model_dump_json())
        watching.look(tmp_path / "services.json")
        watching.end()
        assert set(watching.write(tmp_path / sources[0], []).scopes) == scopes


def test_of_less_than_ten_ticks_of_the_clock_nothing_is_told(tmp_path):
    for ago_s, told in ((0.0, False), (2 * SHORTEST_S, True)):
        watching = watch(interval=600, ago_s=ago_s)
        watching.begin({})
        watching.end()
        watching._duration_s = min(watching._duration_s, 2 * SHORTEST_S if told else SHORTEST_S / 2)
        assert (watching.write(tmp_path / "telemetry", []) is not None) == told
        assert (tmp_path / "telemetry").exists() == told


def test_nothing_is_sampled_where_nothing_is_asked_for(tmp_path):
    watching = TrialMonitor(None, "", time.monotonic())
    watching.begin({})
    watching.end()
    assert watching.write(tmp_path / "telemetry", []) is None
    assert watching.trouble == ""
