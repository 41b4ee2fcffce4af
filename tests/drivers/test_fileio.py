import os
from collections import Counter

import pytest

from benchhouse.drivers.fileio import FileIO

SIZE, BLOCK = 10 * 8192 + 4096, 8192  # the last block is half as long


class VerifyingFileIO(FileIO):
    """Checks the content of every block that was read."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: Counter[int] = Counter()

    def _move(self, descriptor, buffer, index, writes, sync, part) -> None:
        if not writes:
            buffer[:] = bytes(len(buffer))
        super()._move(descriptor, buffer, index, writes, sync, part)
        assert buffer[: self.length(index)] == self.content(index)
        self.seen[index] += 1


@pytest.fixture(params=[False, True], ids=["cached", "direct"])
def file(request, tmp_path):
    try:
        file = VerifyingFileIO(tmp_path / "data", SIZE, BLOCK, seed=7, direct=request.param)
    except OSError:
        pytest.skip("this filesystem refuses O_DIRECT")
    yield file
    file.close()
    assert not os.listdir(tmp_path)


def whole(file: FileIO) -> bytes:
    return b"".join(file.content(index) for index in range(file.blocks))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("pattern", ["read", "randread"])
def test_every_block_is_read_once_with_its_content(file, pattern, threads):
    file.fill()
    file.drop_cache()
    moved = file.transfer(pattern, threads=threads)
    assert moved.bytes == SIZE and not moved.errors
    assert file.seen == dict.fromkeys(range(11), 1)


@pytest.mark.parametrize("fsync", ["never", "end", "each"])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("pattern", ["write", "randwrite"])
def test_every_block_is_written_once_with_its_content(file, pattern, threads, fsync):
    moved = file.transfer(pattern, threads=threads, fsync=fsync)
    assert moved.bytes == SIZE and len(moved.latencies_ns) == 11
    assert file.path.read_bytes() == whole(file)


def test_content_follows_the_seed(tmp_path):
    one, same, other = (FileIO(tmp_path / "data", SIZE, BLOCK, seed=seed) for seed in (1, 1, 2))
    assert whole(one) == whole(same) != whole(other)
    assert one.content(0) != one.content(1)


def test_random_order_differs_from_sequential_and_repeats_with_the_seed(tmp_path):
    file = FileIO(tmp_path / "data", SIZE, BLOCK, seed=3)
    assert list(file._order(0, 1, False, False)) == list(range(11))
    shuffled = list(file._order(0, 1, True, False))
    assert shuffled != list(range(11)) and sorted(shuffled) == list(range(11))
    assert shuffled == list(FileIO(tmp_path / "data", SIZE, BLOCK, seed=3)._order(0, 1, True, False))


def test_a_file_that_shrank_is_an_error_not_a_success(tmp_path):
    file = FileIO(tmp_path / "data", SIZE, BLOCK, seed=0)
    file.fill()
    os.truncate(file.path, SIZE // 2)
    moved = file.transfer("read")
    assert moved.errors and moved.bytes <= SIZE // 2
