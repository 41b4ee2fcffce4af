"""Free-standing monitors, from the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from laboratory import Lab, wait_until


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    for one in listed(made):
        if one["process"]:
            os.kill(one["process"], signal.SIGKILL)


def listed(lab):
    return json.loads(lab.bench("monitors", "ps", "--json").stdout)


def start(lab, *options):
    return json.loads(lab.bench("monitors", "start", "--json", *options).stdout)


@pytest.fixture
def burner():
    """A process that works about half of the time."""
    code = "import time\nwhile True:\n    sum(range(1_000_000))\n    time.sleep(0.02)"
    process = subprocess.Popen([sys.executable, "-c", code])
    yield process
    process.kill()
    process.wait()


def test_a_monitor_of_a_process_shows_what_it_uses_and_ends_when_told(lab, burner):
    started = start(lab, "--pid", burner.pid, "--interval", "0.1s")
    assert started["state"] == "running"
    assert [one["state"] for one in listed(lab)] == ["running"]
    shown = lab.bench("monitors", "ps").stdout.splitlines()
    assert len(shown) == 3 and max(map(len, shown)) <= 80, "the list fits a terminal"
    time.sleep(2.0)
    ended = json.loads(lab.bench("monitors", "stop", "--json").stdout)
    assert ended["state"] == "ended"
    seen = {(one["scope"], one["series"]): one["value"] for one in ended["seen"]}
    assert 0 < seen[f"pid:{burner.pid}", "cpu"] < 1.1  # how much it gets is up to the load of the machine
    folder = lab.workspace / ".bench" / "monitors" / started["monitor_id"] / "telemetry"
    assert sorted(path.name for path in folder.iterdir()) == [
        "node.parquet", f"pid.{burner.pid}.parquet", "summary.json",
    ]  # fmt: skip
    assert pq.read_table(folder / "node.parquet").num_rows > 10
    assert lab.left_running() == []
    again = lab.bench("monitors", "stop", started["monitor_id"]).stdout
    assert "cpu avg" in again
    assert "cores" in again


def test_gpus_are_watched_where_nvml_is(lab, tmp_path, monkeypatch):
    fake = Path(__file__).parent.parent / "worker" / "monitors" / "fake_nvml.c"
    made = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, fake], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    started = start(lab, "--interval", "0.1s")
    time.sleep(1.5)
    ended = lab.bench("monitors", "stop", started["monitor_id"]).stdout
    assert "  gpu0  gpu_busy avg  97%\n" in ended
    assert "  gpu1  gpu_power avg" in ended
    (listing,) = listed(lab)
    assert listing["watches"] == "node, gpu0, gpu1"
    assert pq.read_table(f"{listing['folder']}/gpu0.parquet").num_rows > 5


def test_a_monitor_of_a_process_ends_with_it(lab, burner):
    start(lab, "--pid", burner.pid, "--interval", "0.1s")
    burner.kill()
    burner.wait()
    wait_until(lambda: listed(lab)[0]["state"] == "ended", "the monitor to end")


def test_a_killed_monitor_loses_only_what_it_had_not_written_yet(lab):
    lab.variables["PYTHONPATH"] = f"{lab.root / 'site'}"
    (lab.root / "site" / "sitecustomize.py").write_text(
        "import sys\n"
        "if '--monitor' in sys.argv or 'benchhouse.worker' in ' '.join(sys.orig_argv):\n"
        "    import benchhouse.worker.monitors.standing_monitor as standing\n"
        "    standing.PART_S = 0.3\n"
    )
    started = start(lab, "--interval", "0.1s")
    parts = lab.workspace / ".bench" / "monitors" / started["monitor_id"] / "parts"
    wait_until(lambda: len(list(parts.glob("*.part"))) >= 3, "three parts")
    os.kill(started["process"], signal.SIGKILL)
    wait_until(lambda: listed(lab)[0]["state"] == "ended", "the parts to become files")
    folder = parts.parent / "telemetry"
    times = pq.read_table(folder / "node.parquet")["time_s"].to_pylist()
    assert times == sorted(times)
    assert len(times) >= 8
    assert not parts.exists()


def test_a_monitor_ends_after_its_time_and_a_spoilt_summary_hides_no_other_monitor(lab):
    start(lab, "--for", "300ms", "--interval", "0.1s")
    wait_until(lambda: listed(lab)[0]["state"] == "ended", "the monitor to end")
    (first,) = listed(lab)
    assert 0.25 < first["duration_s"] < 60
    start(lab, "--interval", "0.1s")
    lab.bench("monitors", "stop")
    (lab.workspace / ".bench" / "monitors" / first["monitor_id"] / "telemetry" / "summary.json").write_text("{")
    assert [one["state"] for one in listed(lab)] == ["ended", "damaged"]


def test_what_can_not_be_watched_is_refused(bench):
    for words, part in (
        (("start", "--pid", "4194999"), "4194999"),
        (("start", "--interval", "1ms"), "0.1"),
        (("start", "--for", "soon"), "--for"),
        (("stop", "nothing"), "no monitor"),
    ):
        done = bench("monitors", *words)
        assert done.code == 2 and part in done.err, (words, done.err)


def test_what_can_be_monitored_is_listed_with_its_state(lab):
    rows = {row["name"]: row for row in json.loads(lab.bench("monitors", "list", "--json").stdout)}
    assert rows["kueue"]["state"] == "contract-tested"
    assert "kueue_pending_workloads" in rows["kueue"]["metrics"]
    assert (rows["node"]["state"], rows["node"]["ask"]) == ("works", "sources: [node]")
    shown = lab.bench("monitors", "list").stdout
    assert re.search(r"slinky +scheduler +\d+ +contract-tested", shown)
