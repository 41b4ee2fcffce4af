"""Numbers of `storage.file`, and what makes them doubtful: the page cache, memory, the client."""

from collections.abc import Iterator

from benchhouse.experiments.storage.device import MEMORY, Counters, Device
from benchhouse.load.metrics import higher, lower
from benchhouse.load.protocols.files import FileJob, Moved
from benchhouse.schema.experiment import Context, Metric
from benchhouse.schema.histogram import Histogram

CACHED_SHARE = 0.05  # of the bytes read: above it, they show the page cache more than the device
MOST_IOPS = 150_000  # of one process: above it, Python's own time is a good part of every operation
MOST_USER = 0.7  # of a core in Python itself, by one process
SHORTEST_SHARE_S = 0.1  # a share of less time is that of starting threads
NO_CORE_SHARE = 0.2  # of the workers' time
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


def report(job: FileJob, moved: Moved, device: Device, by_device: Counters | None, engine: str, ctx: Context) -> None:
    """Emit every metric. `by_device` is what the device moved in the same time, for everybody."""
    failed = moved.errors.total()
    seconds = max(moved.seconds, 1e-9)
    whole = Histogram()
    reads, writes = ("read_", moved.reads, moved.read_bytes), ("write_", moved.writes, moved.written_bytes)
    for prefix, latencies, size in (reads, writes):
        whole.merge(latencies)
        if job.reads and job.writes:
            ctx.emit(f"{prefix}bandwidth", size / 1e6 / seconds)
            ctx.emit(f"{prefix}iops", latencies.n / seconds)
            ctx.distribution(f"{prefix}latency", latencies)
    ctx.emit("bandwidth", moved.bytes / 1e6 / seconds)
    ctx.emit("iops", moved.operations / seconds)
    ctx.distribution("latency", whole)
    ctx.distribution("sync_latency", moved.syncs)
    ctx.emit("cpu_per_op", moved.cpu_s / moved.operations * 1e6)
    ctx.emit("errors", failed)
    ctx.emit("error_rate", failed / (failed + moved.operations))
    cached = None
    if moved.read_bytes and moved.fetched_bytes is not None:  # read-ahead may fetch more: that is no cache hit
        cached = max(0.0, 1 - moved.fetched_bytes / moved.read_bytes)
        ctx.emit("cached", round(cached, 4))
    ctx.metadata(
        filesystem=device.filesystem,
        device=device.name,
        direct=job.direct,
        way="past the page cache (O_DIRECT)" if job.direct else "through the page cache",
        engine=f"{moved.version} {job.ioengine}" if moved.version else engine,
        in_flight=job.workers,
        processes=1 if moved.version else job.processes,
        bytes=moved.bytes,
        operations=moved.operations,
        seconds=moved.seconds,
        client_user_cores=moved.user_s / seconds,
        no_core_share=round(moved.no_core_s / moved.worked_s, 4) if moved.worked_s else None,
        device_bytes=by_device and by_device._asdict(),
    )
    for code, text, broken in _doubts(job, moved, device, by_device, engine, cached):
        (ctx.invalid if broken else ctx.warn)(code, text)


Doubt = tuple[str, str, bool]  # code, text, and whether the numbers don't hold


def _doubts(
    job: FileJob, moved: Moved, device: Device, by_device: Counters | None, engine: str, cached: float | None
) -> Iterator[Doubt]:
    if moved.errors:
        kinds = ", ".join(f"{name} {count}" for name, count in moved.errors.most_common())
        yield "errors", f"{moved.errors.total()} operations failed and are in no rate or latency: {kinds}", False
    if device.filesystem in MEMORY:
        yield "memory_filesystem", f"this folder is {device.filesystem}: this measures memory, not storage", False
    else:
        yield from _cache_doubts(job, moved, by_device, cached)
    if engine == "fileio":
        yield from _client_doubts(job, moved)


def _cache_doubts(job: FileJob, moved: Moved, by_device: Counters | None, cached: float | None) -> Iterator[Doubt]:
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


def _client_doubts(job: FileJob, moved: Moved) -> Iterator[Doubt]:
    """Invalid where a device was to be measured; with the cache in between, the numbers are of the client anyway."""
    if moved.no_core_s > NO_CORE_SHARE * moved.worked_s:
        waited = f"the threads spent {moved.no_core_s / moved.worked_s:.0%} of the time ready to run, without a core"
        cause = "something else used the cores, or there are too few for this depth"
        effect = "latencies are longer by that, and the storage may be faster"
        yield "client_starved", f"{waited}: {effect} ({cause})", False
    user = moved.user_s / max(moved.seconds, 1e-9) / job.processes
    if moved.busiest > MOST_IOPS or (user > MOST_USER and moved.seconds >= SHORTEST_SHARE_S):
        busy = f"a process made {moved.busiest:,.0f} operations a second and spent {user:.0%} of a core in Python"
        cure = "engine: fio asks faster; processes help where cores are idle"
        yield "client_bound", f"{busy}: the storage may be faster than this ({cure})", job.direct
