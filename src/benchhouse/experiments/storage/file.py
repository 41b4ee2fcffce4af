"""Experiment `storage.file`: bandwidth, operations per second, and latency of a folder's filesystem."""

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from operator import sub
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from benchhouse.experiments.storage.device import MEMORY, Counters, Device, free_bytes, new_name, sweep
from benchhouse.experiments.storage.user_content import Given
from benchhouse.load.metrics import higher, lower
from benchhouse.load.protocols.files import FileEngine, FileJob, FileLife, MovedBytes, Pattern
from benchhouse.load.shape import ERROR_LIMIT_S, ERROR_SHARE, ErrorLimit, ErrorShare, Processes
from benchhouse.load.streams import FINEST_NS, SharedWaits, ValueStream, Waits
from benchhouse.load.trial import emit_bounded, emit_bounded_rate, warn_of_rates, with_hint
from benchhouse.processes.quotas import usable_cores
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds, show_bytes

CACHED_SHARE = 0.05  # of the bytes read: above it, they show the page cache more than the device
MOST_IOPS = 150_000  # of one process: above it, Python's own time is a large part of every operation
MOST_USER = 0.7  # of a core in Python itself, in one process
SHORTEST_SHARE_S = 0.1  # the share of a shorter time is that of starting threads
_SECONDS = "seconds from the first operation to the end of the last thread, final fsync included"
_ONE = "of one operation, without the fsync that may follow; of engine: fio, from its buckets"


def _rates(prefix: str, which: str) -> tuple[Metric, ...]:
    return (
        higher(f"{prefix}bandwidth", "MB/s", f"as bandwidth, {which} alone"),
        higher(f"{prefix}iops", "1/s", f"as iops, {which} alone"),
        lower(f"{prefix}latency", "ms", f"as latency, {which} alone"),
    )


METRICS = (
    higher("bandwidth", "MB/s", f"bytes moved / 10^6 / {_SECONDS}", "throughput", primary=True),
    higher("iops", "1/s", "operations that succeeded / the same seconds"),
    lower("latency", "ms", _ONE, "latency", primary=True),
    *_rates("read_", "rw and randrw: reads"),
    *_rates("write_", "rw and randrw: writes"),
    lower("sync_latency", "ms", "of one fdatasync"),
    lower("cached", "1", "share of the bytes read that the kernel did not fetch from a device for these processes"),
    lower("cpu_per_op", "us", "CPU time of the processes that move the bytes, kernel included / operations"),
    lower("errors", "1", "operations that failed or were cut short"),
    lower("error_rate", "1", "errors / (errors + operations that succeeded)", "error_rate"),
)


def _report(
    job: FileJob, moved: MovedBytes, device: Device, by_device: Counters | None, workload: "FileWorkload", ctx: Context
) -> None:
    """Emit every metric. `by_device` is what the device moved in the same time, for all processes."""
    failed = moved.errors.total()
    seconds = max(moved.seconds, 1e-9)
    _emit_times(job, moved, workload, ctx)
    rates = {"bandwidth": moved.bytes / 1e6, "iops": moved.operations}
    if job.reads and job.writes:
        rates |= {"read_bandwidth": moved.read_bytes / 1e6, "read_iops": moved.reads.n}
        rates |= {"write_bandwidth": moved.written_bytes / 1e6, "write_iops": moved.writes.n}
    late = moved.late_s / moved.worked_s if moved.worked_s else None
    for name, amount in rates.items():
        emit_bounded_rate(name, amount / seconds, late, workload.error_share, ctx)
    if late is not None:
        warn_of_rates(late, workload.error_share, "threads", "operations", ctx)
    ctx.emit("cpu_per_op", moved.cpu_s / moved.operations * 1e6)
    ctx.emit("errors", failed)
    ctx.emit("error_rate", failed / (failed + moved.operations))
    cached = None
    if moved.read_bytes and moved.fetched_bytes is not None:  # read-ahead may fetch more: that is not a cache hit
        cached = max(0.0, 1 - moved.fetched_bytes / moved.read_bytes)
        ctx.emit("cached", round(cached, 4))
    ctx.metadata(
        filesystem=device.filesystem,
        device=device.name,
        direct=job.direct,
        way="past the page cache (O_DIRECT)" if job.direct else "through the page cache",
        engine=f"{moved.version} {job.ioengine}" if moved.version else "fileio",
        in_flight=job.workers,
        processes=1 if moved.version else job.processes,
        bytes=moved.bytes,
        operations=moved.operations,
        seconds=moved.seconds,
        client_user_cores=moved.user_s / seconds,
        no_core_share=round(moved.no_core_s / moved.worked_s, 4) if moved.worked_s else None,
        device_bytes=by_device and by_device._asdict(),
    )
    for code, text, broken in _doubts(job, moved, device, by_device, cached):
        (ctx.invalid if broken else ctx.warn)(code, text)


