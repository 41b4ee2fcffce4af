"""The content of a file under test: pseudo-random blocks that record their offset and the pass that wrote them."""

import mmap
import os
import random
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from zlib import crc32

_STAMP = struct.Struct("<QQ")  # offset in the file, generation
_LATEST = 1  # generation
_PIECE = 1 << 20


class BlockContent:
    """Blocks of one size: a stamp, then the same pseudo-random bytes in all blocks, determined by the seed."""

    def __init__(self, block: int, seed: int) -> None:
        self.block = block
        self._rest = random.Random(seed).randbytes(block - _STAMP.size)

    def of(self, offset: int, generation: int = 0) -> bytes:
        """Return the block at `offset`."""
        return _STAMP.pack(offset, generation) + self._rest

    def buffer(self, generation: int) -> mmap.mmap:
        """Return a page-aligned block of that generation, as direct I/O requires. The caller stamps its offset."""
        made = mmap.mmap(-1, self.block)
        made.write(self.of(0, generation))
        return made

    def fits(self, content: "bytes | mmap.mmap", offset: int, least: int = 0) -> bool:
        """Return whether a block that was read is the one at `offset`, of generation `least` or later."""
        here, generation = _STAMP.unpack_from(content)
        return here == offset and least <= generation <= _LATEST and content[_STAMP.size :] == self._rest

    def fill(self, path: Path, size: int) -> None:
        """Write the whole file and make it durable. After an OSError, the file may be partly written."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            several = max(_PIECE // self.block, 1)
            for start in range(0, size, several * self.block):
                end = min(start + several * self.block, size)
                _write_all(descriptor, b"".join([self.of(at) for at in range(start, end, self.block)]), start)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def misfits(self, path: Path, offsets: Sequence[int], generation: int) -> list[int]:
        """Return those of the offsets that do not hold a block of that generation, read without the cache."""
        drop_cache(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            read = {at: os.pread(descriptor, self.block, at) for at in offsets}
        finally:
            os.close(descriptor)
        return [at for at, data in read.items() if len(data) != self.block or not self.fits(data, at, generation)]


class GivenContent(BlockContent):
    """The bytes of a file, repeated as needed. They carry no stamp, so they are only read."""

    def __init__(self, block: int, source: Path, size: int) -> None:
        self.block = block
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._sums = array("I", (crc32(_round(data, at, block)) for at in range(0, size, block)))
        self._source = source

    def of(self, offset: int, generation: int = 0) -> bytes:
        with self._source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _round(data, offset, self.block)

    def fits(self, content: "bytes | mmap.mmap", offset: int, least: int = 0) -> bool:
        return crc32(content) == self._sums[offset // self.block]


def _round(data: mmap.mmap, offset: int, size: int) -> bytes:
    """Return `size` bytes of the endlessly repeated data, from `offset` on."""
    start = offset % len(data)
    found = data[start : start + size]
    if len(found) < size:
        whole, rest = divmod(size - len(found), len(data))
        found += data[:] * whole + data[:rest]
    return found


@lru_cache(maxsize=1)
def content_of(block: int, seed: int, source: Path | None, size: int) -> BlockContent:
    """Return the content of one trial's file; cached, because it may have to read a large file."""
    return GivenContent(block, source, size) if source else BlockContent(block, seed)


def drop_cache(path: Path) -> None:
    """Tell the kernel to drop a file's pages, so that reads reach the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view, written = memoryview(data), 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], offset + written)
