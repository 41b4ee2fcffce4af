"""Runs a load: in this process, or in several that start on one clock edge and hand back books that merge exactly."""

import gc
import math
import os
import pickle
import resource
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchhouse.experiments.load.book import Book, Clock, Tally
from benchhouse.experiments.load.endpoint import Endpoint
from benchhouse.experiments.load.records import Spool, write_parquet
from benchhouse.experiments.load.shape import MAX_IN_FLIGHT, Shape
from benchhouse.experiments.load.sockets import SocketLoad
from benchhouse.experiments.load.source import Source
from benchhouse.experiments.load.threads import ThreadLoad
from benchhouse.schema.errors import BenchError

_EDGE_NS = 20_000_000  # from the moment that all are ready to the start
_SPARE_FILES = 64


class NotReached(BenchError):  # noqa: N818 - what happened, in one word
    """Not a single connection could be made."""


def run_load(
    driver: Callable[[], Any],
    source: Source,
    shape: Shape,
    tally: Callable[[], Tally],
    *,
    verify_tls: bool = True,
    records: Path | None = None,
) -> Book:
    """Offer the load that `shape` says to the driver, and return the book of it.

    `driver()` makes a driver: an HTTP driver is made once, a call driver in each thread. `records` is where one row a
    request is written as Parquet, if the shape asks for it.
    """
    first = driver()
    if first.transport == "http":
        shape = _allow_files(shape)
    most = _open_loop_guess(shape) if shape.open_loop else shape.most_in_flight
    endpoint: Endpoint | None = Endpoint(first.url, verify=verify_tls) if first.transport == "http" else None

    def share(shard: int, wait_for_edge: Callable[[], int]) -> Book:
        book = Book(tally(), len(shape.objectives.clauses) if shape.objectives else 0)
        if shape.records and records:
            book.spool = Spool(records.with_suffix(f".{shard}.spool"))
        mine = most // shape.processes + (shard < most % shape.processes)
        book.drains = 0 if shape.open_loop or shape.requests is None else max(mine, 1)
        load = SocketLoad(first, source, shape, book, endpoint) if endpoint else ThreadLoad(driver, source, shape, book)
        if problem := load.prepare(max(mine, 1)):
            raise NotReached(problem)
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection in mid-run is a pause in every open stream
        try:
            load.run(Clock(shape, wait_for_edge(), shard))
        finally:
            gc.enable()
            gc.unfreeze()
        book.flush()
        book.close()
        book.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if book.spool:
            book.spool.close()
            book.spool = None
        return book

    if shape.processes == 1:
        whole = share(0, lambda: monotonic_ns() + _EDGE_NS)
    else:
        whole = _in_processes(shape.processes, share)
    if shape.records and records:
        write_parquet(sorted(records.parent.glob(f"{records.stem}.*.spool")), records)
    return whole


def _open_loop_guess(shape: Shape) -> int:
    """Connections that an open loop begins with; it opens more when they are needed."""
    return min(shape.max_in_flight, max(16, int(2 * math.sqrt(shape.rps or 0))))


def _allow_files(shape: Shape) -> Shape:
    """Raise this process's limit of open files to what the load needs, or refuse the load.

    Only the most in flight that an open loop has by default is lowered instead: it is a bound, hardly ever reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = math.ceil(shape.most_in_flight / shape.processes) + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        if not shape.open_loop or shape.max_in_flight != MAX_IN_FLIGHT or hard < 2 * _SPARE_FILES:
            raise BenchError(
                f"{shape.most_in_flight} requests in flight need {needed} open files in each load process, "
                f"and one may have {hard}",
                "raise the limit (ulimit -n), ask for fewer in flight, or use more processes",
            )
        needed = hard
        shape = shape.model_copy(update={"max_in_flight": (hard - _SPARE_FILES) * shape.processes})
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return shape


def _in_processes(count: int, share: Callable[[int, Callable[[], int]], Book]) -> Book:
    """Fork the load processes, let them prepare, give them one start time, and merge their books."""
    children = [_Child(number, share) for number in range(count)]
    try:
        problems = [problem for child in children if (problem := child.wait_ready())]
        if problems:
            raise NotReached(problems[0])
        edge = monotonic_ns() + _EDGE_NS
        for child in children:
            child.start(edge)
        whole: Book | None = None
        lost: list[str] = []
        for child in children:
            book = child.book()
            if isinstance(book, str):
                lost.append(book)
            elif whole is None:
                whole = book
            else:
                whole.merge(book)
        if whole is None:
            raise BenchError(f"every load process died: {'; '.join(lost)}")
        whole.lost = lost
        return whole
    finally:
        for child in children:
            child.end()


class _Child:
    """One load process, as its parent sees it: pipes for `ready`, the start time and the book."""

    def __init__(self, number: int, share: Callable[[int, Callable[[], int]], Book]) -> None:
        self._number = number
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
                os._exit(code)
        os.close(upward_end)
        os.close(downward_end)
        self._up, self._down = os.fdopen(upward, "rb"), os.fdopen(downward, "wb")

    def wait_ready(self) -> str:
        said = self._up.readline().decode().strip()
        return "" if said == "ready" else said or f"load process {self._number} died before the start"

    def start(self, edge_ns: int) -> None:
        with suppress(BrokenPipeError):
            self._down.write(b"%d\n" % edge_ns)
            self._down.flush()

    def book(self) -> Book | str:
        try:
            book = pickle.load(self._up)  # noqa: S301 - from our own child
        except (EOFError, pickle.UnpicklingError):
            _, status = os.waitpid(self._pid, 0)
            self._pid = 0
            how = os.waitstatus_to_exitcode(status)
            return f"load process {self._number} ended by {f'signal {-how}' if how < 0 else f'code {how}'}"
        assert isinstance(book, Book | str)
        return f"load process {self._number} failed: {book}" if isinstance(book, str) else book

    def end(self) -> None:
        self._up.close()
        with suppress(BrokenPipeError):
            self._down.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _live(number: int, share: Callable[[int, Callable[[], int]], Book], up: Any, down: Any) -> int:
    begun = False

    def wait_for_edge() -> int:
        nonlocal begun
        up.write(b"ready\n")
        up.flush()
        line = down.readline()
        begun = True
        if not line:  # the parent is gone or has given up
            os._exit(1)
        return int(line)

    try:
        book: Book | str = share(number, wait_for_edge)
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
