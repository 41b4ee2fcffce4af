"""Experiment `training.checkpoint`: the cost of writing and reading a sharded checkpoint of torch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from benchhouse.experiments.storage.device import MEMORY, Device, free_bytes
from benchhouse.experiments.training.launchers import RankSettings
from benchhouse.experiments.training.program import TrainingProgram, run_program, world_of
from benchhouse.experiments.training.stores import s3_place
from benchhouse.load.metrics import higher, lower
from benchhouse.load.protocols.s3 import S3Target
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, show_bytes
from benchhouse.schema.telemetry import STEADY

CACHED_SHARE = 0.05  # of the bytes read: above it, they show the page cache more than the device
_ELEMENT = 4  # bytes of a float32
_NOT_SAVED = r"the checkpoint can't be saved: .*"
_FAILURES = {
    "no_space": f"{_NOT_SAVED}(No space left on device|Disk quota exceeded)",
    "too_large": f"{_NOT_SAVED}File too large",
    "checkpoint_not_saved": _NOT_SAVED,
    "checkpoint_broken": r"the checkpoint can't be loaded: .*",
}

METRICS = (
    lower("save_time", "s", "from the call to the end of the slowest rank: all bytes are written", primary=True),
    lower("blocking_time", "s", "from the call until training may go on, of the slowest rank; sync: save_time"),
    higher("save_bandwidth", "MB/s", "bytes of the state / 10^6 / save_time", "throughput", primary=True),
    lower("load_time", "s", "from the call to the end of the slowest rank, into a state that is there", primary=True),
    higher("load_bandwidth", "MB/s", "bytes of the state / 10^6 / load_time"),
    lower("stored_overhead", "1", "bytes that the checkpoint takes / bytes of the state - 1"),
    lower("cached", "1", "share of the bytes loaded that the kernel did not fetch from a device for the ranks"),
)


class CheckpointTarget(Model):
    """The Python whose torch is used, and the place of checkpoints."""

    python: str = Field("python3", description="Program: the Python that has torch; with S3 also s3fs.")
    path: InputPath | None = Field(None, description="Folder for checkpoints; the trial's own by default.")
    s3: S3Target | None = Field(None, description="Instead: a bucket; `{}` starts SeaweedFS.")
    existing: InputPath | None = Field(None, description="Instead: a checkpoint's folder, to be loaded as it is.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(bool(place) for place in (self.path, self.s3, self.existing)) > 1:
            raise ValueError("give one of path, s3 and existing")
        return self


class CheckpointWorkload(RankSettings):
    """The state and how it is saved; each rank saves and loads its shards."""

    size: Bytes = Field(256 * 10**6, ge=_ELEMENT, le=10**15, description="Of the state, over all ranks.")
    tensors: int = Field(16, ge=1, le=100_000, description="Of float32, each sharded over all ranks, as FSDP2 does.")
    mode: Literal["sync", "async"] = Field("sync", description="async: training goes on while a copy is written.")
    saves: int = Field(3, ge=1, le=1000, description="How often it is saved and loaded.")
    fsync: bool = Field(True, description="Whether torch makes its files durable before a save ends; not of S3.")
    cache: Literal["drop", "keep"] = Field("drop", description="What is done with cached pages before each load.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the state lies; cuda: a GPU a rank.")

    @model_validator(mode="after")
    def _something_a_rank(self) -> Self:
        if self.elements < self.ranks:
            needs = _ELEMENT * self.tensors * self.ranks
            raise ValueError(f"size: each of {self.tensors} tensors needs a number a rank: give at least {needs}")
        return self

    @property
    def elements(self) -> int:
        """Elements of one tensor."""
        return self.size // _ELEMENT // self.tensors

    @property
    def state_bytes(self) -> int:
        return self.elements * self.tensors * _ELEMENT


@experiment("training.checkpoint", version="1.0", metrics=METRICS, component="training", services=("checkpoint",))
def checkpoint(target: CheckpointTarget, workload: CheckpointWorkload, ctx: Context) -> None:
    """Save and load a state that is sharded over ranks (torch.distributed.checkpoint): times, bandwidth, blocking."""
    if workload.elements < (world := world_of(workload, ctx)):
        ctx.fail("bad_load", f"each of {workload.tensors} tensors needs a number for each of {world} ranks")
    with _placed(target, workload, ctx) as (root, environment):
        settings = {
            **workload.model_dump(include={"tensors", "mode", "saves", "fsync", "device"}),
            "root": root, "elements": workload.elements, "seed": ctx.seed, "drop": workload.cache == "drop",
            "existing": target.existing or "",
        }  # fmt: skip
        program = TrainingProgram("checkpoint", target.python, settings, workload, environment, _FAILURES)
        records = run_program(program, ctx)
        filesystem = "" if target.s3 else Device.under(Path(target.existing or root)).filesystem
    ctx.metadata(torch=records[0][-1]["torch"], python=records[0][-1]["python"], filesystem=filesystem or "S3")
    loads = _together(records, "load")
    size = loads[0][0]["bytes"] if target.existing else workload.state_bytes
    ctx.metadata(state_bytes=size, durable=_durable(target, workload))
    if not target.existing:
        saves = _together(records, "save")
        _check(saves, loads, ctx)
        _report_saves(saves, size, ctx)
        if not target.s3 and not workload.fsync:
            ctx.warn("not_durable", "fsync: false: a save ends in the page cache, and a crash may lose the checkpoint")
    _report_loads(loads, size, ctx)
    moments = [line[name] for line in records[0] for name in ("began", "ended") if name in line]  # of this node's clock
    ctx.phase(STEADY, int(moments[0] * 1e9), int(moments[-1] * 1e9))
    _look_at_cache(loads, size, filesystem, ctx)


@contextmanager
def _placed(
    target: CheckpointTarget, workload: CheckpointWorkload, ctx: Context
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the place of checkpoints and the environment that a program needs there; remove both afterwards."""
    if target.existing:
        if not (Path(target.existing) / ".metadata").is_file():
            what = f"target.existing {target.existing!r} has no .metadata"
            ctx.fail("checkpoint_broken", f"{what}: no checkpoint of torch.distributed.checkpoint, or one cut short")
        yield "", {}
        return
    with ExitStack() as stack:
        if target.s3:
            place = stack.enter_context(s3_place(target.s3, ctx))
            ctx.metadata(bucket=place.where)
            yield place.url, place.environment
            return
        if len(ctx.nodes) > 1 and not target.path:
            ctx.fail("no_shared_folder", f"checkpoints must be seen by all {len(ctx.nodes)} nodes: give target.path")
        folder = Path(target.path) if target.path else ctx.workdir
        if not folder.is_dir():
            ctx.fail("no_such_folder", f"target.path {str(folder)!r} is not a folder on this machine: make it")
        if free_bytes(folder) < workload.state_bytes:
            room = f"no room for {show_bytes(workload.state_bytes)} ({show_bytes(free_bytes(folder))} free)"
            ctx.fail("no_space", f"{folder} has {room}: choose a smaller size or another target.path")
        yield stack.enter_context(TemporaryDirectory(dir=folder, prefix="benchhouse-")), {}


