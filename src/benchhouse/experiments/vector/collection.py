"""The life of a collection in a trial: created, filled, built, measured, and always removed."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchhouse.experiments.vector.data import VectorDataset
from benchhouse.experiments.vector.target import VectorTarget
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, VectorDriver
from benchhouse.load.trial import advised
from benchhouse.processes.tree import descendants
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


@dataclass(frozen=True)
class CollectionHandle:
    """The place of the collection, and how its memory is measured."""

    make: Callable[[], VectorDriver]
    endpoint: str
    memory: Callable[[], int] | None  # None if the trial did not start the server
    embedded: bool  # inside this process


def find_place(target: VectorTarget, workload: VectorWorkload, data: VectorDataset, ctx: Context) -> CollectionHandle:
    """Start the server if one is needed, and check that the driver supports the target and the workload."""
    driver = ctx.driver(target.driver)
    if not hasattr(driver, "indexes"):
        known = "see: bench show vector.search"
        raise BenchError(f"{target.driver!r} is no driver of a vector database", known)
    _check(driver, target, workload, ctx)
    collection = Collection(
        name=f"bench_{digest([ctx.trial_id, ctx.repetition, ctx.seed])[:16]}",
        dimensions=data.vectors.shape[1],
        distance=workload.distance,
        index=target.index,
        options=target.options,
        labels=workload.selectivity is not None,
        threads=target.threads,
    )

    def place(endpoint: str, memory: Callable[[], int] | None, *, embedded: bool = False) -> CollectionHandle:
        return CollectionHandle(lambda: driver(endpoint, collection), endpoint, memory, embedded)

    if not target.endpoint and driver.recipe:
        service = ctx.service(driver.recipe)
        return place(service.endpoint, lambda: tree_bytes(service.pid))
    if target.endpoint in ("", "embedded"):
        return place(str(ctx.workdir / "collection"), anonymous_memory, embedded=True)
    return place(target.endpoint, None)


def _check(driver: Any, target: VectorTarget, workload: VectorWorkload, ctx: Context) -> None:
    options = ("index", target.index, driver.indexes), ("distance", workload.distance, driver.distances)
    for what, wanted, known in options:
        if wanted not in known:
            ctx.fail("not_supported", f"{target.driver} has no {what} {wanted}; it has {', '.join(known)}")
    if workload.selectivity is not None and not driver.filters:
        ctx.fail("not_supported", f"the driver {target.driver} can't filter")
    if driver.shared and workload.shards > 1:
        ctx.fail("one_process", f"all threads share one {target.driver}: there can't be {workload.shards} processes")


@dataclass(frozen=True)
class Made:
    """The cost of filling and building the collection."""

    vectors: int
    ingest_s: float
    build_s: float
    memory: int | None  # growth in bytes


@contextlib.contextmanager
def alive(place: CollectionHandle) -> Iterator[VectorDriver]:
    """Yield an open driver, and delete whatever it creates. The first error is the one that is raised."""
    driver = place.make()
    try:
        driver.open()
    except CallFailed as failed:
        raise CallFailed(failed.kind, advised(failed.kind, failed.detail)) from failed
    with contextlib.closing(driver):
        try:
            yield driver
        except BaseException:
            with contextlib.suppress(CallFailed, BenchError):
                driver.delete()
            raise
        driver.delete()


def fill(driver: VectorDriver, place: CollectionHandle, data: VectorDataset, workload: VectorWorkload) -> Made:
    """Create, ingest, and build, without the share of vectors for later."""
    from benchhouse.experiments.vector.recall import labels  # imports numpy

    count = len(data.vectors) - int(len(data.vectors) * workload.ingest_during)
    marks = labels(len(data.vectors)) if workload.selectivity is not None else None
    before = place.memory() if place.memory else 0
    driver.create()
    began = perf_counter()
    put(driver, data, marks, 0, count, workload.ingest_batch)
    ingested = perf_counter()
    driver.build()
    built = perf_counter()
    grown = place.memory() - before if place.memory else None
    return Made(count, ingested - began, built - ingested, grown)


def put(
    driver: VectorDriver, data: VectorDataset, marks: "NDArray[int64] | None", first: int, last: int, batch: int
) -> None:
    for start in range(first, last, batch):
        stop = min(start + batch, last)
        driver.ingest(start, data.vectors[start:stop], None if marks is None else marks[start:stop])


def anonymous_memory() -> int:
    """Return the memory of this process without mapped files, after the allocator has returned its unused memory."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    return _bytes(os.getpid())


def tree_bytes(pid: int) -> int:
    """Return the same for a process and all its descendants; shared memory counts once if the kernel reports it."""
    return sum(map(_bytes, (pid, *descendants(pid))))


def _bytes(pid: int) -> int:
    for file, fields in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        try:
            rows = [line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines()]
        except OSError:
            continue
        sizes = [int(row[1]) * 1024 for row in rows if row and row[0] in fields]
        if len(sizes) == len(fields):
            return sum(sizes)
    return 0
