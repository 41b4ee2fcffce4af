import errno
import os
import resource
import shutil
import threading
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import sleep

import pytest
from pydantic import ValidationError
from services.small_disk import read_only_disk as read_only_disk
from services.small_disk import small_disk as small_disk

from benchhouse.drivers.fileio import FileIO
from benchhouse.drivers.fileio_content import content_of
from benchhouse.experiments.storage.device import Device
from benchhouse.experiments.storage.file import MOST_IOPS, FileTarget, FileWorkload, file_io
from benchhouse.processes.quotas import usable_cores
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.histogram import Histogram

SMALL = {"file_size": "1MiB", "block_size": "64KiB"}
ALL = ["read", "write", "rw", "randread", "randwrite", "randrw"]
ENGINES = [
    "fileio",
    pytest.param("fio", marks=pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")),
]


@pytest.fixture
def on_device(tmp_path):
    """A folder on a block device that takes O_DIRECT: elsewhere there is no cache to tell from it."""
    if not Device.under(tmp_path).number:
        pytest.skip("the temporary folder is on no block device")
    return tmp_path


@pytest.mark.parametrize("engine", ENGINES)
def test_one_pass_moves_exactly_what_was_asked(play, engine):
    """The patterns of fio with one thread and with several: tests/drivers/test_fio.py."""
    for pattern, threads in product(ALL if engine == "fileio" else ["rw"], (1, 4) if engine == "fileio" else (4,)):
        ctx = play(file_io, {"engine": engine}, {**SMALL, "pattern": pattern, "threads": threads})
        assert ctx.facts["bytes"] == 2**20 and ctx.facts["operations"] == 16, (pattern, threads)
        assert ctx.histograms["latency"].n == 16
        assert ctx.values["errors"] == [0] and not ctx.invalidities
        assert ctx.values["bandwidth"] == [pytest.approx(2**20 / 1e6 / ctx.facts["seconds"])]
        assert ctx.values["iops"] == [pytest.approx(16 / ctx.facts["seconds"])]


@pytest.mark.parametrize("engine", ENGINES)
def test_reads_and_writes_of_a_mixture_are_told_apart(play, engine):
    workload = {"pattern": "randrw", "mix": 0.5, "file_size": "16MiB", "block_size": 4096}
    ctx = play(file_io, {"engine": engine}, workload)
    assert ctx.values["read_iops"][0] + ctx.values["write_iops"][0] == pytest.approx(ctx.values["iops"][0])
    assert ctx.values["read_iops"][0] / ctx.values["iops"][0] == pytest.approx(0.5, abs=0.05)
    assert ctx.histograms["read_latency"].n + ctx.histograms["write_latency"].n == ctx.histograms["latency"].n


def test_what_was_written_is_read_back(play):
    ctx = play(file_io, {}, {**SMALL, "pattern": "randwrite", "precondition": 2, "depth": 4})
    assert ctx.facts["blocks_checked"] >= 4 and ctx.facts["blocks_wrong"] == 0


def test_syncs_have_latencies_of_their_own(play):
    for fsync, syncs in (("never", 0), ("end", 1), ("each", 16), (4, 5)):
        ctx = play(file_io, {}, {**SMALL, "pattern": "write", "fsync": fsync})
        assert ctx.histograms.get("sync_latency", Histogram()).n == syncs, fsync


def test_lost_writes_make_a_trial_invalid(play, monkeypatch):
    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.pwrite", lambda fd, data, at: len(data))
    # the file is filled first, by the same call, which then writes nothing either: keep that one real
    monkeypatch.setattr("benchhouse.drivers.fileio_content._write_all", _really_write)
    ctx = play(file_io, {}, {**SMALL, "pattern": "randwrite"})
    assert "what was written there" in ctx.invalidities["wrong_content"]


def _really_write(descriptor: int, data: bytes, offset: int) -> None:
    assert os.pwritev(descriptor, [data], offset) == len(data)


def test_a_file_that_shrinks_in_mid_run_is_told(play, tmp_path):
    def cut() -> None:
        while not (made := list(tmp_path.glob("benchhouse-*.dat"))) or made[0].stat().st_size < 2**20:
            sleep(0.01)
        sleep(0.1)
        os.truncate(made[0], 2**19)

    cutter = threading.Thread(target=cut, daemon=True)
    cutter.start()
    ctx = play(file_io, {"path": str(tmp_path)}, {**SMALL, "pattern": "read", "duration": "700ms"})
    cutter.join()
    assert "524288 bytes at the end and had 1048576" in ctx.invalidities["file_changed"]
    assert ctx.facts["errors"]["short"] == ctx.values["errors"][0] > 0
    assert "short" in ctx.warnings["errors"] and "wrong_content" not in ctx.invalidities


def test_failing_operations_are_counted_and_left_out(play, monkeypatch):
    real, calls = os.preadv, iter(range(1000))

    def sometimes(descriptor, buffers, offset):
        if next(calls) % 4 == 0:
            raise OSError(errno.EIO, "planted")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.preadv", sometimes)
    ctx = play(file_io, {}, {**SMALL, "pattern": "read"})
    assert ctx.values["errors"] == [4] and ctx.facts["operations"] == 12
    assert ctx.facts["bytes"] == 12 * 64 * 1024 and ctx.facts["errors"] == {"EIO": 4}
    assert "planted" in ctx.facts["first_errors"][0]


def test_reads_of_a_cached_file_are_no_reads_of_the_device(play, on_device):
    target, workload = {"path": str(on_device)}, {"pattern": "read", "file_size": "4MiB", "block_size": "64KiB"}
    warm = play(file_io, target, {**workload, "cache": "keep"})
    assert warm.values["cached"] == [1.0]
    assert "100% of the bytes read came from memory" in warm.warnings["page_cache"]
    cold = play(file_io, target, workload)
    assert cold.values["cached"] == [0.0] and "page_cache" not in cold.warnings
    assert cold.facts["device"] and cold.facts["device_bytes"]["read"] >= 4 << 20
    again = play(file_io, target, {**workload, "file_size": "256KiB", "duration": "400ms"})  # only one round is cold
    assert again.values["cached"][0] > 0.5 and "page_cache" in again.warnings


@pytest.mark.parametrize("engine", ENGINES)
def test_direct_io_goes_past_the_page_cache(play, on_device, engine):
    target = {"path": str(on_device), "engine": engine}
    ctx = play(file_io, target, {**SMALL, "pattern": "randread", "direct": True, "cache": "keep"})
    assert ctx.facts["direct"] or "refuses O_DIRECT" in ctx.warnings["page_cache"]
    if ctx.facts["direct"]:
        assert ctx.values["cached"] == [0.0] and not ctx.invalidities


def test_direct_io_that_the_filesystem_serves_from_memory_is_invalid(play, on_device, monkeypatch):
    monkeypatch.setattr("benchhouse.drivers.fileio.os.O_DIRECT", 0)  # taken, and not obeyed
    ctx = play(file_io, {"path": str(on_device)}, {**SMALL, "pattern": "read", "direct": True, "cache": "keep"})
    assert "although the filesystem took O_DIRECT" in ctx.invalidities["not_direct"]


def test_a_filesystem_without_direct_io_is_a_warning(play, monkeypatch):
    real = os.open

    def refuse(path, flags, mode=0o777):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, mode)

    monkeypatch.setattr("benchhouse.experiments.storage.file.os.open", refuse)
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "direct": True})
    assert "refuses O_DIRECT" in ctx.warnings["page_cache"]
    assert ctx.facts["direct"] is False and ctx.facts["way"] == "through the page cache"


