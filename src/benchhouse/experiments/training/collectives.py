"""Experiment `training.collectives`: duration and bandwidth of an operation between ranks.

Time, algorithm bandwidth, and bus bandwidth are those of nccl-tests (its doc/PERFORMANCE.md) for every engine.
"""

import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, model_validator

from benchhouse.experiments.training import nccl_tests
from benchhouse.experiments.training.launch import NotLaunched, RankProcess, run_here, run_training
from benchhouse.experiments.training.launchers import RankSettings, prepare
from benchhouse.experiments.training.operation_rounds import Operation, OperationRounds, bus_factor
from benchhouse.experiments.training.placement import check_cores, record_placement, settings
from benchhouse.load.metrics import higher, lower
from benchhouse.load.shape import ERROR_SHARE, ErrorShare
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds, show_bytes

PROGRAM = Path(__file__).parent / "programs" / "collectives.py"
_MARK = '{"collective"'
_STATS = ("value", "mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max")
_ALONE = "one rank sends nothing to anybody, its bus bandwidth is 0: give at least 2 ranks"
_OF_TORCH = {"launcher": "processes", "affinity": "none", "rank_environment": {}, "max_restarts": 0}
_MOST_WAIT = 0.5  # of an operation's time; threads that wake up wait for some microseconds even on a free core
_SHOWN = 300  # characters of a rank's last lines in a message
METRICS = (
    lower(
        "latency", "us", "time of a round, that of its slowest rank / operations of the round; of each round", "latency"
    ),
    higher("algorithm_bandwidth", "GB/s", "bytes / 10^9 / mean latency in seconds"),
    higher(
        "bus_bandwidth",
        "GB/s",
        "algorithm_bandwidth x 2(n-1)/n (all_reduce), (n-1)/n (all_gather, reduce_scatter, all_to_all), 1 (others)",
        "throughput",
        primary=True,
    ),
    lower("core_wait", "us", "time that threads of a rank waited for a core / operations, of the rank with the most"),
    lower("start_skew", "us", "from the first rank that begins a round to the last one of the same node, mean"),
    lower("wrong", "1", "elements of the results of all ranks that are not what they must be"),
)


class Collectives(Model):
    """The engine that does the operation."""

    engine: Literal["torch", "nccl-tests"] = Field("torch", description="torch.distributed, or NVIDIA's nccl-tests.")
    backend: Literal["gloo", "nccl"] = Field("gloo", description="engine: torch: gloo for CPUs, nccl for GPUs.")
    python: str = Field("python3", description="engine: torch: the Python that has torch.")
    folder: InputPath = Field("", description="engine: nccl-tests: folder of its programs; by default those in PATH.")
    mpirun: list[str] = Field(
        default_factory=list,
        description="engine: nccl-tests: what starts one process a rank: [mpirun, -np, '8'], [srun, --mpi=pmix].",
    )
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _of_its_engine(self) -> "Collectives":
        plain = {"folder": "", "mpirun": []} if self.engine == "torch" else {"backend": "gloo", "python": "python3"}
        if given := [name for name, default in plain.items() if getattr(self, name) != default]:
            raise ValueError(f"{', '.join(given)}: not of engine: {self.engine}")
        return self


class CollectivesWorkload(RankSettings):
    """The operation, its size, its repetitions, and its ranks."""

    operation: Operation = Field(description="send_recv: each rank sends to the next and receives from the one before.")
    bytes: Bytes = Field(ge=4, le=2**40, description="Size as nccl-tests counts it: of the whole array.")
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="Type of the elements.")
    warmup: int = Field(5, ge=0, le=10_000, description="Operations before the first round.")
    iterations: int = Field(20, ge=1, le=100_000, description="Operations of a round, back to back.")
    rounds: int = Field(10, ge=1, le=10_000, description="Rounds, each after a barrier; of nccl-tests, one that long.")
    ranks: int = Field(2, ge=1, le=4096, description="Ranks of all nodes, as many on each; with nccl each has a GPU.")
    timeout: Seconds = Field(600.0, gt=0, description="Of one attempt; the ranks are then ended.")
    error_share: ErrorShare = ERROR_SHARE

    @model_validator(mode="after")
    def _something_is_sent(self) -> "CollectivesWorkload":
        if self.ranks == 1 and not self.ranks_per_node:
            raise ValueError(_ALONE)
        return self


@experiment("training.collectives", version="1.0", metrics=METRICS, component="training")
def collectives(target: Collectives, workload: CollectivesWorkload, ctx: Context) -> None:
    """Do one operation between ranks again and again: time, algorithm and bus bandwidth as nccl-tests defines them."""
    world = workload.ranks_per_node * len(ctx.nodes) if workload.ranks_per_node else workload.ranks
    if world == 1:
        ctx.fail("one_rank", _ALONE)
    measured = (_torch if target.engine == "torch" else _nccl_tests)(target, workload, world, ctx)
    _report(measured, workload, world, ctx)


