"""The tight loop of driver `fileio`: one worker that moves blocks one after another and keeps their latencies.

The clock is read once per operation: the end of one is the start of the next. Everything else happens between pieces of
`_PIECE` operations, or every few milliseconds when a worker checks how long it has waited for a core
(`load/scheduling_delays.py`). After that, the clock is read again.
"""

import errno
import os
import random
import struct
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from resource import RUSAGE_SELF, getrusage
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

from benchhouse.drivers.fileio_content import BlockContent
from benchhouse.load.protocols.files import KINDS, SHORT, FileJob
from benchhouse.load.scheduling_delays import LOOK_NS, TICK_NS, DelayMeter, RunDelay
from benchhouse.load.streams import FINEST_NS, SharedWaits
from benchhouse.schema.histogram import Histogram

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

_PIECE = 256
_COUNTED = 2048  # latencies that are counted at a time, before other threads may continue
_MOST_KEPT = 1 << 22  # latencies that all workers together keep before they are counted: 32 MiB
_MOST_GROUPS = 1024  # kept groups before their delays are settled
_MOST_WRITTEN = 256  # offsets that are kept for a check afterward
_KINDS = 8191  # length of the cycle of reads and writes: prime, so not in step with the blocks
_FIRST_ERRORS = 10
_UNTIL_LOOK_NS = 4 * LOOK_NS  # of one thread: operations take as little as 2 µs, and a check takes 3 µs
_LONGEST_UNTIL_LOOK_NS = 20 * LOOK_NS
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_FOREVER = 1 << 62
_OFFSET = struct.Struct("<Q")


