"""Experiment `training.dataloader`: throughput of a torch data loader, and how long an accelerator waits for it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from benchhouse.experiments.storage.device import MEMORY, Device, free_bytes
from benchhouse.experiments.training.launchers import RankSettings
from benchhouse.experiments.training.program import TrainingProgram, run_program, world_of
from benchhouse.experiments.training.samples import GROUPS_IN_FILE, IN_FOLDER, make_files, make_parquet
from benchhouse.experiments.training.stores import s3_place
from benchhouse.load.metrics import higher, lower
from benchhouse.load.protocols.s3 import S3Target
from benchhouse.processes.quotas import usable_cores
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds, show_bytes
from benchhouse.schema.telemetry import STEADY

CACHED_SHARE = 0.05  # of the bytes read: above it, they show the page cache more than the device
UTILIZATION_MARK = 0.9  # what MLPerf Storage requires for most of its workloads
OVERRUN_SHARE = 0.02  # of the simulated compute time: above it, the machine and not the loader delayed the consumer
_SETTINGS = ("kind", "samples", "sample_size", "row_group", "batch", "workers", "prefetch", "shuffle", "epochs")
_WINDOW = "batches after the first of each worker, whole rounds of the workers"

METRICS = (
    higher("samples_per_s", "samples/s", f"of all ranks; {_WINDOW}", "throughput", primary=True),
    higher("bandwidth", "MB/s", "samples_per_s x sample_size / 10^6"),
    lower("data_wait", "ms", f"time that the consumer waits for a batch; {_WINDOW}", "latency", primary=True),
    higher(
        "accelerator_utilization",
        "1",
        "as MLPerf Storage: (batches - 1) x compute / time from the end of the first batch to the end of the last one, "
        "over all epochs and ranks",
    ),
    lower("time_to_first_batch", "s", "from the start of an epoch, that of its workers included, of the slowest rank"),
    lower("epoch_time", "s", "from the start of an epoch to the end of its last batch, of the slowest rank"),
    lower("cached", "1", "share of the bytes read that the kernel did not fetch from a device for these processes"),
)


class LoaderTarget(Model):
    """The Python whose torch is used, and the place of the samples."""

    python: str = Field("python3", description="Program: the Python that has torch; with S3 also s3fs.")
    path: InputPath | None = Field(None, description="Folder for the samples, made and removed by the trial.")
    s3: S3Target | None = Field(None, description="Instead: a bucket; `{}` starts SeaweedFS.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path and self.s3:
            raise ValueError("give path or s3, not both")
        return self


class LoaderWorkload(RankSettings):
    """Samples and how they are loaded; each rank is a consumer with its own workers."""

    kind: Literal["files", "parquet", "memory"] = Field(
        "files", description="A file a sample, rows of Parquet, or no storage at all: what the loader itself costs."
    )
    samples: int = Field(1024, ge=2, le=10**8, description="Samples of an epoch, over all ranks.")
    sample_size: Bytes = Field(114_660, ge=8, le=2**31, description="Size of a sample.")
    row_group: int = Field(64, ge=1, description="parquet: samples in a row group, which is read as a whole.")
    batch: int = Field(32, ge=1, description="Samples in a batch of one rank.")
    workers: int = Field(2, ge=0, le=1024, description="Processes of a rank that load; 0: the consumer itself.")
    prefetch: int = Field(2, ge=1, description="Batches that each worker loads ahead.")
    shuffle: bool = Field(True, description="Whether an epoch has an order of its own, of samples or of row groups.")
    epochs: int = Field(1, ge=1, le=1000, description="How often all samples are loaded.")
    compute: Seconds = Field(0.0, ge=0, description="Time that the consumer spends on a batch: it sleeps.")
    sample_time: Seconds = Field(0.0, ge=0, description="Time that a sample takes beside reading: a sleep.")
    cache: Literal["drop", "keep"] = Field("drop", description="What is done with cached pages before each epoch.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if lacks := self.lacks(self.ranks):
            raise ValueError(lacks)
        return self

    def lacks(self, world: int) -> str:
        """Return why `world` ranks have too little to load, and what would be enough; empty if nothing is missing."""
        round_, batches = max(self.workers, 1), self.samples // world // self.batch
        if batches < 2 * round_:
            needs = 2 * round_ * self.batch * world
            return f"{self.samples} samples are {batches} batches a rank: with these workers give {needs}"
        groups = -(-self.samples // self.row_group)
        if self.kind == "parquet" and groups < round_ * world:
            return f"{groups} row groups are fewer than the workers that share them: give more samples"
        return ""


@experiment("training.dataloader", version="1.0", metrics=METRICS, component="training", services=("dataloader",))
def load_data(target: LoaderTarget, workload: LoaderWorkload, ctx: Context) -> None:
    """Load samples with torch's DataLoader: samples/s, MB/s, wait for data, accelerator utilisation."""
    if workload.kind == "memory" and (target.path or target.s3):
        ctx.fail("bad_load", "kind: memory reads nothing: leave target.path and target.s3 out")
    local, world = workload.kind != "memory" and target.s3 is None, world_of(workload, ctx)
    if lacks := workload.lacks(world):
        ctx.fail("bad_load", lacks)
    if local and len(ctx.nodes) > 1 and not target.path:
        ctx.fail("no_shared_folder", f"the samples must be seen by all {len(ctx.nodes)} nodes: give target.path")
    with _placed(target, workload, ctx) as (root, environment):
        settings = {
            **workload.model_dump(include=set(_SETTINGS)),
            "root": root, "compute_s": workload.compute, "sample_s": workload.sample_time, "seed": ctx.seed,
            "in_folder": IN_FOLDER, "groups_in_file": GROUPS_IN_FILE, "drop": local and workload.cache == "drop",
        }  # fmt: skip
        per_node = world // len(ctx.nodes)
        if per_node * max(workload.workers, 1) > usable_cores():
            processes = f"{per_node} ranks with {workload.workers} workers each"
            ctx.warn("cores_shared", f"{processes} share {usable_cores()} cores")
        records = run_program(TrainingProgram("dataloader", target.python, settings, workload, environment), ctx)
        if local:
            _look_at_cache(Path(root), records, workload, ctx)
    _check(records, workload, ctx)
    _report([_epochs(rank) for rank in records], workload, ctx)


