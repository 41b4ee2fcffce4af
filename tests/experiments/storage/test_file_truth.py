"""`storage.file` against storage whose speed is known, and against kill -9."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic, monotonic_ns, sleep, thread_time_ns

import pytest
from laboratory import stopped

from benchhouse.experiments.storage.device import Device, new_name, sweep
from benchhouse.experiments.storage.file import file_io
from benchhouse.load.streams import figures
from benchhouse.schema.histogram import Histogram

IOPS = 400  # that the kernel is told to allow
MIBS = 20


@pytest.fixture
def throttled(tmp_path):
    """A command prefix: what it starts may read the device of `tmp_path` only so fast."""
    device = Device.under(tmp_path)
    old, new = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
    if device.number is None:
        pytest.skip("the temporary folder is on no block device")
    number = f"{os.major(device.number)}:{os.minor(device.number)}"
    group = (old if old.is_dir() else new) / f"benchhouse-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")

    def limit(*, iops: int = 0, mibs: int = 0) -> list[str]:
        bytes_per_s = mibs << 20
        try:
            if old.is_dir():
                name, value = ("iops", iops) if iops else ("bps", bytes_per_s)
                (group / f"blkio.throttle.read_{name}_device").write_text(f"{number} {value}")
            else:
                (group / "io.max").write_text(f"{number} {f'riops={iops}' if iops else f'rbps={bytes_per_s}'}")
        except OSError as error:
            pytest.skip(f"this device can't be throttled here: {error}")
        return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]

    yield limit
    group.rmdir()


def measure(prefix: list[str], folder: Path, **workload: object) -> dict:
    """One trial of `bench run` below `prefix`, as it is in the JSON that it prints."""
    scenario = {
        "scenario": "known",
        "experiment": "storage.file",
        "target": {"path": str(folder)},
        "workload": {"direct": True, "duration": "1500ms", **workload},
    }
    (folder / "s.yaml").write_text(json.dumps(scenario))
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "benchhouse", "run", "s.yaml", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {row["metric"]: row for row in json.loads(done.stdout)["points"]}
    if "iops" not in found:
        pytest.skip("something else used the cores: rates are INVALID")
    return found


def test_the_operations_a_second_that_the_kernel_allows_are_measured(throttled, tmp_path):
    found = measure(throttled(iops=IOPS), tmp_path, pattern="randread", file_size="16MiB", block_size=4096, depth=2)
    assert found["iops"]["mean"] == pytest.approx(IOPS, rel=0.12)  # it lets a first burst of a tenth of a second pass


def test_the_bandwidth_that_the_kernel_allows_is_measured(throttled, tmp_path):
    found = measure(throttled(mibs=MIBS), tmp_path, pattern="read", file_size="64MiB", block_size="256KiB")
    assert found["bandwidth"]["mean"] == pytest.approx(MIBS * 1.048576, rel=0.12)


def test_a_file_left_by_a_killed_trial_is_removed_by_the_next(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from benchhouse.experiments.storage.device import new_name\n"
        f"Path({str(tmp_path)!r}, new_name('t')).write_bytes(b'x'); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as maker:
        maker.stdout.readline()
        mine = tmp_path / new_name("mine")
        mine.touch()
        foreign = tmp_path / new_name("other-machine").replace(new_name("")[11:23], "0" * 12)
        foreign.touch()
        (tmp_path / "benchhouse-notes.dat").touch()
        assert sweep(tmp_path) == []  # all alive, or of unknown owners
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert [name[-6:] for name in sweep(tmp_path)] == ["-t.dat"]
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, foreign.name, "benchhouse-notes.dat"}


def test_a_run_that_is_killed_leaves_nothing_after_the_next(tmp_path):
    (tmp_path / "data").mkdir()
    for name, duration in (("s", "60s"), ("short", "100ms")):
        scenario = {
            "scenario": "killed",
            "experiment": "storage.file",
            "target": {"path": str(tmp_path / "data")},
            "workload": {"pattern": "read", "file_size": "1MiB", "duration": duration},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "benchhouse", "run"]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen([*command, "s.yaml"], cwd=tmp_path, stdout=said, stderr=said)
    deadline = monotonic() + 120
    while not (made := list((tmp_path / "data").iterdir())) or not made[0].stat().st_size:
        assert monotonic() < deadline and run.poll() is None, (tmp_path / "said").read_text()
        sleep(0.02)
    owner = int(made[0].name.split("-p")[1].split("-")[0])
    os.kill(owner, signal.SIGKILL)
    run.kill()
    run.wait()
    assert list((tmp_path / "data").iterdir()) == made
    done = subprocess.run([*command, "short.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "data").iterdir()) == []


@contextmanager
def crowded(others: int):
    """This process and so many that always compute, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    burns = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        yield
    finally:
        for burn in burns:
            burn.kill()
            burn.wait()
        os.sched_setaffinity(0, before)