def _torch(target: Collectives, workload: CollectivesWorkload, world: int, ctx: Context) -> OperationRounds:
    names = ("operation", "bytes", "dtype", "warmup", "iterations", "rounds")
    options = {**{name: getattr(workload, name) for name in names}, "backend": target.backend}
    argv = [target.python, str(PROGRAM), f"--timeout-s={workload.timeout}"]
    argv += [f"--{name}={value}" for name, value in options.items()]
    with TemporaryDirectory(dir=ctx.artifacts.resolve(), prefix="ranks-") as folder:
        launch, launcher = prepare(argv, "", workload, Path(folder) / "ranks", ctx)
        try:
            training = run_training(launch, launcher, workload.max_restarts, workload.timeout)
        except (NotLaunched, OSError) as error:
            ctx.fail("not_launched", str(error))
        ranks = training.last
    record_placement(training, launch, workload, ctx)
    check_cores([], ranks, launch, workload.threads, ctx)
    _refuse_late(ranks, workload, ctx)
    said = {rank.number: _said(rank) for rank in ranks}
    _explain_failure(ranks, said, target, workload, ctx)
    try:
        return read_ranks(said, workload.iterations, world)
    except ValueError as error:
        ctx.fail("no_result", f"{error}; rank 0: {ranks[0].last_lines()[:_SHOWN]}")


def read_ranks(said: Mapping[int, Sequence[Mapping[str, Any]]], iterations: int, world: int) -> OperationRounds:
    """Combine the lines of all ranks. Raise ValueError if the output of a rank is incomplete.

    If all ranks have one clock, a round took at least from its last beginning to its last end, and at most as long as
    its slowest rank; the difference is how far the barrier can have changed it.
    """
    abouts = [line for lines in said.values() for line in lines if line["collective"] == "about"]
    results = [line for lines in said.values() for line in lines if line["collective"] == "result"]
    rounds = {rank: [line for line in lines if line["collective"] == "round"] for rank, lines in said.items()}
    if len(results) < world or len({len(own) for own in rounds.values()}) != 1:
        raise ValueError(f"{len(results)} of {world} ranks told a result")
    if (made := {about["world"] for about in abouts}) != {world}:
        raise ValueError(f"the ranks made worlds of {sorted(made)}, not one of {world}")
    if not (size := results[0]["bytes"]):
        raise ValueError(f"the size is too small: each of {world} ranks needs 16 bytes of it")
    clocks: dict[str, list[int]] = {}
    for about in abouts:
        clocks.setdefault(about["clock"], []).append(about["rank"])
    times, least, skews, last = [], [], [], Counter[int]()
    for own in zip(*(rounds[rank] for rank in sorted(rounds)), strict=True):
        begins, ends = [line["begin_s"] for line in own], [line["end_s"] for line in own]
        times.append(max(end - begin for begin, end in zip(begins, ends, strict=True)) / iterations)
        least.append((max(ends) - max(begins)) / iterations)
        by_clock = [[begins[rank] for rank in ranks] for ranks in clocks.values()]
        skews.append(max(max(moments) - min(moments) for moments in by_clock))
        last[begins.index(max(begins))] += 1
    one_clock = len(clocks) == 1
    facts = {name: abouts[0][name] for name in ("torch", "nccl", "device") if abouts[0].get(name)}
    if one_clock:
        facts["last_to_begin"] = {"rank": last.most_common(1)[0][0], "rounds": last.most_common(1)[0][1]}
    return OperationRounds(
        bytes=size,
        seconds=times,
        wrong=sum(result["wrong"] for result in results),
        skew_s=fmean(skews),
        waited_s=max(result["waited_s"] for result in results) / (iterations * len(times)),
        off_s=fmean(times) - fmean(least) if one_clock else None,
        facts=facts,
    )


def _nccl_tests(target: Collectives, workload: CollectivesWorkload, world: int, ctx: Context) -> OperationRounds:
    if given := [name for name, default in _OF_TORCH.items() if getattr(workload, name) != default]:
        ctx.fail("not_of_engine", f"{', '.join(given)} of the workload: not of engine: nccl-tests, see target.mpirun")
    environment = {**os.environ, "OMP_NUM_THREADS": str(workload.threads), **workload.environment}
    program = nccl_tests.PROGRAMS[workload.operation]
    path = _found(str(Path(target.folder) / program) if target.folder else program, environment, ctx)
    starts = [_found(target.mpirun[0], environment, ctx), *target.mpirun[1:]] if target.mpirun else []
    options = nccl_tests.options(
        size=workload.bytes,
        dtype=workload.dtype,
        gpus=1 if starts else world,
        warmup=workload.warmup,
        iterations=workload.iterations * workload.rounds,
    )
    try:
        (process,) = run_here([*starts, path, *options], 1, environment, ctx.artifacts, workload.timeout)
    except NotLaunched as error:
        ctx.fail("not_launched", str(error))
    _refuse_late([process], workload, ctx)
    ctx.metadata(environment=settings(environment))
    try:
        measured = nccl_tests.read((line for _, line in process.lines), workload.operation, world)
    except ValueError as error:
        ended = f" (it ended with {process.exit_code})" if process.exit_code else ""
        ctx.fail("no_result", f"{program}: {error}{ended}: {process.last_lines()[:_SHOWN]}")
    if process.exit_code and not measured.wrong:
        ctx.fail("rank_failed", f"{program} ended with {process.exit_code}: {process.last_lines()[:_SHOWN]}")
    return measured


