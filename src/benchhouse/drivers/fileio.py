"""Driver `fileio`: reads and writes blocks of one file, from several threads, past the page cache where asked."""

import errno
import itertools
import mmap
import os
import random
import struct
import threading
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Literal

Pattern = Literal["read", "write", "randread", "randwrite"]
Fsync = Literal["never", "end", "each"]
_PAGE = mmap.PAGESIZE
_STAMP = struct.Struct("<Q")


@dataclass
class Transfer:
    """What one or more threads moved; latencies in the order of each thread's operations."""

    bytes: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    latencies_ns: "array[int]" = field(default_factory=lambda: array("q"))
    errors: list[OSError] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        return (self.ended_ns - self.started_ns) / 1e9


class FileIO:
    """One file of `size` bytes in blocks of `block`; the last block may be shorter. `close` removes the file.

    Every block holds the same pseudo-random bytes, a function of the seed, and begins with its own number.
    """

    def __init__(self, path: Path, size: int, block: int, *, seed: int, direct: bool = False) -> None:
        self.path, self.size, self.block, self.seed, self.direct = path, size, block, seed, direct
        self.blocks = -(-size // block)
        self._bytes = random.Random(seed).randbytes(block)
        if direct:
            self._check_direct()

    def fill(self) -> None:
        """Write the whole file with its pseudo-random content and make it durable."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for index in range(self.blocks):
                _write_all(descriptor, memoryview(self.content(index)), index * self.block)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def content(self, index: int) -> bytes:
        """The bytes of block `index`."""
        return (_STAMP.pack(index) + self._bytes[_STAMP.size :])[: self.length(index)]

    def length(self, index: int) -> int:
        return min(self.block, self.size - index * self.block)

    def drop_cache(self) -> None:
        """Ask the kernel to forget this file's pages, so that reads reach the device."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def transfer(
        self, pattern: Pattern, *, threads: int = 1, fsync: Fsync = "end", duration_s: float | None = None
    ) -> Transfer:
        """Move every block once, or go round until `duration_s` has passed. Threads share the blocks evenly.

        The wall time runs from the first thread's first operation to the last thread's end, final fsync included.
        """
        flags = (os.O_WRONLY | os.O_CREAT) if pattern.endswith("write") else os.O_RDONLY
        parts = [Transfer() for _ in range(threads)]
        gate = threading.Barrier(threads)
        with ExitStack() as stack:
            crew = []
            for number, part in enumerate(parts):
                descriptor = os.open(self.path, flags | (os.O_DIRECT if self.direct else 0), 0o600)
                stack.callback(os.close, descriptor)
                order = self._order(number, threads, pattern.startswith("rand"), duration_s is not None)
                arguments = (descriptor, order, pattern.endswith("write"), fsync, duration_s, gate, part)
                crew.append(threading.Thread(target=self._work, args=arguments, daemon=True))
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
        total = Transfer(
            started_ns=min(part.started_ns for part in parts), ended_ns=max(part.ended_ns for part in parts)
        )
        for part in parts:
            total.bytes += part.bytes
            total.latencies_ns += part.latencies_ns
            total.errors += part.errors
        return total

    def close(self) -> None:
        self.path.unlink(missing_ok=True)

    def _check_direct(self) -> None:
        """Raises OSError EINVAL where the filesystem refuses O_DIRECT."""
        if self.size % _PAGE or self.block % _PAGE:
            raise ValueError(f"direct I/O needs sizes that are multiples of {_PAGE} bytes")
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
        except OSError:
            self.close()
            raise

    def _work(
        self,
        descriptor: int,
        order: Iterator[int],
        writes: bool,
        fsync: Fsync,
        duration_s: float | None,
        gate: threading.Barrier,
        part: Transfer,
    ) -> None:
        buffer = mmap.mmap(-1, self.block)  # page-aligned, as direct I/O demands
        buffer.write(self._bytes)
        gate.wait()
        part.started_ns = perf_counter_ns()
        deadline = part.started_ns + int(duration_s * 1e9) if duration_s is not None else None
        try:
            for index in order:
                if deadline is not None and perf_counter_ns() >= deadline:
                    break
                self._move(descriptor, buffer, index, writes, fsync == "each", part)
            if writes and fsync == "end":
                os.fsync(descriptor)
        except OSError as error:
            part.errors.append(error)
        finally:
            part.ended_ns = perf_counter_ns()

    def _move(self, descriptor: int, buffer: mmap.mmap, index: int, writes: bool, sync: bool, part: Transfer) -> None:
        """One operation; what fails goes to `part.errors`, except a full disk, which ends the thread."""
        length, offset = self.length(index), index * self.block
        if writes:
            _STAMP.pack_into(buffer, 0, index)
        block = memoryview(buffer)[:length]
        started = perf_counter_ns()
        try:
            if writes:
                moved = os.pwrite(descriptor, block, offset)
                if moved != length:
                    moved += _write_all(descriptor, block[moved:], offset + moved)
                if sync:
                    os.fdatasync(descriptor)
            else:
                moved = os.preadv(descriptor, [block], offset)
                if moved != length:
                    raise OSError(errno.EIO, f"block {index} has {moved} of {length} bytes")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            part.errors.append(error)
            return
        part.latencies_ns.append(perf_counter_ns() - started)
        part.bytes += moved

    def _order(self, number: int, threads: int, shuffled: bool, endless: bool) -> Iterator[int]:
        """This thread's blocks: a run of neighbours, or for random patterns a shuffled share of the whole file."""
        blocks = list(range(self.blocks))
        if shuffled:
            random.Random(f"{self.seed}:order").shuffle(blocks)
        share = blocks[self.blocks * number // threads : self.blocks * (number + 1) // threads]
        return itertools.cycle(share) if endless else iter(share)


def _write_all(descriptor: int, block: memoryview, offset: int) -> int:
    written = 0
    while written < len(block):
        written += os.pwrite(descriptor, block[written:], offset + written)
    return written
