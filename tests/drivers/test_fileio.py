import errno
import os
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
from services.quiet_moment import in_a_quiet_moment
from services.small_disk import small_disk as small_disk

from benchhouse.drivers import fileio_loop
from benchhouse.drivers.fileio import MOST_BLOCKS, FileIO
from benchhouse.drivers.fileio_content import BlockContent
from benchhouse.drivers.fileio_loop import OffsetOrder, shuffle
from benchhouse.load.protocols.files import FileJob
from benchhouse.schema.errors import BenchError

BLOCK, BLOCKS = 4096, 300  # more than one piece of the loop
SIZE = BLOCK * BLOCKS
CREWS = [(1, 1, 1, False), (2, 3, 1, True), (1, 4, 2, True), (3, 1, 3, False)]  # streams, depth, processes, direct
ALL = ["read", "write", "rw", "randread", "randwrite", "randrw"]


@pytest.fixture
def job(tmp_path):
    job = FileJob(tmp_path / "data", SIZE, BLOCK, "read", seed=7)
    FileIO().fill(job)
    return job


def content(job: FileJob, generation: int) -> bytes:
    return b"".join(BlockContent(BLOCK, 7).of(at, generation) for at in range(0, SIZE, BLOCK))


def orders(job: FileJob) -> list[list[int]]:
    shuffled = shuffle(job)
    return [
        list(chain.from_iterable(OffsetOrder(job, number, shuffled).pieces(endless=False)))
        for number in range(job.workers)
    ]


@pytest.mark.parametrize("crew", CREWS, ids=str)
def test_every_block_is_moved_once_and_the_file_holds_what_was_written(job, crew):
    streams, depth, processes, direct = crew
    for pattern in ALL:
        FileIO().fill(job)
        one = replace(job, pattern=pattern, streams=streams, depth=depth, processes=processes, direct=direct)
        try:
            moved = FileIO().transfer(one)
        except OSError as error:
            assert direct and error.errno == errno.EINVAL
            pytest.skip("this filesystem refuses O_DIRECT")
        assert moved.operations == BLOCKS and moved.bytes == SIZE and not moved.errors, pattern
        assert not moved.corrupt and FileIO().misfits(one, moved.written) == [], pattern
        found = one.path.read_bytes()
        generations = Counter(found[at + 8] for at in range(0, SIZE, BLOCK))
        assert generations == Counter({0: moved.reads.n, 1: moved.writes.n}), pattern
        if pattern.endswith("write"):
            assert found == content(one, 1)
        if pattern.endswith("read"):
            assert found == content(one, 0) and moved.checked >= one.workers


def test_a_mixture_has_its_share_of_reads(job):
    job = replace(job, pattern="randrw", mix=0.8, size=4096 * BLOCK)
    FileIO().fill(job)
    moved = FileIO().transfer(job)
    assert moved.operations == 4096
    assert moved.reads.n / moved.operations == pytest.approx(0.8, abs=0.02)
    assert moved.read_bytes == moved.reads.n * BLOCK and moved.written_bytes == moved.writes.n * BLOCK