class OffsetOrder:
    """The offsets of one worker: a contiguous range, or its share of the shuffled whole for random patterns."""

    def __init__(self, job: FileJob, number: int, shuffled: "NDArray[int64] | None") -> None:
        self._offsets: range | NDArray[int64]
        if shuffled is not None:
            self._offsets = shuffled[job.blocks * number // job.workers : job.blocks * (number + 1) // job.workers]
            return
        stream, turn = divmod(number, job.depth)  # the workers of a stream take its blocks in rotation
        first, end = (job.blocks * edge // job.streams for edge in (stream, stream + 1))
        self._offsets = range((first + turn) * job.block, end * job.block, job.depth * job.block)

    def pieces(self, *, endless: bool) -> "Iterator[Sequence[int]]":
        while len(self._offsets):
            for at in range(0, len(self._offsets), _PIECE):
                piece = self._offsets[at : at + _PIECE]
                yield piece if isinstance(piece, range) else piece.tolist()
            if not endless:
                return


def shuffle(job: FileJob) -> "NDArray[int64] | None":
    """Return all offsets in a random order that is determined by the seed; None for sequential patterns."""
    if not job.random:
        return None
    import numpy

    order = numpy.random.default_rng(job.seed).permutation(job.blocks).astype(numpy.int64, copy=False)
    order *= job.block
    return order


class BlockWorker:
    """A worker with one operation in flight. `run` moves its blocks once, or repeatedly until a deadline.

    It ends when its process is no longer a child of `parent`, which means that the caller was killed.
    """

    def __init__(
        self, job: FileJob, content: BlockContent, descriptor: int, order: OffsetOrder, number: int, parent: int
    ) -> None:
        self._job, self._content, self._descriptor, self._order = job, content, descriptor, order
        self._buffer = content.buffer(job.generation)
        self._write_buffer = content.buffer(job.generation) if job.reads and job.writes else self._buffer
        self._kinds = cycle(_kinds(job.mix, f"{job.seed}:{number}"))
        self._most = max(_MOST_KEPT // job.workers, _COUNTED)
        self._until_sync = job.sync_every or _FOREVER
        self._parent = parent
        self.before = getrusage(RUSAGE_SELF)  # of its whole process, when the measured time began
        self.watch = DelayMeter()  # of its process
        self.fellows = 1  # workers of its process, including itself
        self.started_ns = self.ended_ns = self._looked_ns = self._look_ns = 0
        self.forget()

    def forget(self) -> None:
        """Start to count; everything before was warm-up."""
        self.reads, self.writes, self.syncs = Histogram(), Histogram(), Histogram()
        self._times = {kind: array("q") for kind in KINDS}
        self.delays = {kind: SharedWaits() for kind in KINDS}
        self._seen = dict.fromkeys(KINDS, 0)  # kept times per kind at the last check
        self._groups: list[array[int]] = []  # operations between two checks: start, end, delay, counts
        self.no_core_ns = self.late_ns = 0
        self.errors: Counter[str] = Counter()
        self.first_errors: list[str] = []
        self.fatal = 0
        self.checked = 0
        self.corrupt: list[int] = []
        self.written: deque[int] = deque(maxlen=_MOST_WRITTEN)

    def run(self, start_ns: int) -> None:
        """Wait for the common start, warm up, and work."""
        job = self._job
        begin_ns = start_ns + round(job.warmup_s * 1e9)
        self._delay = RunDelay()
        pieces = self._order.pieces(endless=job.duration_s is not None)
        sleep(max(start_ns - monotonic_ns(), 0) / 1e9)
        if job.warmup_s:
            self._continue_block(pieces, begin_ns)
            if not self.fatal:
                self.forget()
        self.before = getrusage(RUSAGE_SELF)
        self._delay.look()
        self.started_ns = monotonic_ns()
        self._check_delay_sometimes(self.started_ns)
        if not self.fatal:
            self._continue_block(pieces, _FOREVER if job.duration_s is None else begin_ns + round(job.duration_s * 1e9))
        if job.sync_end and not self.fatal:
            try:
                self._sync(monotonic_ns())
            except OSError as error:
                self._ends(error, 0)
        self.ended_ns = monotonic_ns()
        self._look(self.ended_ns)
        self._delay.close()

    def _look(self, ended_ns: int) -> int:
        """Record how long this thread has waited for a core since the last check. Return the time after the check."""
        delay_ns = self._delay.look()
        if delay_ns > FINEST_NS or ended_ns - self._looked_ns > TICK_NS:  # otherwise it cannot contain a relevant delay
            counts = [len(times) - self._seen[kind] for kind, times in self._times.items()]
            self._groups.append(array("q", [self._looked_ns, ended_ns, delay_ns, *counts]))
        for kind, times in self._times.items():
            self._seen[kind] = len(times)
        if self.fellows > 1:
            self.watch.ring(ended_ns)
        self._check_delay_sometimes(ended_ns)
        return monotonic_ns()

    def _check_delay_sometimes(self, looked_ns: int) -> None:
        """Set the time of the next check: later with more threads, because each check passes on Python's lock."""
        self._looked_ns = looked_ns
        self._look_ns = looked_ns + min(_UNTIL_LOOK_NS * self.fellows, _LONGEST_UNTIL_LOOK_NS)

    def _doubt(self) -> None:
        """Settle the delays of this thread once it is known when the whole process was stopped."""
        self.watch.wait_until_known(self._looked_ns)
        for began_ns, ended_ns, delay_ns, *counts in self._groups:
            waited_ns = min(delay_ns + self.watch.pauses.within(began_ns, ended_ns), ended_ns - began_ns)
            self.no_core_ns += delay_ns
            self.late_ns += waited_ns if waited_ns > self._job.late_s * 1e9 else 0
            for kind, count in zip(KINDS, counts, strict=True):
                if count and waited_ns > FINEST_NS:
                    self.delays[kind].add(waited_ns, count)
        self._groups.clear()

    def count(self) -> None:
        """Put the kept latencies into the histograms, with a pause for other threads after each part."""
        self._doubt()
        self._seen = dict.fromkeys(KINDS, 0)
        for name, times in self._times.items():
            histogram: Histogram = getattr(self, name)
            for at in range(0, len(times), _COUNTED):
                histogram.extend(times[at : at + _COUNTED])
                sleep(0)
            del times[:]

    def _continue_block(self, pieces: Iterator[Sequence[int]], deadline_ns: int) -> None:
        move = self._mix if self._job.reads and self._job.writes else self._read if self._job.reads else self._write
        for offsets in pieces:
            going_on, read, written = move(offsets, deadline_ns)
            if read >= 0:
                self.checked += 1
                if not self._content.fits(self._buffer, read):
                    self.corrupt.append(read)
            if written >= 0:
                self.written.append(written)
            if not going_on or self.fatal or os.getppid() != self._parent:
                break
            if len(self._groups) > _MOST_GROUPS:
                self._doubt()
            if sum(map(len, self._times.values())) > self._most:
                self._look(monotonic_ns())
                self.count()

    # Each of these three moves a piece and returns whether to continue, and the last offsets read and written, or -1.

    def _read(self, offsets: Sequence[int], deadline_ns: int) -> tuple[bool, int, int]:
        descriptor, buffers, length = self._descriptor, [self._buffer], self._job.block
        clock, preadv, add = monotonic_ns, os.preadv, self._times["reads"].append
        todo, offset, stop_ns = iter(offsets), -1, min(deadline_ns, self._look_ns)
        while True:
            last = clock()
            try:
                for offset in todo:
                    if (moved := preadv(descriptor, buffers, offset)) != length:
                        raise _short(offset, moved, length)
                    now = clock()
                    add(now - last)
                    last = now
                    if now >= stop_ns:
                        if now >= deadline_ns:
                            return False, offset, -1
                        last, stop_ns = self._look(now), min(deadline_ns, self._look_ns)
            except OSError as error:
                offset = -1
                if self._ends(error, deadline_ns):
                    return False, -1, -1
            else:
                return True, offset, -1

    def _write(self, offsets: Sequence[int], deadline_ns: int) -> tuple[bool, int, int]:
        descriptor, buffer, length = self._descriptor, self._buffer, self._job.block
        clock, pwrite, add, stamp = monotonic_ns, os.pwrite, self._times["writes"].append, _OFFSET.pack_into
        todo, offset, stop_ns = iter(offsets), -1, min(deadline_ns, self._look_ns)
        while True:
            last = clock()
            try:
                for offset in todo:
                    stamp(buffer, 0, offset)
                    if (moved := pwrite(descriptor, buffer, offset)) != length:
                        raise _short(offset, moved, length)
                    now = clock()
                    add(now - last)
                    last = now
                    self._until_sync -= 1
                    if not self._until_sync:
                        last = self._sync(last)
                    if last >= stop_ns:
                        if last >= deadline_ns:
                            return False, -1, offset
                        last, stop_ns = self._look(last), min(deadline_ns, self._look_ns)
            except OSError as error:
                offset = -1
                if self._ends(error, deadline_ns):
                    return False, -1, -1
            else:
                return True, -1, offset

    def _mix(self, offsets: Sequence[int], deadline_ns: int) -> tuple[bool, int, int]:
        descriptor, buffers, buffer, length = self._descriptor, [self._buffer], self._write_buffer, self._job.block
        clock, read, wrote = monotonic_ns, self._times["reads"].append, self._times["writes"].append
        todo, last_read, last_written = zip(offsets, self._kinds, strict=False), -1, -1
        stop_ns = min(deadline_ns, self._look_ns)
        while True:
            last = clock()
            try:
                for offset, reads in todo:
                    if reads:
                        moved, last_read = os.preadv(descriptor, buffers, offset), offset
                    else:
                        _OFFSET.pack_into(buffer, 0, offset)
                        moved, last_written = os.pwrite(descriptor, buffer, offset), offset
                    if moved != length:
                        raise _short(offset, moved, length)
                    now = clock()
                    (read if reads else wrote)(now - last)
                    last = now
                    if not reads:
                        self._until_sync -= 1
                        if not self._until_sync:
                            last = self._sync(last)
                    if last >= stop_ns:
                        if last >= deadline_ns:
                            return False, last_read, last_written
                        last, stop_ns = self._look(last), min(deadline_ns, self._look_ns)
            except OSError as error:
                last_read = last_written = -1
                if self._ends(error, deadline_ns):
                    return False, -1, -1
            else:
                return True, last_read, last_written

    def _sync(self, last: int) -> int:
        """Make the writes durable and return the time afterward."""
        self._until_sync = self._job.sync_every or _FOREVER
        os.fdatasync(self._descriptor)
        now = monotonic_ns()
        self._times["syncs"].append(now - last)
        return now

    def _ends(self, error: OSError, deadline_ns: int) -> bool:
        """Count a failed operation and return whether it was the last one."""
        number = error.errno or 0
        self.errors[SHORT if isinstance(error, ShortMoveError) else errno.errorcode.get(number, str(number))] += 1
        if len(self.first_errors) < _FIRST_ERRORS:
            self.first_errors.append(str(error))
        if number in _FATAL:
            self.fatal = number
        return bool(self.fatal) or monotonic_ns() >= deadline_ns


class ShortMoveError(OSError):
    """The kernel moved less than requested: the file has ended, or its file system is nearly full."""


def _short(offset: int, moved: int, length: int) -> ShortMoveError:
    return ShortMoveError(f"{moved} of {length} bytes were moved at offset {offset}")


def _kinds(mix: float, seed: str) -> list[bool]:
    """Return reads (True) and writes of a mixture in random order, with a share of reads that is closest to `mix`."""
    reads = round(_KINDS * mix)
    kinds = [True] * reads + [False] * (_KINDS - reads)
    random.Random(seed).shuffle(kinds)
    return kinds