def _emit_times(job: FileJob, moved: MovedBytes, workload: "FileWorkload", ctx: Context) -> None:
    kinds = {"latency": ("reads", "writes"), "sync_latency": ("syncs",)}
    if job.reads and job.writes:
        kinds |= {"read_latency": ("reads",), "write_latency": ("writes",)}
    samples = [stream.histogram for stream in moved.waits]
    times = {}
    for name, of_kinds in kinds.items():
        latencies, shared = Histogram(), SharedWaits()
        for kind in of_kinds:
            latencies.merge(getattr(moved, kind))
            if moved.delays:
                shared.merge(moved.delays[kind])
        waits = Waits(samples, shared=shared, fine_ns=FINEST_NS)
        times[name] = latencies, ValueStream(latencies).bounds_ns(waits) if moved.delays else {}
    emit_bounded(times, workload.error_limit, workload.error_share, ctx, threads=True)


Doubt = tuple[str, str, bool]  # code, text, and whether the numbers are invalid


def _doubts(
    job: FileJob, moved: MovedBytes, device: Device, by_device: Counters | None, cached: float | None
) -> Iterator[Doubt]:
    if moved.errors:
        kinds = ", ".join(f"{name} {count}" for name, count in moved.errors.most_common())
        yield "errors", f"{moved.errors.total()} operations failed and are in no rate or latency: {kinds}", False
    if device.filesystem in MEMORY:
        yield "memory_filesystem", f"this folder is {device.filesystem}: this measures memory, not storage", False
    else:
        yield from _cache_doubts(job, moved, by_device, cached)
    if not moved.version:  # otherwise fio moved the bytes
        yield from _client_doubts(job, moved)


def _cache_doubts(job: FileJob, moved: MovedBytes, by_device: Counters | None, cached: float | None) -> Iterator[Doubt]:
    if cached is not None and cached > CACHED_SHARE:
        text = f"{cached:.0%} of the bytes read came from memory, not from the device: it is slower than these numbers"
        if job.direct:
            yield "not_direct", f"{text}, although the filesystem took O_DIRECT", True
        else:
            yield "page_cache", f"{text}; direct: true goes past the page cache", False
    if moved.written_bytes and not job.direct:
        reached = ""
        if by_device:
            share = min(by_device.written / moved.written_bytes, 1.0)
            reached = f", and {share:.0%} of their bytes had reached the device at the end"
        yield "write_cache", f"writes ended in the page cache: their latency is that of memory{reached}", False


def _client_doubts(job: FileJob, moved: MovedBytes) -> Iterator[Doubt]:
    """Yield client limits: invalid if a device was to be measured; with the cache, numbers are the client's anyway."""
    user = moved.user_s / max(moved.seconds, 1e-9) / job.processes
    if moved.busiest > MOST_IOPS or (user > MOST_USER and moved.seconds >= SHORTEST_SHARE_S):
        busy = f"a process made {moved.busiest:,.0f} operations a second and spent {user:.0%} of a core in Python"
        cure = "engine: fio asks faster; processes help where cores are idle"
        yield "client_bound", f"{busy}: the storage may be faster than this ({cure})", job.direct


_PAGE = 4096
_SPARE = 16 << 20  # stays free for the filesystem's own records
_ALIKE = 64  # written blocks that are read back


