import errno
import os

import pytest
from pydantic import ValidationError

from benchhouse.drivers.fileio import FileIO
from benchhouse.experiments.storage import FileWorkload, file_io
from benchhouse.schema.experiment import ExperimentFailed

SMALL = {"file_size": "1MiB", "block_size": "64KiB"}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pattern", ["read", "write", "randread", "randwrite"])
def test_one_pass_moves_exactly_what_was_asked(play, pattern, threads):
    ctx = play(file_io, {}, {**SMALL, "pattern": pattern, "threads": threads})
    assert ctx.facts["bytes"] == 2**20 and ctx.facts["operations"] == 16
    assert len(ctx.values["latency"]) == 16
    assert ctx.values["errors"] == [0]
    assert ctx.values["bandwidth"] == [pytest.approx(2**20 / 1e6 / ctx.facts["seconds"])]
    assert ctx.values["iops"] == [pytest.approx(16 / ctx.facts["seconds"])]


def test_operations_and_bandwidth_agree_with_their_latencies(play):
    ctx = play(file_io, {}, {"pattern": "write", "file_size": "16MiB", "block_size": "64KiB", "fsync": "never"})
    assert sum(ctx.values["latency"]) / 1e3 <= ctx.facts["seconds"]


def test_a_duration_goes_round_the_file(play):
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "duration": "200ms"})
    assert 0.2 <= ctx.facts["seconds"] < 1
    assert ctx.facts["operations"] > 16
    assert ctx.facts["bytes"] == ctx.facts["operations"] * 64 * 1024


def test_latency_is_sampled_evenly_beyond_the_cap(play):
    ctx = play(file_io, {}, {"pattern": "read", "file_size": "8MiB", "block_size": 512})
    assert ctx.facts["operations"] == 16384
    assert len(ctx.values["latency"]) == ctx.facts["latency_samples"] == 10_000


@pytest.mark.parametrize("pattern", ["read", "write", "randread", "randwrite"])
def test_direct_io_goes_past_the_page_cache(play, pattern):
    ctx = play(file_io, {}, {**SMALL, "pattern": pattern, "direct": True})
    assert ctx.facts["bytes"] == 2**20
    assert ctx.facts["direct"] or "page_cache" in ctx.warnings


def test_a_filesystem_without_direct_io_is_a_warning(play, monkeypatch):
    monkeypatch.setattr(FileIO, "_check_direct", lambda self: (_ for _ in ()).throw(OSError(errno.EINVAL, "no")))
    ctx = play(file_io, {}, {**SMALL, "pattern": "read", "direct": True})
    assert "refuses O_DIRECT" in ctx.warnings["page_cache"]
    assert ctx.facts["direct"] is False


def test_cached_io_is_marked(play):
    assert "read-ahead" in play(file_io, {}, {**SMALL, "pattern": "read"}).warnings["page_cache"]
    assert "fsync: never" in play(file_io, {}, {**SMALL, "pattern": "write", "fsync": "never"}).warnings["page_cache"]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no memory filesystem here")
def test_memory_is_not_sold_as_storage(play):
    ctx = play(file_io, {"path": "/dev/shm"}, {**SMALL, "pattern": "read"})
    assert ctx.facts["filesystem"] == "tmpfs" and "memory_filesystem" in ctx.warnings
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("benchhouse-trial")]


@pytest.mark.parametrize("pattern", ["write", "read"])
def test_a_full_disk_is_a_named_failure_and_leaves_nothing(play, tmp_path, monkeypatch, pattern):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("benchhouse.drivers.fileio.os.pwrite", full)
    with pytest.raises(ExperimentFailed, match=r"no_space.*smaller file_size"):
        play(file_io, {"path": str(tmp_path)}, {**SMALL, "pattern": pattern, "threads": 2})
    assert not list(tmp_path.glob("benchhouse-*"))


def test_failing_operations_are_counted_and_left_out(play, monkeypatch):
    real, calls = os.preadv, iter(range(1000))

    def sometimes(descriptor, buffers, offset):
        if next(calls) % 4 == 0:
            raise OSError(errno.EIO, "planted")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr("benchhouse.drivers.fileio.os.preadv", sometimes)
    ctx = play(file_io, {}, {**SMALL, "pattern": "read"})
    assert ctx.values["errors"] == [4] and ctx.facts["operations"] == 12
    assert ctx.facts["bytes"] == 12 * 64 * 1024
    assert "planted" in ctx.facts["first_errors"][0]


def test_a_missing_folder_is_named(play):
    with pytest.raises(ExperimentFailed, match="no_such_folder"):
        play(file_io, {"path": "/no/such/folder"}, {**SMALL, "pattern": "read"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": "2MiB"},
        {"threads": 17},
        {"direct": True, "block_size": 1000},
        {"block_size": 0},
        {"pattern": "trim"},
        {"duration": 0},
    ],
)
def test_impossible_workloads_are_refused(wrong):
    with pytest.raises(ValidationError):
        FileWorkload.model_validate({**SMALL, "pattern": "read", **wrong})