def test_writes_into_the_cache_are_marked(play, on_device):
    ctx = play(file_io, {"path": str(on_device)}, {**SMALL, "pattern": "write", "fsync": "never"})
    assert "their latency is that of memory" in ctx.warnings["write_cache"]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no memory filesystem here")
def test_memory_is_not_sold_as_storage(play):
    ctx = play(file_io, {"path": "/dev/shm"}, {**SMALL, "pattern": "read"})
    assert ctx.facts["filesystem"] == "tmpfs" and "memory_filesystem" in ctx.warnings
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("benchhouse-") and "-trial" in name]


@pytest.mark.parametrize("direct", [False, True])
def test_a_rate_beyond_what_python_keeps_up_with_names_fio(play, monkeypatch, direct):
    monkeypatch.setattr("benchhouse.experiments.storage.file.MOST_IOPS", 1)
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "direct": direct})
    told = ctx.invalidities if ctx.facts["direct"] else ctx.warnings
    assert "engine: fio" in told["client_bound"] and MOST_IOPS > 1


def test_a_share_of_a_core_in_a_millisecond_says_nothing_of_the_client(play, monkeypatch):
    in_python, transfer = {"seconds": 1.0, "user_s": 0.9}, FileIO.transfer
    monkeypatch.setattr(FileIO, "transfer", lambda self, job: replace(transfer(self, job), **in_python))
    assert "90% of a core in Python" in play(file_io, {}, {**SMALL, "pattern": "read"}).warnings["client_bound"]
    in_python.update(seconds=0.001, user_s=0.0009)
    assert "client_bound" not in play(file_io, {}, {**SMALL, "pattern": "read"}).warnings


@pytest.mark.parametrize("engine", ENGINES)
def test_a_disk_that_is_too_small_is_refused_before_it_is_filled(play, small_disk, engine):
    with pytest.raises(ExperimentFailed, match=r"no_space.*4.0 MiB \(1.0 MiB free\).*smaller file_size"):
        play(file_io, {"path": str(small_disk), "engine": engine}, {**SMALL, "file_size": "4MiB", "pattern": "write"})
    assert not os.listdir(small_disk)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pattern", ["write", "read"])
def test_a_disk_that_fills_up_is_a_named_failure_and_leaves_nothing(play, small_disk, monkeypatch, pattern, engine):
    monkeypatch.setattr("benchhouse.experiments.storage.file.free_bytes", lambda folder: 1 << 40)
    with pytest.raises(ExperimentFailed, match=r"no_space.*smaller file_size"):
        play(file_io, {"path": str(small_disk), "engine": engine}, {**SMALL, "file_size": "4MiB", "pattern": pattern})
    assert not os.listdir(small_disk)


