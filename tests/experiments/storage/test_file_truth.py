"""`storage.file` against storage whose speed is known, and against kill -9."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from benchhouse.experiments.storage.device import Device, new_name, sweep
from benchhouse.experiments.storage.file import file_io

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
    return {row["metric"]: row for row in json.loads(done.stdout)["points"]}


@pytest.mark.serial
def test_the_operations_a_second_that_the_kernel_allows_are_measured(throttled, tmp_path):
    found = measure(throttled(iops=IOPS), tmp_path, pattern="randread", file_size="16MiB", block_size=4096, depth=2)
    assert found["iops"]["mean"] == pytest.approx(IOPS, rel=0.12)  # it lets a first burst of a tenth of a second pass


@pytest.mark.serial
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


@pytest.mark.serial
def test_a_core_that_something_else_uses_is_told(play):
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    code = "print(flush=True)\nwhile True: pass"  # on the same core, as it inherits that
    burn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        burn.stdout.readline()
        workload = {"pattern": "read", "file_size": "1MiB", "block_size": 4096, "cache": "keep", "duration": "600ms"}
        ctx = play(file_io, {}, workload)
    finally:
        burn.kill()
        burn.communicate()
        os.sched_setaffinity(0, before)
    assert ctx.facts["no_core_share"] > 0.3 and "without a core" in ctx.warnings["client_starved"]