@contextmanager
def _placed(target: LoaderTarget, workload: LoaderWorkload, ctx: Context) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Prepare the samples and yield their place with the environment that a program needs to reach them."""
    if workload.kind == "memory":
        yield "", {}
        return
    with ExitStack() as stack:
        if target.path:
            folder = Path(target.path)
            if not folder.is_dir():
                ctx.fail("no_such_folder", f"target.path {str(folder)!r} is not a folder on this machine: make it")
            size = workload.samples * workload.sample_size
            if free_bytes(folder) < size:
                free = f"{show_bytes(free_bytes(folder))} free"
                ctx.fail("no_space", f"{folder} has no room for {show_bytes(size)} of samples ({free}): load less")
            data = Path(stack.enter_context(TemporaryDirectory(dir=folder, prefix="benchhouse-"))) / "samples"
            _make(data, workload, ctx.seed)
        else:
            groups = f"-{workload.row_group}" if workload.kind == "parquet" else ""
            key = f"samples/{workload.kind}-{workload.samples}x{workload.sample_size}{groups}-{ctx.seed}"
            data = ctx.cache.build(key, lambda path: _make(path, workload, ctx.seed))
        ctx.metadata(sample_bytes=workload.samples * workload.sample_size)
        if target.s3 is None:
            yield str(data), {}
            return
        place = stack.enter_context(s3_place(target.s3, ctx))
        ctx.metadata(bucket=place.where)
        upload = {"folder": str(data), "root": place.url}
        run_program(TrainingProgram("upload", target.python, upload, environment=place.environment), ctx)
        yield place.url, place.environment


def _make(path: Path, workload: LoaderWorkload, seed: int) -> None:
    if workload.kind == "files":
        make_files(path, workload.samples, workload.sample_size, seed)
    else:
        make_parquet(path, workload.samples, workload.sample_size, seed, workload.row_group)


def _look_at_cache(
    root: Path, records: Sequence[Sequence[Mapping[str, Any]]], workload: LoaderWorkload, ctx: Context
) -> None:
    """Report the share of bytes that came from memory, by counts of bytes that the kernel fetched for the ranks."""
    filesystem = Device.under(root).filesystem
    epochs = [record for rank in records for record in rank if "fetched" in record]
    ctx.metadata(filesystem=filesystem, page_cache="dropped" if workload.cache == "drop" else "kept")
    if filesystem in MEMORY:
        ctx.warn("memory_filesystem", f"this folder is {filesystem}: this measures memory, not storage")
        return
    if any(epoch["fetched"] is None for epoch in epochs):
        ctx.warn("page_cache_unknown", "the kernel doesn't say what it fetched for these processes")
        return
    cached = max(0.0, 1 - sum(epoch["fetched"] for epoch in epochs) / sum(epoch["bytes"] for epoch in epochs))
    ctx.emit("cached", round(cached, 4))
    if cached > CACHED_SHARE:
        ctx.warn("page_cache", f"{cached:.0%} of the bytes came from memory, not from the device: it is slower")


def _check(records: Sequence[Sequence[Mapping[str, Any]]], workload: LoaderWorkload, ctx: Context) -> None:
    """Fail the trial unless every sample came once in each epoch, by the number in its content."""
    for number in range(workload.epochs):
        epochs = [record for rank in records for record in rank if "fetched" in record and record["epoch"] == number]
        found = tuple(sum(epoch[name] for epoch in epochs) for name in ("samples", "numbers", "bytes"))
        count = workload.samples
        if found != (count, count * (count - 1) // 2, count * workload.sample_size):
            ctx.fail("wrong_samples", f"epoch {number}: {found[0]} samples came, or their content is not what was made")
    ctx.metadata(torch=records[0][-1]["torch"], python=records[0][-1]["python"])


@dataclass(frozen=True)
class Epoch:
    """One epoch of one rank; times are seconds of the monotonic clock."""

    began_s: float
    batches: Sequence[Mapping[str, float]]
    """`asked`, `got`, and `done` times of each batch, and its number of samples."""

    def window(self, workers: int) -> Sequence[Mapping[str, float]]:
        """Return whole rounds of batches without the first batch of each worker. All workers deliver at about the same
        time, so a window that cuts through a round would count samples without the time that they took."""
        round_ = max(workers, 1)
        return self.batches[round_ : len(self.batches) // round_ * round_]


def _epochs(records: Sequence[Mapping[str, Any]]) -> list[Epoch]:
    heads = [record for record in records if "fetched" in record]
    return [
        Epoch(head["began"], [record for record in records if "batch" in record and record["epoch"] == head["epoch"]])
        for head in heads
    ]


def rate(epochs: Sequence[Epoch], workers: int) -> float:
    """Return the samples per second of one rank, over the windows of its epochs."""
    windows = [(epoch.batches[max(workers, 1) - 1]["done"], epoch.window(workers)) for epoch in epochs]
    seconds = math.fsum(window[-1]["done"] - before for before, window in windows)
    return sum(batch["samples"] for _, window in windows for batch in window) / seconds


def utilization(epochs: Sequence[Epoch], compute_s: float) -> float:
    """Return the utilization over all epochs, each without its first batch."""
    steps = sum(len(epoch.batches) - 1 for epoch in epochs)
    return steps * compute_s / math.fsum(epoch.batches[-1]["done"] - epoch.batches[0]["done"] for epoch in epochs)


def _report(ranks: Sequence[Sequence[Epoch]], workload: LoaderWorkload, ctx: Context) -> None:
    epochs = [epoch for rank in ranks for epoch in rank]
    samples_per_s = math.fsum(rate(rank, workload.workers) for rank in ranks)
    ctx.emit("samples_per_s", samples_per_s)
    ctx.emit("bandwidth", samples_per_s * workload.sample_size / 1e6)
    waits = (batch["got"] - batch["asked"] for epoch in epochs for batch in epoch.window(workload.workers))
    ctx.distribution("data_wait", Histogram(round(wait * 1e9) for wait in waits))
    for together in zip(*ranks, strict=True):
        ctx.emit("time_to_first_batch", max(epoch.batches[0]["got"] - epoch.began_s for epoch in together))
        ctx.emit("epoch_time", max(epoch.batches[-1]["done"] - epoch.began_s for epoch in together))
    first, last = ranks[0][0], ranks[0][-1]  # of a rank of this node: others may have another clock
    ctx.phase(STEADY, int(first.began_s * 1e9), int(last.batches[-1]["done"] * 1e9))
    if workload.compute:
        _report_utilization(epochs, workload.compute, ctx)


def _report_utilization(epochs: Sequence[Epoch], compute_s: float, ctx: Context) -> None:
    share = utilization(epochs, compute_s)
    ctx.emit("accelerator_utilization", share)
    if share < UTILIZATION_MARK:
        mark = f"below the {UTILIZATION_MARK:.0%} that MLPerf Storage asks of most workloads"
        ctx.warn("accelerator_waits", f"accelerators compute for {share:.1%} of the time, {mark}")
    batches = [batch for epoch in epochs for batch in epoch.batches]
    overrun = math.fsum(batch["done"] - batch["got"] for batch in batches) / (len(batches) * compute_s) - 1
    ctx.metadata(compute_overrun=round(overrun, 4))
    if overrun > OVERRUN_SHARE:
        late = f"the planted computation took {overrun:.1%} longer than asked"
        ctx.warn("compute_late", f"{late}: the machine is busy, and the utilisation is too low by as much")