class KnownReads:
    """Reads that take as long as they compute: what a thread's clock says is the truth of each, wait or no wait."""

    def __init__(self, computes_ns: int) -> None:
        self._real, self._computes_ns = os.preadv, computes_ns
        self.true: list[int] = []

    def __call__(self, descriptor, buffers, offset):
        began = thread_time_ns()
        moved = self._real(descriptor, buffers, offset)
        while thread_time_ns() - began < self._computes_ns:
            pass
        self.true.append(thread_time_ns() - began)
        return moved


def stolen_ms() -> float:
    """What a host kept virtual processors from running: no guest knows from whom."""
    return int(Path("/proc/stat").read_text().split()[8]) * 10.0


@pytest.mark.parametrize(("others", "depth", "stop"), [(0, 1, False), (2, 3, False), (0, 1, True)])
def test_what_is_called_valid_lies_within_its_bound_of_the_truth(play, monkeypatch, others, depth, stop):
    reads = KnownReads(4_000_000)
    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.preadv", reads)
    workload = {
        "pattern": "read",
        "file_size": "1MiB",
        "block_size": 4096,
        "cache": "keep",
        "duration": "2s" if stop else "1s",
    }
    before = stolen_ms()
    with crowded(others), stopped(1.0, 0.3) if stop else nullcontext():
        ctx = play(file_io, {}, workload | {"depth": depth, "processes": 1, "duration": "2s" if stop else "1s"})
    stolen = stolen_ms() - before
    true, published, bounds = figures(Histogram(reads.true)), figures(ctx.histograms["latency"]), ctx.errors["latency"]
    assert bounds.keys() == true.keys()
    for stat in bounds.keys() - ctx.beyond["latency"]:
        assert abs(published[stat] - true[stat]) / 1e6 <= bounds[stat] + stolen + 0.1, stat
    if others or stop:
        assert ctx.beyond["latency"] and "latency.p99" in ctx.warnings["figures_invalid"]
    if others:
        assert ctx.facts["no_core_share"] > 0.2
        assert ctx.beyond["iops"] == {"value"} and "threads together were late" in ctx.warnings["rates_invalid"]
        assert ctx.errors["iops"]["value"] > 0.2 * ctx.values["iops"][0]


@pytest.mark.parametrize(("delay_ns", "beyond"), [(0, set()), (3_000_000, {"mean", "p50", "p90", "p95"})])
def test_a_thread_that_never_waits_has_valid_figures_and_one_that_always_does_has_none(
    play, monkeypatch, delay_ns, beyond
):
    """Reads of 5 ms, of which the kernel says that none or 3 ms were spent on waiting for a core.

    On a busy machine the slowest of the 64 takes so long that 3 ms are little of it.
    """
    real = os.preadv
    monkeypatch.setattr("benchhouse.load.scheduling_delays.RunDelay.look", lambda self: delay_ns)
    monkeypatch.setattr(
        "benchhouse.load.scheduling_delays.DelayMeter.woke", lambda self, due, rung, alone: (monotonic_ns(), 0)
    )
    monkeypatch.setattr("benchhouse.load.scheduling_delays.DelayMeter.wait_until_known", lambda self, until: None)
    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.preadv", lambda *read: (sleep(0.005), real(*read))[1])
    ctx = play(file_io, {}, {"pattern": "read", "file_size": "256KiB", "block_size": 4096, "cache": "keep"})
    assert ctx.beyond["latency"] - {"p99", "p99.9"} == beyond
    assert ctx.beyond["iops"] == ({"value"} if beyond else set())
    assert beyond or (not ctx.beyond["latency"] and max(ctx.errors["latency"].values()) < 0.5)


def test_fio_tells_no_delays_and_its_figures_have_no_bounds(play):
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    ctx = play(file_io, {"engine": "fio"}, {"pattern": "read", "file_size": "1MiB", "block_size": 65536})
    assert ctx.histograms["latency"].n and not ctx.errors
