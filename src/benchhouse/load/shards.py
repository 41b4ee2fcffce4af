"""Shards: load processes that start at the same time and return records that merge exactly; one may die."""

import mmap
import os
import pickle
import signal
import struct
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from benchhouse.load.load_record import LoadRecord, Lost
from benchhouse.schema.errors import BenchError

EDGE_NS = 20_000_000  # from the moment that all are ready to the start
_BEAT = struct.Struct("<5q")
Share = Callable[[int, Callable[[], int]], LoadRecord]


class NotReached(BenchError):  # noqa: N818 - what happened, in one word
    """No connection could be opened."""


class AllLost(BenchError):  # noqa: N818 - what happened, in two words
    """No load process survived to return its record."""


class Pulse:
    """The last heartbeat of each load process, in memory that outlives it. A heartbeat takes a microsecond."""

    def __init__(self, shards: int) -> None:
        self._memory = mmap.mmap(-1, _BEAT.size * shards)

    def of(self, shard: int) -> Callable[[LoadRecord, int, int], None]:
        memory, at, pack = self._memory, _BEAT.size * shard, _BEAT.pack_into

        def beat(book: LoadRecord, now_ns: int, in_flight: int) -> None:
            measured = book.start_ns <= now_ns < book.end_ns
            pack(memory, at, now_ns, book.succeeded, book.failed, in_flight, measured)

        return beat

    def last(self, shard: int, how: str, edge_ns: int) -> Lost:
        """Return what is known about a load process that died."""
        at_ns, *counts = _BEAT.unpack_from(self._memory, _BEAT.size * shard)
        at_s = round((at_ns - edge_ns) / 1e9, 3) if at_ns else None
        beat = dict(zip(("answered", "failed", "in_flight", "measured"), counts, strict=True))
        return Lost(shard=shard, how=how, at_s=at_s, **beat)


def in_processes(count: int, share: Share, pulse: Pulse) -> LoadRecord:
    """Fork the load processes, let them prepare, give them one start time, and merge their records. One that dies is
    lost; one that can't start ends the load before the start."""
    children = [Child(number, share) for number in range(count)]
    try:
        if problems := [problem for child in children if (problem := child.wait_ready())]:
            raise NotReached(problems[0])
        edge_ns = monotonic_ns() + EDGE_NS
        for child in children:
            child.start(edge_ns)
        ends = [child.book() for child in children]
        return joined([pulse.last(at, end, edge_ns) if isinstance(end, str) else end for at, end in enumerate(ends)])
    finally:
        for child in children:
            child.end()


def joined(results: Sequence[LoadRecord | Lost]) -> LoadRecord:
    """Merge the records of all load processes into one, which lists those that died."""
    lost = [result for result in results if isinstance(result, Lost)]
    alive = [result for result in results if isinstance(result, LoadRecord)]
    if not alive:
        raise AllLost(f"every load process died: {'; '.join(map(str, lost))}")
    whole, *others = alive
    for book in others:
        whole.merge(book)
    for process in lost:
        whole.lose(process)
    return whole


class Child:
    """The parent's handle of one load process: pipes for `ready`, the start time, and the record."""

    def __init__(self, number: int, share: Share) -> None:
        upward, upward_end = os.pipe()
        downward_end, downward = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(upward)
                os.close(downward)
                with os.fdopen(upward_end, "wb") as up, os.fdopen(downward_end, "rb") as down:
                    code = _live(number, share, up, down)
            finally:
                os._exit(code)  # in a fork, the parent's atexit functions and frames must not run
        os.close(upward_end)
        os.close(downward_end)
        self._up, self._down = os.fdopen(upward, "rb"), os.fdopen(downward, "wb")

    def wait_ready(self) -> str:
        """Return why it can't start; empty if it is ready, or dead, which `book` reports."""
        line = self._up.readline().decode().strip()
        return "" if line == "ready" else line

    def start(self, edge_ns: int) -> None:
        with suppress(BrokenPipeError):
            self._down.write(b"%d\n" % edge_ns)
            self._down.flush()

    def book(self) -> LoadRecord | str:
        """Return its record, or the reason why there is none."""
        try:
            book = pickle.load(self._up)  # noqa: S301 - from our own child
        except (EOFError, pickle.UnpicklingError):
            _, status = os.waitpid(self._pid, 0)
            self._pid = 0
            how = os.waitstatus_to_exitcode(status)
            return f"ended by {f'signal {-how}' if how < 0 else f'code {how}'}"
        assert isinstance(book, LoadRecord | str)
        return f"failed ({book})" if isinstance(book, str) else book

    def end(self) -> None:
        self._up.close()
        with suppress(BrokenPipeError):
            self._down.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _live(number: int, share: Share, up: Any, down: Any) -> int:
    begun = False

    def wait_for_edge() -> int:
        nonlocal begun
        up.write(b"ready\n")
        up.flush()
        line = down.readline()
        begun = True
        if not line:  # the parent is gone or has given up
            os._exit(1)  # from within the experiment's code, which must not see its parent's end as an error
        return int(line)

    try:
        book: LoadRecord | str = share(number, wait_for_edge)
    except BenchError as error:
        book = error.message
    except Exception as problem:  # noqa: BLE001 - told to the parent, and to the log
        traceback.print_exc()
        book = f"{type(problem).__name__}: {problem}"
    if isinstance(book, str) and not begun:
        up.write(f"{book}\n".encode())
        return 1
    pickle.dump(book, up)
    return 0