@pytest.mark.parametrize("pattern", ["write", "read"])
def test_a_limit_on_file_sizes_is_named(play, tmp_path, pattern):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
    try:
        with pytest.raises(ExperimentFailed, match=r"too_large.*ulimit -f"):
            play(file_io, {"path": str(tmp_path)}, {**SMALL, "pattern": pattern, "threads": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("benchhouse-*"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_folder_that_can_not_be_written_is_named(play, read_only_disk, engine):
    for workload in ({"pattern": "write"}, {"pattern": "read"}, {"pattern": "read", "direct": True}):
        with pytest.raises(ExperimentFailed, match=r"not_writable.*Read-only file system"):
            play(file_io, {"path": str(read_only_disk), "engine": engine}, {**SMALL, **workload})


def test_a_missing_folder_is_named(play):
    with pytest.raises(ExperimentFailed, match="no_such_folder"):
        play(file_io, {"path": "/no/such/folder"}, {**SMALL, "pattern": "read"})


def test_without_fio_the_way_to_get_it_is_named(play, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ExperimentFailed, match="apt install fio"):
        play(file_io, {"engine": "fio"}, {**SMALL, "pattern": "read"})


def test_impossible_workloads_are_refused():
    for wrong in [
        {"block_size": "2MiB"},
        {"threads": 17},
        {"threads": 4, "depth": 5},
        {"file_size": 2**20 + 1},
        {"direct": True, "block_size": 1024},
        {"block_size": 0},
        {"pattern": "trim"},
        {"duration": 0},
        {"warmup": "1s"},
        {"mix": 1},
        {"fsync": 0},
        {"fsync": "sometimes"},
        {"processes": 2},
        {"processes": "some"},
    ]:
        with pytest.raises(ValidationError):
            FileWorkload.model_validate({**SMALL, "pattern": "read", **wrong})


def test_limits_of_errors_are_refused_where_nothing_bounds_them(play):
    with pytest.raises(ExperimentFailed, match="whose figures have no bounds"):
        play(file_io, {"engine": "fio"}, {**SMALL, "pattern": "read", "error_share": 0.1})


def test_an_engine_of_fio_needs_fio():
    with pytest.raises(ValidationError, match="is of engine: fio"):
        FileTarget(ioengine="libaio")


def test_a_size_that_does_not_fit_names_one_that_does():
    with pytest.raises(ValidationError, match="such as 196608 bytes"):
        FileWorkload(pattern="read", file_size=200_000, block_size=65536)


def test_workers_are_spread_over_the_cores_unless_a_number_is_given(play):
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "depth": 8})
    assert ctx.facts["processes"] == min(8, usable_cores()) and ctx.facts["in_flight"] == 8
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "depth": 8, "processes": 3})
    assert ctx.facts["processes"] == 3


def test_the_device_under_a_folder_counts_what_is_written(on_device):
    device = Device.under(on_device)
    before = device.counters()
    path = Path(on_device) / "some"
    with path.open("wb") as file:
        file.write(os.urandom(4 << 20))
        file.flush()
        os.fsync(file.fileno())
    assert device.counters().written - before.written >= 4 << 20
    assert Device.under(Path("/proc")) == Device("proc") and Device.under(Path("/proc")).counters() is None


@pytest.mark.parametrize("engine", ENGINES)
def test_the_bytes_of_a_given_file_are_read(play, tmp_path, engine):
    given = tmp_path / "given.txt"
    given.write_bytes(b"0123456789" * 10_000)
    for pattern in ("read", "randread"):
        ctx = play(file_io, {"engine": engine}, {**SMALL, "pattern": pattern, "content": {"file": str(given)}})
        assert ctx.facts["bytes"] == 2**20 and not ctx.invalidities
        assert ctx.facts["blocks_wrong"] == 0
        assert ctx.facts["blocks_checked"] > 0 or engine == "fio"


def test_given_content_that_is_not_what_was_copied_is_found(tmp_path):
    given, copy = tmp_path / "given", tmp_path / "copy"
    given.write_bytes(bytes(range(251)) * 99)
    content = content_of(4096, 0, given, 16 * 4096)
    content.fill(copy, 16 * 4096)
    assert copy.read_bytes() == (given.read_bytes() * 3)[: 16 * 4096]
    assert content.misfits(copy, range(0, 16 * 4096, 4096), 0) == []
    with copy.open("r+b") as file:
        file.seek(3 * 4096 + 7)
        file.write(b"\xff")
    assert content.misfits(copy, range(0, 16 * 4096, 4096), 0) == [3 * 4096]


@pytest.mark.parametrize("more", [{"pattern": "write"}, {"pattern": "read", "precondition": 1}])
def test_given_content_is_only_read(tmp_path, more):
    (tmp_path / "given").write_bytes(b"x")
    with pytest.raises(ValidationError, match="content"):
        FileWorkload.model_validate(SMALL | more | {"content": {"file": str(tmp_path / "given")}})
