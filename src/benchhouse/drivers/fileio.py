"""Driver `fileio`: moves blocks of a file with blocking calls, from several threads and processes.

With preadv and pwrite, an operation in flight is a thread that waits in the kernel. Python runs only one thread of a
process between two calls, so workers are spread over processes, which start at the same time.
"""

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from resource import RUSAGE_SELF, getrusage
from time import monotonic_ns
from typing import Any, ClassVar, NamedTuple

from benchhouse.drivers.fileio_content import BlockContent, content_of, drop_cache
from benchhouse.drivers.fileio_loop import BlockWorker, OffsetOrder, shuffle
from benchhouse.load.protocols.files import KINDS, FileJob, MovedBytes
from benchhouse.load.scheduling_delays import TICK_NS, DelayMeter, make_room
from benchhouse.load.streams import WAKING_NS, SharedWaits, ValueStream
from benchhouse.schema.errors import BenchError

MOST_BLOCKS = 1 << 26  # of a random pattern, whose order takes 8 bytes per block
_EDGE_NS = 20_000_000  # from the moment when all are ready to the start
_SECTOR = 512


class _ProcessTotals(NamedTuple):
    """The work of one process's workers, with its start and end."""

    moved: MovedBytes
    started_ns: int
    ended_ns: int


class FileIO:
    """The default engine of `storage.file`, and the life cycle of the file for every engine."""

    known_content: ClassVar[bool] = True

    def fill(self, job: FileJob) -> None:
        _content(job).fill(job.path, job.size)

    def drop_cache(self, job: FileJob) -> None:
        drop_cache(job.path)

    def misfits(self, job: FileJob, offsets: Sequence[int]) -> list[int]:
        return _content(job).misfits(job.path, offsets, job.generation)

    def transfer(self, job: FileJob) -> MovedBytes:
        """Move every block once, or repeatedly until `duration_s` has passed. Raise OSError if the file cannot be
        opened.

        An existing file keeps its content, except for the written blocks.
        """
        if job.random and job.blocks > MOST_BLOCKS:
            raise BenchError(
                f"a random order of {job.blocks} blocks does not fit (at most {MOST_BLOCKS})",
                "take larger blocks or a smaller file, or engine: fio",
            )
        content, shuffled = _content(job), shuffle(job)
        access = os.O_RDONLY if not job.writes else os.O_RDWR if job.reads else os.O_WRONLY
        flags = access | (os.O_CREAT if job.writes else 0) | (os.O_DIRECT if job.direct else 0)
        parent = os.getppid() if job.processes == 1 else os.getpid()  # parent of the workers' processes
        with ExitStack() as stack:
            descriptors = []
            for _ in range(job.streams):  # opened before the fork: all workers of a stream share one
                descriptors.append(os.open(job.path, flags, 0o600))
                stack.callback(os.close, descriptors[-1])

            def crew(process: int) -> list[BlockWorker]:
                return [
                    BlockWorker(
                        job,
                        content,
                        descriptors[number // job.depth],
                        OffsetOrder(job, number, shuffled),
                        number,
                        parent,
                    )
                    for number in range(process, job.workers, job.processes)
                ]

            gc.collect()  # here, once: each process that did it would first copy all memory, and start late
            gc.disable()  # a collection during the run would pause every thread
            stack.callback(gc.enable)
            if job.processes == 1:
                parts = [_work(crew(0), monotonic_ns() + _EDGE_NS)]
            else:
                parts = _in_processes(job.processes, crew)
        return _total(parts, job.block)


def _content(job: FileJob) -> BlockContent:
    return content_of(job.block, job.seed, job.source, job.size)


def _work(workers: list[BlockWorker], start_ns: int) -> _ProcessTotals:
    """Run the workers in threads of this process, while another thread measures delays."""
    watch, waits, over = DelayMeter(), (ValueStream(), ValueStream()), threading.Event()
    watch.looked_ns = start_ns
    watcher = threading.Thread(target=_keep_watch, args=(watch, waits, over, len(workers) == 1), daemon=True)
    make_room(len(workers) + 1)
    for worker in workers:
        worker.watch, worker.fellows = watch, len(workers)
    crew = [threading.Thread(target=worker.run, args=(start_ns,), daemon=True) for worker in workers[1:]]
    for thread in crew:
        thread.start()
    watcher.start()
    workers[0].run(start_ns)
    for thread in crew:
        thread.join()
    over.set()
    watcher.join()
    before, after = workers[0].before, getrusage(RUSAGE_SELF)
    moved = MovedBytes(waits=waits, fetched_bytes=(after.ru_inblock - before.ru_inblock) * _SECTOR)
    moved.user_s = after.ru_utime - before.ru_utime
    moved.cpu_s = moved.user_s + after.ru_stime - before.ru_stime
    for worker in workers:
        worker.count()
        _add(moved, worker)
        moved.written += worker.written
        moved.worked_s += (worker.ended_ns - worker.started_ns) / 1e9
        moved.no_core_s += worker.no_core_ns / 1e9
        moved.late_s += worker.late_ns / 1e9
    started, ended = min(worker.started_ns for worker in workers), max(worker.ended_ns for worker in workers)
    moved.busiest = moved.operations / max((ended - started) / 1e9, 1e-9)
    return _ProcessTotals(moved, started, ended)


def _keep_watch(watch: DelayMeter, waits: tuple[ValueStream, ValueStream], over: threading.Event, alone: bool) -> None:
    """Sample how late a thread of this process runs.

    A timer wakes a thread late even if nothing blocks it. That part is subtracted, because it does not affect
    operations.
    """
    watch.begin()
    try:
        due_ns = monotonic_ns() + TICK_NS
        while not over.is_set():
            rung_ns = watch.hear(due_ns)
            now, late_ns = watch.woke(due_ns, rung_ns, alone=alone)
            if late_ns is not None:
                waits[bool(rung_ns)].add(late_ns if rung_ns else max(late_ns - WAKING_NS, 0))
            due_ns = due_ns if rung_ns else now + TICK_NS
    finally:
        watch.end()


def _in_processes(count: int, crew: Callable[[int], list[BlockWorker]]) -> list[_ProcessTotals]:
    """Fork, wait until all are ready, give them one start time, and return what they moved."""
    forking = multiprocessing.get_context("fork")
    children, pipes = [], []
    try:
        for number in range(count):
            ours, theirs = forking.Pipe()
            pipes.append(ours)
            child = forking.Process(target=_live, args=(theirs, list(pipes), crew, number), daemon=True)
            child.start()
            theirs.close()  # so that its end is noticed
            children.append(child)
        for pipe in pipes:
            _take(pipe)
        start_ns = monotonic_ns() + _EDGE_NS
        for pipe in pipes:
            pipe.send(start_ns)
        return [_take(pipe) for pipe in pipes]
    finally:
        for child in children:
            child.kill()
            child.join()
        for pipe in pipes:
            pipe.close()


def _take(pipe: "Connection[Any, Any]") -> Any:
    try:
        return pipe.recv()
    except EOFError:
        raise BenchError("a load process was killed", "is there enough memory?") from None


def _live(
    pipe: "Connection[Any, Any]",
    others: "list[Connection[Any, Any]]",
    crew: Callable[[int], list[BlockWorker]],
    number: int,
) -> None:
    for other in others:
        other.close()  # inherited ends of the parent, which would hide its death
    workers = crew(number)
    pipe.send("ready")
    pipe.send(_work(workers, pipe.recv()))


def _total(parts: list[_ProcessTotals], block: int) -> MovedBytes:
    total = MovedBytes(fetched_bytes=sum(part.moved.fetched_bytes or 0 for part in parts))
    for part in parts:
        moved = part.moved
        _add(total, moved)
        for name in ("cpu_s", "user_s", "worked_s", "no_core_s", "late_s"):
            setattr(total, name, getattr(total, name) + getattr(moved, name))
        for waits, others in zip(total.waits, moved.waits, strict=True):
            waits.merge(others)
        total.busiest = max(total.busiest, moved.busiest)
        total.written += moved.written
    total.seconds = (max(part.ended_ns for part in parts) - min(part.started_ns for part in parts)) / 1e9
    total.read_bytes, total.written_bytes = total.reads.n * block, total.writes.n * block
    return total


def _add(total: MovedBytes, share: BlockWorker | MovedBytes) -> None:
    """Add a worker's or a process's counts, which have the same names, to `total`."""
    for name in KINDS:
        getattr(total, name).merge(getattr(share, name))
        total.delays.setdefault(name, SharedWaits()).merge(share.delays[name])
    total.errors += share.errors
    total.first_errors = [*total.first_errors, *share.first_errors][:10]
    total.fatal = total.fatal or share.fatal
    total.checked += share.checked
    total.corrupt += share.corrupt