def test_workers_of_a_stream_take_its_blocks_in_turn(job):
    four = orders(replace(job, streams=2, depth=2))
    assert [[at // BLOCK for at in order[:3]] for order in four] == [
        [0, 2, 4],
        [1, 3, 5],
        [150, 152, 154],
        [151, 153, 155],
    ]
    assert sorted(chain.from_iterable(four)) == list(range(0, SIZE, BLOCK))


def test_a_random_order_covers_the_file_and_repeats_with_the_seed(job):
    job = replace(job, pattern="randread", depth=3)
    once = list(chain.from_iterable(orders(job)))
    assert sorted(once) == list(range(0, SIZE, BLOCK)) != once
    assert once == list(chain.from_iterable(orders(job)))
    assert once != list(chain.from_iterable(orders(replace(job, seed=8))))


def test_content_follows_the_seed_and_the_place():
    assert BlockContent(BLOCK, 1).of(0) == BlockContent(BLOCK, 1).of(0) != BlockContent(BLOCK, 2).of(0)
    assert BlockContent(BLOCK, 1).of(0) != BlockContent(BLOCK, 1).of(BLOCK)


def test_writes_are_made_durable_as_often_as_asked(job, monkeypatch):
    calls, real = Counter(), os.fdatasync
    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.fdatasync", lambda fd: (calls.update(n=1), real(fd))[1])
    for every, end, syncs in [(0, False, 0), (0, True, 1), (1, False, 300), (100, True, 4)]:
        calls.clear()
        moved = FileIO().transfer(replace(job, pattern="write", sync_every=every, sync_end=end))
        assert calls["n"] == moved.syncs.n == syncs


@pytest.mark.parametrize("processes", [1, 2])
def test_a_block_with_other_content_is_found(job, processes):
    with job.path.open("r+b") as file:
        file.seek(SIZE - BLOCK + 2000)
        file.write(b"planted")
    moved = FileIO().transfer(replace(job, depth=2, processes=processes))
    assert moved.corrupt == [SIZE - BLOCK]


def test_a_lost_write_is_found(job, monkeypatch):
    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.pwrite", lambda fd, data, at: len(data))
    job = replace(job, pattern="randwrite")
    moved = FileIO().transfer(job)
    assert moved.operations == BLOCKS
    assert FileIO().misfits(job, moved.written) == moved.written


def test_a_file_that_shrinks_is_counted_as_short_and_not_as_moved(job):
    os.truncate(job.path, SIZE // 2)
    moved = FileIO().transfer(job)
    assert moved.errors == {"short": 150} and moved.bytes == SIZE // 2 and not moved.corrupt
    assert "0 of 4096 bytes" in moved.first_errors[0]


def test_errors_are_counted_by_name_and_are_in_no_latency(job, monkeypatch):
    real, calls = os.preadv, iter(range(1000))

    def sometimes(descriptor, buffers, offset):
        if next(calls) % 4 == 0:
            raise OSError(errno.EIO, "planted")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr("benchhouse.drivers.fileio_loop.os.preadv", sometimes)
    moved = FileIO().transfer(job)
    assert moved.errors == {"EIO": 75} and moved.reads.n == 225 and len(moved.first_errors) == 10


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_ends_the_transfer(small_disk, processes):
    job = FileJob(small_disk / "data", 4 << 20, BLOCK, "write", depth=2, processes=processes)
    moved = FileIO().transfer(job)
    assert moved.fatal == errno.ENOSPC and moved.errors["ENOSPC"] >= 1
    assert 0 < moved.bytes <= 1 << 20


def test_a_limit_on_file_sizes_ends_the_transfer(job, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, before[1]))
    try:
        moved = FileIO().transfer(replace(job, path=tmp_path / "other", pattern="write"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert moved.fatal == errno.EFBIG and moved.bytes == SIZE // 2


def test_a_duration_goes_round_and_the_warm_up_is_not_counted(job):
    def measure():
        moved = FileIO().transfer(replace(job, duration_s=0.4, warmup_s=0.2))
        assert moved.reads.mean * moved.reads.n / 1e9 <= moved.seconds
        assert moved.operations > BLOCKS
        assert 0.1 <= moved.seconds < 0.6  # less where the warm-up got no core to end in time

    in_a_quiet_moment(measure)


def test_latencies_beyond_what_is_kept_are_counted_all_the_same(job, monkeypatch):
    monkeypatch.setattr(fileio_loop, "_MOST_KEPT", 0)
    monkeypatch.setattr(fileio_loop, "_COUNTED", 16)
    assert FileIO().transfer(replace(job, pattern="randrw", depth=2)).operations == BLOCKS


def test_what_was_fetched_tells_a_device_from_the_cache(job, tmp_path):
    if not os.path.exists(f"/sys/dev/block/{os.major(os.stat(tmp_path).st_dev)}:{os.minor(os.stat(tmp_path).st_dev)}"):
        pytest.skip("this folder is on no block device")
    FileIO().drop_cache(job)
    cold, warm = FileIO().transfer(job), FileIO().transfer(job)
    assert cold.fetched_bytes >= SIZE and warm.fetched_bytes == 0
    assert cold.bytes == warm.bytes == SIZE


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from benchhouse.drivers.fileio import FileIO; "
        "from benchhouse.load.protocols.files import FileJob\n"
        f"job = FileJob(Path({str(tmp_path / 'data')!r}), {SIZE}, {BLOCK}, 'read', depth=2, processes=2, duration_s=60)"
        "\nFileIO().fill(job); print('go', flush=True); FileIO().transfer(job)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout.readline() == "go\n"
        while len(children := _children(asked.pid)) < 2:
            pass
        asked.kill()
        assert asked.stdout.read() == ""  # the pipe is closed when the last of them has ended
    assert not [pid for pid in children if os.path.exists(f"/proc/{pid}/fd/1")]


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def test_an_order_that_does_not_fit_is_refused(tmp_path):
    job = FileJob(tmp_path / "data", (MOST_BLOCKS + 1) * 512, 512, "randread")
    with pytest.raises(BenchError, match=r"(?s)does not fit.*engine: fio"):
        FileIO().transfer(job)


def test_what_the_warm_up_fetched_does_not_count(job, tmp_path):
    if not FileIO().transfer(replace(job, direct=True)).fetched_bytes:
        pytest.skip("this folder is on no block device")
    FileIO().drop_cache(job)
    moved = FileIO().transfer(replace(job, size=16 * BLOCK, duration_s=0.3, warmup_s=0.5))
    assert moved.operations and moved.fetched_bytes == 0  # the warm-up has read all 16 blocks
