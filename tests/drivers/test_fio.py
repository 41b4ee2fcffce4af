import shutil
from dataclasses import replace

import pytest
from services.small_disk import small_disk as small_disk

from benchhouse.drivers.fileio import FileIO
from benchhouse.drivers.fio import Fio, arguments
from benchhouse.load.protocols.files import FileJob
from benchhouse.schema.errors import BenchError

BLOCK, BLOCKS = 4096, 256
SIZE = BLOCK * BLOCKS
installed = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture
def job(tmp_path):
    job = FileJob(tmp_path / "da:ta", SIZE, BLOCK, "read", seed=7)
    FileIO().fill(job)
    return job


@installed
@pytest.mark.parametrize(
    ("pattern", "streams"),
    [("read", 1), ("read", 4), ("write", 4), ("rw", 1), ("randread", 4), ("randwrite", 1), ("randrw", 4)],
)
def test_one_pass_moves_every_block(job, tmp_path, pattern, streams):
    moved = Fio().transfer(replace(job, pattern=pattern, streams=streams))
    assert moved.bytes == SIZE and moved.operations == BLOCKS and not moved.errors
    assert (moved.read_bytes > 0) == (pattern not in ("write", "randwrite"))
    assert (moved.written_bytes > 0) == (pattern not in ("read", "randread"))
    assert [path.name for path in tmp_path.iterdir()] == ["da:ta"] and job.path.stat().st_size == SIZE
    assert moved.version.startswith("fio-3")


@installed
def test_latencies_add_up_to_the_time_that_was_measured(job):
    moved = Fio().transfer(replace(job, pattern="randread", duration_s=0.5))
    assert moved.seconds == pytest.approx(0.5, abs=0.2)
    assert moved.reads.n > BLOCKS and 0.1 * moved.seconds < moved.reads.mean * moved.reads.n / 1e9 <= moved.seconds


@installed
def test_syncs_are_told_apart(job):
    moved = Fio().transfer(replace(job, pattern="write", sync_every=64))
    assert moved.writes.n == BLOCKS and 3 <= moved.syncs.n <= 5


@installed
def test_a_full_disk_is_told_by_its_name(small_disk):
    moved = Fio().transfer(FileJob(small_disk / "data", 4 << 20, BLOCK, "write"))
    assert moved.errors == {"ENOSPC": 1} and moved.fatal == 28 and "No space" in moved.first_errors[0]


@installed
def test_a_queue_of_the_kernel_is_used_where_asked(job):
    moved = Fio().transfer(replace(job, pattern="randread", depth=8, direct=True, ioengine="libaio", duration_s=0.3))
    assert moved.operations > 0
    assert "--iodepth=8" in arguments(replace(job, depth=8, ioengine="libaio"))


def test_with_psync_every_operation_in_flight_is_a_job():
    job = FileJob("data", SIZE, BLOCK, "randread", streams=2, depth=8)
    assert {"--numjobs=16", "--iodepth=1", f"--size={SIZE // 16}"} <= set(arguments(job))
    assert f"--size={SIZE}" in arguments(replace(job, duration_s=1.0))


def test_what_fio_can_not_do_is_refused():
    for change, said in [
        ({"depth": 2}, "libaio"),
        ({"streams": 3}, "another file_size"),
        ({"pattern": "randread", "depth": 3}, "duration"),
    ]:
        with pytest.raises(BenchError, match=f"(?s){said}"):
            arguments(replace(FileJob("data", SIZE, BLOCK, "read"), **change))


def test_without_fio_the_way_to_get_it_is_named(job, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchError, match=r"(?s)needs the program fio.*apt install fio"):
        Fio().transfer(job)


@pytest.mark.parametrize(
    "script", ["echo 'fio: bad option' >&2; exit 1", 'for a; do case $a in --output=*) echo "{" > ${a#*=};; esac; done']
)
def test_an_answer_that_is_none_is_told_in_its_words(job, tmp_path, monkeypatch, script):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "fio"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(BenchError, match="without a result"):
        Fio().transfer(job)