def _durable(target: CheckpointTarget, workload: CheckpointWorkload) -> str:
    if target.existing:
        return "not written here"
    if target.s3:
        return "as the server promises; torch's writer calls sync() of the whole machine before each upload ends"
    return "each file by fsync, the folder not" if workload.fsync else "no: in the page cache"


def _together(records: Sequence[Sequence[Mapping[str, Any]]], kind: str) -> list[list[Mapping[str, Any]]]:
    """Return the records of all ranks for each save or load."""
    return [list(ranks) for ranks in zip(*([line for line in own if kind in line] for own in records), strict=True)]


def _check(
    saves: Sequence[Sequence[Mapping[str, Any]]], loads: Sequence[Sequence[Mapping[str, Any]]], ctx: Context
) -> None:
    """Fail the trial if a load did not return the state at the time of its save, although training changed it since."""
    for number, (saved, loaded) in enumerate(zip(saves, loads, strict=True)):
        for rank, (before, after) in enumerate(zip(saved, loaded, strict=True)):
            if before["digest"] != after["digest"]:
                ctx.fail("state_differs", f"save {number}: what rank {rank} loaded is not what it had saved")
    ctx.metadata(verified=f"{len(loads)} loads by the digest of each rank's shards")


def _report_saves(saves: Sequence[Sequence[Mapping[str, Any]]], size: int, ctx: Context) -> None:
    for ranks in saves:
        seconds = max(rank["ended"] - rank["began"] for rank in ranks)
        ctx.emit("save_time", seconds)
        ctx.emit("blocking_time", max(rank["released"] - rank["began"] for rank in ranks))
        ctx.emit("save_bandwidth", size / 1e6 / seconds)
        ctx.emit("stored_overhead", next(rank["stored"] for rank in ranks if "stored" in rank) / size - 1)


def _report_loads(loads: Sequence[Sequence[Mapping[str, Any]]], size: int, ctx: Context) -> None:
    for ranks in loads:
        seconds = max(rank["ended"] - rank["began"] for rank in ranks)
        ctx.emit("load_time", seconds)
        ctx.emit("load_bandwidth", size / 1e6 / seconds)


def _look_at_cache(loads: Sequence[Sequence[Mapping[str, Any]]], size: int, filesystem: str, ctx: Context) -> None:
    if filesystem in MEMORY:
        ctx.warn("memory_filesystem", f"this folder is {filesystem}: this measures memory, not storage")
    elif filesystem:
        fetched = [rank["fetched"] for ranks in loads for rank in ranks]
        if None in fetched:
            ctx.warn("page_cache_unknown", "the kernel doesn't say what it fetched for these processes")
            return
        cached = max(0.0, 1 - sum(fetched) / (size * len(loads)))
        ctx.emit("cached", round(cached, 4))
        if cached > CACHED_SHARE:
            ctx.warn("page_cache", f"{cached:.0%} of the bytes loaded came from memory: the device is slower than this")