class FileTarget(Model):
    """The folder whose storage is measured, and the engine that moves the bytes."""

    path: InputPath | None = Field(None, description="Folder under test; the trial's own working folder by default.")
    engine: Literal["fileio", "fio"] = Field("fileio", description="Our own loop, or the program fio.")
    ioengine: Literal["psync", "libaio", "io_uring"] = Field("psync", description="engine: fio: its ioengine.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _ioengine_is_of_fio(self) -> "FileTarget":
        if self.engine != "fio" and self.ioengine != "psync":
            raise ValueError(f"ioengine {self.ioengine} is of engine: fio")
        return self


class FileWorkload(Model):
    """The reads or writes, and their settings."""

    pattern: Pattern = Field(description="Sequential or random; rw and randrw mix reads and writes.")
    mix: float = Field(0.7, gt=0, lt=1, description="Share of reads in rw and randrw.")
    file_size: Bytes = Field(64 * 2**20, gt=0, description="Size of the file, a multiple of block_size.")
    content: Given | None = Field(None, description="A file whose bytes are read, instead of random ones.")
    block_size: Bytes = Field(2**20, ge=512, le=2**30, description="Size of one operation.")
    threads: int = Field(1, ge=1, le=256, description="Streams, each with its own descriptor and part of the file.")
    depth: int = Field(1, ge=1, le=1024, description="Operations in flight of each stream: threads that share it.")
    processes: Processes = Field("auto", description="Processes that these threads are spread over; auto: one a core.")
    direct: bool = Field(False, description="Past the page cache (O_DIRECT).")
    cache: Literal["drop", "keep"] = Field("drop", description="What is done with cached pages before measuring.")
    fsync: Literal["never", "end", "each"] | Annotated[int, Field(ge=1)] = Field(
        "end", description="When writes are made durable: never, at the end, after each, or after every n of a thread."
    )
    precondition: int = Field(0, ge=0, le=100, description="Passes that overwrite the whole file before measuring.")
    duration: Seconds | None = Field(None, gt=0, description="Go round for that long; one pass by default.")
    warmup: Seconds = Field(0.0, description="Load before the measured duration.")
    error_limit: ErrorLimit = ERROR_LIMIT_S
    error_share: ErrorShare = ERROR_SHARE

    @model_validator(mode="after")
    def _sizes_fit(self) -> "FileWorkload":
        workers = self.threads * self.depth
        if self.file_size % self.block_size:
            nearest = max(round(self.file_size / self.block_size), 1) * self.block_size
            raise ValueError(f"file_size must be a multiple of block_size, such as {nearest} bytes")
        if workers * self.block_size > self.file_size:
            raise ValueError(f"file_size must hold at least one block for each of {workers} operations in flight")
        if self.direct and (self.file_size % _PAGE or self.block_size % _PAGE):
            raise ValueError(f"direct needs file_size and block_size to be multiples of {_PAGE} bytes")
        if self.processes != "auto" and self.processes > workers:
            raise ValueError(f"{self.processes} processes need at least as many operations in flight")
        if self.content and not self.pattern.endswith("read"):
            raise ValueError(f"content is what is read: it says nothing of pattern: {self.pattern}")
        if self.content and self.precondition:
            raise ValueError("precondition would overwrite the content")
        if self.warmup and not self.duration:
            raise ValueError("warmup needs a duration: one pass has no time of its own")
        return self


@experiment(
    "storage.file",
    version="0.2",
    metrics=METRICS,
    component="storage",
    services=("fileio", "fio"),
    dataset="content.file",
)
def file_io(target: FileTarget, workload: FileWorkload, ctx: Context) -> None:
    """Read or write a file in blocks: bandwidth, operations a second, latency."""
    folder = Path(target.path) if target.path else ctx.workdir
    if not folder.is_dir():
        what = f"target.path {str(folder)!r} is not a folder on this machine"
        ctx.fail("no_such_folder", f"{what}: make it, or give another")
    if target.engine == "fio" and (workload.error_limit, workload.error_share) != (ERROR_LIMIT_S, ERROR_SHARE):
        ctx.fail("bad_load", "error_limit and error_share say nothing of engine: fio, whose figures have no bounds")
    life: FileLife = ctx.driver("fileio")()
    engine: FileEngine = ctx.driver(target.engine)()
    job = _job(target, workload, folder, ctx)
    try:
        if swept := sweep(folder):
            ctx.metadata(swept=swept)
        if free_bytes(folder) < job.size + min(_SPARE, job.size // 8):  # a completely full disk harms others
            _explain(errno.ENOSPC, folder, job, ctx)
        job = replace(job, direct=job.direct and _takes_direct(job.path, ctx))
        _prepare(job, workload, life, ctx)
        device = Device.under(folder)
        before = device.counters()
        moved = engine.transfer(job)
        after = device.counters()
        by_device = Counters(*map(sub, after, before)) if before and after else None
        _judge(job, moved, folder, ctx)
        _verify_file(job, workload, moved, life if engine.known_content else None, ctx)
    except OSError as error:
        _explain(error.errno or 0, folder, job, ctx)
        raise
    except BenchError as error:
        ctx.fail("bad_load", with_hint(error))
    finally:
        if job.path.exists():  # on a read-only filesystem, even removing a missing file would be an error
            job.path.unlink()
    _report(job, moved, device, by_device, workload, ctx)


def _job(target: FileTarget, workload: FileWorkload, folder: Path, ctx: Context) -> FileJob:
    workers = workload.threads * workload.depth
    return FileJob(
        path=folder / new_name(ctx.trial_id),
        size=workload.file_size,
        block=workload.block_size,
        pattern=workload.pattern,
        mix=workload.mix,
        streams=workload.threads,
        depth=workload.depth,
        processes=min(workers, usable_cores()) if workload.processes == "auto" else workload.processes,
        direct=workload.direct,
        sync_every={"never": 0, "end": 0, "each": 1}.get(workload.fsync, workload.fsync),  # type: ignore[arg-type]
        sync_end=workload.fsync not in ("never", "each") and not workload.pattern.endswith("read"),
        duration_s=workload.duration,
        warmup_s=workload.warmup,
        seed=ctx.seed,
        ioengine=target.ioengine,
        late_s=workload.error_limit,
        source=workload.content.checked() if workload.content else None,
    )


def _takes_direct(path: Path, ctx: Context) -> bool:
    """Create the file, and return whether its filesystem accepts O_DIRECT."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        ctx.warn("page_cache", f"the filesystem of {path.parent} refuses O_DIRECT: the page cache took part")
        return False
    return True


def _prepare(job: FileJob, workload: FileWorkload, life: FileLife, ctx: Context) -> None:
    """Prepare the file. Only a sequential write begins with an empty one: reads and random writes need content."""
    if job.pattern == "write" and not workload.precondition:
        return
    life.fill(job)
    own: FileEngine = ctx.driver("fileio")()
    whole = replace(job, sync_every=0, sync_end=True, duration_s=None, warmup_s=0.0, generation=0)
    passes = replace(whole, pattern="randwrite" if job.random else "write")
    for _ in range(workload.precondition):
        done = own.transfer(passes)
        if done.errors:
            raise OSError(done.fatal or errno.EIO, f"preconditioning failed: {done.first_errors[0]}")
    if workload.cache == "drop":
        life.drop_cache(job)


def _judge(job: FileJob, moved: MovedBytes, folder: Path, ctx: Context) -> None:
    """Fail the trial if a transfer ended early, moved nothing, or moved too little."""
    ctx.metadata(errors=dict(moved.errors), first_errors=moved.first_errors)
    if moved.fatal:
        _explain(moved.fatal, folder, job, ctx)
    if moved.fatal or not moved.operations:
        ctx.fail("io_failed", f"{moved.operations} operations succeeded in {folder}, then: {moved.first_errors[:1]}")
    if job.duration_s is None and not moved.errors and moved.bytes != job.size:
        ctx.fail("bytes_missing", f"moved {moved.bytes} bytes of {job.size} without an error")


def _verify_file(job: FileJob, workload: FileWorkload, moved: MovedBytes, life: FileLife | None, ctx: Context) -> None:
    """Check that the file has its size and holds what was written. `life` is None if its content cannot be known."""
    size = job.path.stat().st_size if job.path.exists() else 0
    whole = job.pattern != "write" or workload.precondition or job.duration_s is None
    if size != job.size and whole:
        sizes = f"the file has {size} bytes at the end and had {job.size}"
        ctx.invalid("file_changed", f"{sizes}: something else changed it in the measured time")
    written = moved.written[:: max(len(moved.written) // _ALIKE, 1)] if life and size == job.size else []
    wrong = [*moved.corrupt, *(life.misfits(job, written) if life and written else [])]
    checked = moved.checked + len(written)
    ctx.metadata(blocks_checked=checked, blocks_wrong=len(wrong))
    if wrong:
        blocks = f"{len(wrong)} of {checked} blocks that were read back"
        ctx.invalid("wrong_content", f"{blocks} don't hold what was written there, the first at offset {wrong[0]}")


def _explain(number: int, folder: Path, job: FileJob, ctx: Context) -> None:
    """Fail the trial with advice, for errors that have a plain meaning."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        room = f"no room for a file of {show_bytes(job.size)} ({show_bytes(free_bytes(folder))} free)"
        ctx.fail("no_space", f"{folder} has {room}: choose a smaller file_size or another target.path")
    if number == errno.EFBIG:
        ctx.fail("too_large", f"no file of {show_bytes(job.size)} is allowed in {folder}: see `ulimit -f`")
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        ctx.fail("not_writable", f"{folder} can't be written: {os.strerror(number)}. Choose another target.path")