def _report(measured: OperationRounds, workload: CollectivesWorkload, world: int, ctx: Context) -> None:
    latency_s = fmean(measured.seconds)
    algorithm = measured.bytes / 1e9 / latency_s
    bandwidths = {
        "algorithm_bandwidth": algorithm,
        "bus_bandwidth": algorithm * bus_factor(workload.operation, world),
    }
    for seconds in measured.seconds:
        ctx.emit("latency", seconds * 1e6)
    for name, value in bandwidths.items():
        ctx.emit(name, value)
    doubts = list(_doubts(measured, latency_s, workload.error_share))
    off = (measured.off_s or 0.0) / latency_s
    mean = "mean" if len(measured.seconds) > 1 else "value"
    ctx.bound("latency", {mean: off * latency_s * 1e6} if off else {}, _STATS if doubts else ())
    for name, value in bandwidths.items():
        ctx.bound(name, {"value": off * value} if off else {}, ["value"] if doubts else ())
    if doubts:
        ctx.warn("figures_invalid", f"{'; '.join(doubts)}: latency and bandwidths are INVALID")
    if measured.waited_s is not None:
        ctx.emit("core_wait", measured.waited_s * 1e6)
    if not math.isnan(measured.skew_s):
        ctx.emit("start_skew", measured.skew_s * 1e6)
    if measured.wrong is None:
        ctx.warn("not_checked", "the program did not check its results")
    else:
        ctx.emit("wrong", measured.wrong)
    if measured.wrong:
        what = f"{measured.wrong} elements came out wrong"
        ctx.invalid("wrong_result", f"{workload.operation} of {show_bytes(measured.bytes)}: {what}")
    if measured.bytes != workload.bytes:
        ctx.warn("bytes_rounded", f"{measured.bytes} bytes, not {workload.bytes}: every rank has an equal share")
    operations = workload.iterations * workload.rounds
    ctx.metadata(bytes=measured.bytes, world=world, operations=operations, **measured.facts)


def _doubts(measured: OperationRounds, latency_s: float, taken: float) -> Iterator[str]:
    """Yield each reason why the figures are invalid, with its cure."""
    off, waited_s = (measured.off_s or 0.0) / latency_s, measured.waited_s or 0.0
    if off > taken:
        apart = f"ranks began a round {measured.skew_s * 1e6:,.0f} us apart"
        yield f"{apart}, which can have changed its time by {off:.1%} ({taken:.1%} is taken; raise workload.iterations)"
    if waited_s > _MOST_WAIT * latency_s:
        waited = f"threads of a rank waited {waited_s * 1e6:,.0f} us for a core in an operation"
        yield f"{waited} of {latency_s * 1e6:,.0f} us (half of it is taken; free cores)"


def _found(program: str, environment: Mapping[str, str], ctx: Context) -> str:
    path = shutil.which(program, path=environment.get("PATH", os.defpath))
    if path is None:
        ctx.fail("command_not_found", f"no program {program!r} where the trial runs")
    return path


def _refuse_late(ranks: Sequence[RankProcess], workload: CollectivesWorkload, ctx: Context) -> None:
    ended = [rank for rank in ranks if rank.exit_code]
    if ended and all(rank.told_to_end for rank in ended):
        ctx.fail("timeout", f"the ranks were ended after workload.timeout ({workload.timeout:g} s)")


def _said(rank: RankProcess) -> list[dict[str, Any]]:
    """Return the program's own lines; libraries print there too, and launchers may put a prefix before each line."""
    lines = (line[line.index(_MARK) :] for _, line in rank.lines if _MARK in line)
    return [json.loads(line) for line in lines]


def _explain_failure(
    ranks: Sequence[RankProcess],
    said: Mapping[int, Sequence[Mapping[str, Any]]],
    target: Collectives,
    workload: CollectivesWorkload,
    ctx: Context,
) -> None:
    for line in (line for lines in said.values() for line in lines if line["collective"] == "unsupported"):
        what = f"{target.backend} of {target.python} does not do {workload.operation} of {workload.dtype}"
        ctx.fail("unsupported_operation", f"{what}: {line['error']}")
    failed = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.ended_s or 0.0)
    if not failed:
        return
    rank, code = failed[0], failed[0].exit_code or 0
    if any("no torch: " in line for _, line in rank.lines):
        ctx.fail("no_torch", f"{target.python} has no torch: name a Python that has it as target.python")
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    ctx.fail("rank_failed", f"rank {rank.number} {how}: {rank.last_lines()[:_SHOWN]}")
