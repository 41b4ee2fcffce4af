"""Samplers on other nodes, here as plain processes of this machine: their clocks, their series, their ends."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from benchhouse.analysis.clocks import NodeClock, RoundTrip
from benchhouse.processes.process_identity import TAG
from benchhouse.schema.telemetry import MonitorSettings
from benchhouse.worker.monitors.node_monitors import NodeMonitors
from benchhouse.worker.monitors.watch import TrialMonitor

LATER = """
import sys, time
now = time.time
time.time = lambda: now() + 3600
from benchhouse.worker.__main__ import main
sys.exit(main(["--sample"]))
"""  # a node whose time of day is an hour ahead
TRIAL = "0" * 16


def monitors(**more) -> MonitorSettings:
    return MonitorSettings.model_validate({"interval": 0.1, "sources": ["node", "trial", "services"]} | more)


@pytest.fixture
def others():
    """Makes `NodeMonitors` by the commands of its nodes, and takes them away."""
    made = []

    def make(**commands: list[str]) -> NodeMonitors:
        made.append(NodeMonitors(monitors(), TRIAL, lambda node, cpus: commands[node]))
        made[-1].start(["n1", *commands])
        return made[-1]

    yield make
    for item in made:
        item.close()
        assert not [pid for pid in item.pids if os.path.exists(f"/proc/{pid}")]


@pytest.fixture
def burner():
    """Starts a process of the trial, one of several ranks, that uses a core."""
    processes = []

    def start() -> int:
        command = [sys.executable, "-c", "while True: pass"]
        processes.append(subprocess.Popen(command, env=os.environ | {TAG: TRIAL, "RANK": "3", "WORLD_SIZE": "8"}))
        return processes[-1].pid

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_series_of_another_node_lie_on_the_trial_s_time_line(others, burner, tmp_path):
    other = others(n2=[])
    zero_s = time.monotonic()
    watching = TrialMonitor(monitors(), "2026-11-15T00:00:00+00:00", zero_s, other)
    other.watch("n2", "service:web", burner())
    time.sleep(1.2)
    watching.begin({})
    watching.end()
    length_s = time.monotonic() - zero_s
    other.end()
    summary = watching.write(tmp_path / "telemetry", [])
    (node,) = summary.nodes
    assert not summary.problems and not watching.clocks
    assert abs(node.clock_ahead_s) <= node.clock_uncertainty_s + 0.001 and node.samples >= 3
    assert summary.scopes["n2/node"].node == "n2" and summary.scopes["node"].node == ""
    tracks = {track.scope: track for track in other.tracks(zero_s)}
    times = tracks["n2/service:web"].column(0)
    assert 0 <= times[0] < length_s <= times[-1] < length_s + 60
    assert tracks["n2/trial"].column(1)[-1] > 0, "found by its environment"
    assert tracks["n2/rank:3"].column(1)[-1] > 0 and len(tracks) == 4
    assert tracks["n2/service:web"].column(1)[-1] > 0
    assert (tmp_path / "telemetry" / "n2.service.web.parquet").is_file()


def test_a_time_of_day_an_hour_ahead_is_stated_and_moves_no_series(others, tmp_path):
    other = others(n2=[sys.executable, "-c", LATER])
    zero_s = time.monotonic()
    watching = TrialMonitor(monitors(), "2026-11-15T00:00:00+00:00", zero_s - 1, other)
    watching.begin({})
    watching.end()
    other.end()
    (node,) = watching.write(tmp_path / "telemetry", []).nodes
    assert node.clock_ahead_s == pytest.approx(3600, abs=0.1)
    assert watching.clocks.startswith("n2 is 3,600.0") and "ahead (within" in watching.clocks
    (track,) = [track for track in other.tracks(zero_s) if track.scope == "n2/node"]
    assert -60 < track.column(0)[0] < track.column(0)[-1] < 60


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="another clock needs root")
def test_another_monotonic_clock_is_found_by_round_trips(others):
    other = others(n2=["unshare", "--time", "--monotonic", "3600", "--fork", "--kill-child", "--"])
    zero_s = time.monotonic()
    time.sleep(0.3)
    other.end()
    (track,) = [track for track in other.tracks(zero_s) if track.scope == "n2/node"]
    assert -60 < track.column(0)[0] < track.column(0)[-1] < 60
    (node,) = other.summaries()
    assert abs(node.clock_ahead_s) < 0.1, "its time of day is ours"


def test_a_node_that_dies_is_named_and_the_others_are_kept(others):
    other = others(n2=[], n3=[])
    os.kill(other.pids[0], signal.SIGKILL)
    other.look()
    other.end()
    died, lived = other.summaries()
    assert (died.name, died.problem) == ("n2", "its sampler ended during the trial: nothing of it was sampled")
    assert lived.name == "n3" and not lived.problem and lived.samples
    assert {track.node for track in other.tracks(0.0)} == {"n3"}


def test_a_node_where_nothing_starts_is_named_with_what_was_said(others):
    other = others(n2=["sh", "-c", "echo no such node >&2; exit 1"], n3=["/no/such/program"])
    other.end()
    by_name = {node.name: node.problem for node in other.summaries()}
    assert by_name["n2"] == "no sampler could be started (no such node)"
    assert "No such file" in by_name["n3"]
    assert other.tracks(0.0) == [] and not other.watch("n4", "service:web", 1)


def test_without_monitors_or_other_nodes_nothing_is_started():
    for asked, names in ((None, ["n1", "n2"]), (monitors(), ["n1"])):
        other = NodeMonitors(asked, TRIAL)
        other.start(names)
        other.end()
        other.close()
        assert other.pids == [] and other.summaries() == []


def test_of_unlike_ways_the_offset_is_off_by_at_most_half_a_round_trip():
    # The other clock is 50 s ahead and gains 100 us a second; one way takes all of the time.
    def trip(asked_s: float, there_ms: float, back_ms: float) -> RoundTrip:
        read_s = asked_s + there_ms / 1000
        return RoundTrip(asked_s, read_s + back_ms / 1000, 50 + read_s * (1 + 1e-4), 0.0)

    clock = NodeClock([trip(100, 0.1, 9), trip(100.1, 0.0, 0.2), trip(100.2, 30, 1)], [trip(1100, 0.3, 0.0)])
    assert clock.uncertainty_s == pytest.approx(0.00015)
    assert clock.drift == pytest.approx(1e-4, rel=0.01)
    for here_s in (100, 600, 1100):
        assert abs(clock.here_s(50 + here_s * (1 + 1e-4)) - here_s) <= clock.uncertainty_s + 1e-6
    assert NodeClock([trip(100, 0.1, 0.1)], [trip(101, 0.2, 0.1)]).drift == 0.0, "less than the round trips can tell"
