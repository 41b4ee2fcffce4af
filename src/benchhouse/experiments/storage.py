"""Experiment `storage.file`: bandwidth, operations a second and latency of a folder's filesystem."""

import errno
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds

_LATENCY_SAMPLES = 10_000
_CLIENT_BOUND = 0.7  # of one core in user code: Python, not the storage, sets the pace

METRICS = (
    Metric(
        name="bandwidth",
        unit="MB/s",
        direction="higher",
        role="throughput",
        formula="bytes moved / 10^6 / seconds from the first operation to the end of the last thread, final fsync "
        "included",
    ),
    Metric(name="iops", unit="1/s", direction="higher", formula="operations that succeeded / the same seconds"),
    Metric(
        name="latency",
        unit="ms",
        direction="lower",
        role="latency",
        formula="of one operation, with its fsync where `fsync: each`; at most 10,000 operations, evenly chosen",
    ),
    Metric(name="errors", unit="1", direction="lower", formula="operations that failed or were cut short"),
    Metric(
        name="error_rate",
        unit="1",
        direction="lower",
        role="error_rate",
        formula="errors / (errors + operations that succeeded)",
    ),
)


class FileTarget(Model):
    """The folder whose storage is measured."""

    path: str | None = Field(None, description="Folder under test; the trial's own working folder by default.")
    driver: str = Field("fileio", description="Driver that moves the bytes.")
    name: str = Field("", description="Name in reports.")


class FileWorkload(Model):
    """What is read or written, and how."""

    pattern: Literal["read", "write", "randread", "randwrite"] = Field(description="Access pattern.")
    file_size: Bytes = Field(64 * 2**20, gt=0, description="Size of the file.")
    block_size: Bytes = Field(2**20, ge=512, le=2**30, description="Size of one operation.")
    threads: int = Field(1, ge=1, le=256, description="Threads that share the blocks.")
    direct: bool = Field(False, description="Past the page cache (O_DIRECT).")
    fsync: Literal["never", "end", "each"] = Field("end", description="When writes are made durable.")
    duration: Seconds | None = Field(None, gt=0, description="Go round for that long; one pass by default.")

    @model_validator(mode="after")
    def _sizes_fit(self) -> "FileWorkload":
        if self.threads * self.block_size > self.file_size:
            raise ValueError(f"file_size must hold at least one block for each of {self.threads} threads")
        if self.direct and (self.file_size % 4096 or self.block_size % 4096):
            raise ValueError("direct needs file_size and block_size to be multiples of 4096 bytes")
        return self

    @property
    def writes(self) -> bool:
        return self.pattern.endswith("write")


@experiment("storage.file", version="0.1", metrics=METRICS, component="storage", services=("fileio",))
def file_io(target: FileTarget, workload: FileWorkload, ctx: Context) -> None:
    """Read or write a file in blocks: bandwidth, operations a second, latency."""
    folder = Path(target.path) if target.path else ctx.workdir
    if not folder.is_dir():
        ctx.fail("no_such_folder", f"target.path {str(folder)!r} is not a folder here")
    file = _open(folder / f"benchhouse-{ctx.trial_id}-{os.getpid()}.dat", target, workload, ctx)
    try:
        _describe(folder, file.direct, workload, ctx)
        if workload.pattern != "write":  # reads need content; random writes overwrite what is there
            file.fill()
            file.drop_cache()
        user_before = os.times().user
        moved = file.transfer(
            workload.pattern, threads=workload.threads, fsync=workload.fsync, duration_s=workload.duration
        )
        user_s = os.times().user - user_before
    except OSError as error:
        _fail_if_full(error, folder, workload, ctx)
        raise
    finally:
        file.close()
    _report(moved, user_s, folder, workload, ctx)


def _open(path: Path, target: FileTarget, workload: FileWorkload, ctx: Context) -> Any:
    make = ctx.driver(target.driver)
    sizes = (path, workload.file_size, workload.block_size)
    if workload.direct:
        try:
            return make(*sizes, seed=ctx.seed, direct=True)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            ctx.warn("page_cache", f"the filesystem of {path.parent} refuses O_DIRECT: the page cache took part")
    return make(*sizes, seed=ctx.seed)


def _describe(folder: Path, direct: bool, workload: FileWorkload, ctx: Context) -> None:
    """Say what else than the device may have answered."""
    kind = _filesystem(folder)
    ctx.metadata(filesystem=kind, direct=direct)
    if kind in ("tmpfs", "ramfs"):
        ctx.warn("memory_filesystem", f"{folder} is {kind}: this measures memory, not storage")
    if not workload.direct:
        how = (
            f"writes went through the page cache (fsync: {workload.fsync})"
            if workload.writes
            else "the file's cached pages were dropped first, but read-ahead and repeated reads use the page cache"
        )
        ctx.warn("page_cache", f"{how}; direct: true goes past it")


def _report(moved: Any, user_s: float, folder: Path, workload: FileWorkload, ctx: Context) -> None:
    for error in moved.errors:
        _fail_if_full(error, folder, workload, ctx)
    operations, seconds = len(moved.latencies_ns), moved.wall_s
    if not operations:
        ctx.fail("io_failed", f"no operation succeeded in {folder}: {moved.errors[0]}")
    if workload.duration is None and not moved.errors and moved.bytes != workload.file_size:
        ctx.fail("bytes_missing", f"moved {moved.bytes} bytes of {workload.file_size} without an error")
    ctx.emit("bandwidth", moved.bytes / 1e6 / seconds)
    ctx.emit("iops", operations / seconds)
    ctx.emit("errors", len(moved.errors))
    ctx.emit("error_rate", len(moved.errors) / (len(moved.errors) + operations))
    samples = min(operations, _LATENCY_SAMPLES)
    for number in range(samples):
        ctx.emit("latency", moved.latencies_ns[number * operations // samples] / 1e6)
    ctx.metadata(
        bytes=moved.bytes,
        operations=operations,
        seconds=seconds,
        latency_samples=samples,
        latency_max_ms=max(moved.latencies_ns) / 1e6,
        client_user_cores=user_s / seconds,
        first_errors=[str(error) for error in moved.errors[:10]],
    )
    if workload.threads > 1 and user_s / seconds > _CLIENT_BOUND:
        ctx.warn(
            "client_bound",
            f"the threads spent {user_s / seconds:.0%} of a core in Python itself: the storage may be faster than this",
        )


def _fail_if_full(error: OSError, folder: Path, workload: FileWorkload, ctx: Context) -> None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = os.statvfs(folder)
        ctx.fail(
            "no_space",
            f"{folder} has no room for a file of {workload.file_size / 1e6:.0f} MB "
            f"({free.f_bavail * free.f_frsize / 1e6:.0f} MB free): choose a smaller file_size or another target.path",
        )


def _filesystem(folder: Path) -> str:
    """Type of the filesystem that holds `folder`, as the kernel names it."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == wanted:
            return kind.split()[0]
    return "unknown"
