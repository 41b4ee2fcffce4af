"""`ws.monitors`, `ws.logs` and `ws.dashboards` from Python."""

import json
import os
import tarfile
import time

import pytest

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def test_a_monitor_is_started_listed_and_stopped_by_one_process(workspace):
    started = workspace.monitors.start(pid=os.getpid(), interval_s=0.1)
    assert started.state == "running" and started.watches == f"node, process {os.getpid()}"
    assert [item.monitor_id for item in workspace.monitors.all()] == [started.monitor_id]
    time.sleep(0.5)
    ended = workspace.monitors.stop()
    assert ended.state == "ended" and ended.duration_s > 0.3
    assert {"cpu_busy", "rss"} <= {reading.series for reading in ended.seen}
    assert workspace.monitors.stop(started.monitor_id) == ended, "one that has ended is only described"


def test_what_can_not_be_monitored_is_refused(workspace):
    with pytest.raises(BenchError, match=r"0\.01 s"):
        workspace.monitors.start(interval_s=0.01)
    with pytest.raises(BenchError, match="no monitor in this workspace"):
        workspace.monitors.stop()
    assert workspace.monitors.all() == []


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A workspace with one run of two trials."""
    workspace = Workspace(tmp_path_factory.mktemp("ran"))
    target = {"name": "echo", "argv": ["echo", "hello"]}
    workspace.run({"scenario": "s", "experiment": "command", "target": target, "repetitions": 2})
    return workspace


def test_lines_of_a_run_are_chosen_by_component_trial_and_time(ran):
    every = ran.logs.tail(lines=1000)
    assert every and [line.time for line in every] == sorted(line.time for line in every)
    assert ran.logs.tail("s", 1) == every[-1:]
    trial = every[0].trial_id
    assert ran.logs.tail(lines=1000, trials=[trial]) == [line for line in every if line.trial_id == trial]
    assert {line.component for line in ran.logs.tail(components=["worker"])} == {"worker"}
    assert ran.logs.tail(until="1h") == []
    assert [line for batch in ran.logs.follow(lines=1000) for line in batch] == every, "it has ended"
    with pytest.raises(BenchError, match="nobody"):
        ran.logs.tail(components=["nobody"])


def test_logs_are_packed_with_a_manifest(ran, tmp_path):
    archive = ran.logs.get("@last", tmp_path / "logs.tar.gz")
    assert archive.path == tmp_path / "logs.tar.gz" and archive.manifest.run_id == ran["@last"].id
    with tarfile.open(archive.path) as tar:
        names = {member.name.partition("/")[2] for member in tar.getmembers()}
    assert {file.path for file in archive.manifest.files} | {"manifest.json"} == names
    assert archive.to_dict()["output"] == str(archive.path)


def test_old_logs_are_pruned_and_those_of_trials_stay(ran):
    old = ran.folder.run(ran["@last"].id).worker_logs / "worker-1.log"  # as a worker that printed something leaves it
    old.write_text("printed\n")
    for path in (old, *ran.folder.results.rglob("*.log")):
        os.utime(path, (0, 0))
    name = str(old.relative_to(ran.root))
    assert name in ran.logs.prune(3600, dry_run=True).removed and old.exists()
    assert name in ran.logs.prune(3600).removed and not old.exists()
    assert ran.verify().checked == 2 and not ran.verify().damage
    with pytest.raises(BenchError, match="does not say how long logs are kept"):
        ran.logs.prune()


def test_dashboards_and_rules_are_written(workspace):
    written = workspace.dashboards(workspace.root / "grafana")
    assert written.rules in written.files and written.rules.suffix == ".yml"
    boards = [json.loads(path.read_text()) for path in written.files if path.suffix == ".json"]
    assert boards and all(board["panels"] for board in boards)
