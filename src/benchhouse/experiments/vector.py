"""Experiment `vector.search`: how fast a vector index answers, and how right it is."""

import os
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from benchhouse.experiments.neighbours import load_truth, recall, synthetic
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.resources import Resources

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

_LATENCY_SAMPLES = 10_000

METRICS = (
    Metric(
        name="qps",
        unit="1/s",
        direction="higher",
        role="throughput",
        formula="measured queries / seconds from the first to the end of the last",
    ),
    Metric(
        name="latency",
        unit="ms",
        direction="lower",
        role="latency",
        formula="of one search call, which every query of its batch waits for; at most 10,000 calls, evenly chosen",
    ),
    Metric(
        name="recall",
        unit="1",
        direction="higher",
        formula="share of the k returned vectors that are as near as the k-th true neighbour (brute force in float64; "
        "a relative difference of 1e-5 counts as a tie), mean over the queries",
    ),
    Metric(
        name="ingest_rate",
        unit="vectors/s",
        direction="higher",
        formula="vectors / seconds from the first one handed over until all are searchable",
    ),
    Metric(name="build_s", unit="s", direction="lower", formula="the part of it after the last vector was handed over"),
    Metric(name="index_mb", unit="MB", direction="lower", formula="size of the index as the driver would store it"),
    Metric(
        name="memory_mb",
        unit="MB",
        direction="lower",
        formula="growth of this process's resident memory from before the index is created until it is built, unused "
        "heap given back both times; meant for embedded engines",
    ),
)


class VectorTarget(Model):
    """The index under test."""

    driver: str = Field("faiss", description="Driver of the vector database or library.")
    index: Literal["flat", "ivf", "hnsw", "pq"] = Field("hnsw", description="Kind of index.")
    nlist: int = Field(128, ge=1, description="ivf: number of cells.")
    nprobe: int = Field(8, ge=1, description="ivf: cells that a search visits.")
    m: int = Field(16, ge=2, description="hnsw: links a node.")
    ef_construction: int = Field(64, ge=1, description="hnsw: candidates while building.")
    ef_search: int = Field(64, ge=1, description="hnsw: candidates while searching.")
    pq_m: int = Field(8, ge=1, description="pq: parts that a vector is cut into; divides the dimensions.")
    pq_bits: int = Field(8, ge=1, le=12, description="pq: bits a part.")
    name: str = Field("", description="Name in reports.")

    _owner: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("nlist", "nprobe"), "ivf"),
        **dict.fromkeys(("m", "ef_construction", "ef_search"), "hnsw"),
        **dict.fromkeys(("pq_m", "pq_bits"), "pq"),
    }

    @model_validator(mode="after")
    def _own_options(self) -> "VectorTarget":
        for option, index in self._owner.items():
            if index != self.index and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"{option} is an option of {index}, and the index is {self.index}")
        if self.index == "ivf" and self.nprobe > self.nlist:
            raise ValueError(f"nprobe {self.nprobe} is more than the {self.nlist} cells of nlist")
        return self

    @property
    def options(self) -> dict[str, int]:
        return {option: getattr(self, option) for option, index in self._owner.items() if index == self.index}


class VectorWorkload(Model):
    """Data, queries, and how they are put."""

    dataset: Literal["synthetic"] = Field("synthetic", description="Where the vectors come from.")
    vectors: int = Field(20_000, ge=1, le=100_000_000, description="Vectors in the index.")
    dimensions: int = Field(64, ge=1, le=65_536, description="Numbers a vector.")
    queries: int = Field(200, ge=1, description="Different queries; none of them is in the index.")
    clusters: int = Field(200, ge=1, description="Overlapping clusters that vectors and queries are drawn from.")
    data_seed: int = Field(0, ge=0, description="Seed of the data; the same for all trials, so that truth is cached.")
    metric: Literal["l2", "ip"] = Field("l2", description="l2, or ip: inner product of normalised vectors.")
    k: int = Field(10, ge=1, description="Neighbours a query asks for.")
    threads: int = Field(1, ge=1, description="Threads of the engine; most indexes use one a query of a batch.")
    batch: int = Field(1, ge=1, description="Queries a call.")
    warmup: int = Field(1, ge=0, description="Passes over the queries that are not measured.")
    duration: Seconds = Field(1.0, description="Whole passes are made until it is over.")
    passes: int | None = Field(None, ge=1, description="Exactly so many measured passes, whatever the duration.")

    @model_validator(mode="after")
    def _k_fits(self) -> "VectorWorkload":
        if self.k > self.vectors:
            raise ValueError(f"k {self.k} is more than the {self.vectors} vectors")
        return self


@experiment(
    "vector.search",
    version="0.1",
    metrics=METRICS,
    resources=Resources(cpus=1),
    component="vectordb",
    services=("faiss",),
)
def search(target: VectorTarget, workload: VectorWorkload, ctx: Context) -> None:
    """Build a vector index and search it: queries a second and latency, against recall and memory."""
    _check_fit(target, workload, ctx)
    engine = ctx.driver(target.driver)(threads=workload.threads)
    vectors, queries = synthetic(workload)
    truth = load_truth(workload, vectors, queries, ctx)
    try:
        _build(engine, target, workload, vectors, ctx)
        calls_ns, wall_s, answers = _measure(engine, workload, queries)
        stored = engine.stats()
    finally:
        engine.delete()
    if stored["vectors"] != len(vectors):
        ctx.fail("vectors_missing", f"the index holds {stored['vectors']} of {len(vectors)} vectors")
    ctx.emit("index_mb", stored["bytes"] / 1e6)
    ctx.emit("recall", recall(answers, truth, vectors, queries, workload))
    asked = len(calls_ns) // -(-len(queries) // workload.batch) * len(queries)
    ctx.emit("qps", asked / wall_s)
    samples = min(len(calls_ns), _LATENCY_SAMPLES)
    for number in range(samples):
        ctx.emit("latency", calls_ns[number * len(calls_ns) // samples] / 1e6)
    ctx.metadata(
        engine=f"{target.driver} {engine.version}",
        index={"kind": target.index, **target.options},
        queries_measured=asked,
        seconds=wall_s,
        latency_samples=samples,
        latency_max_ms=max(calls_ns) / 1e6,
    )


def _check_fit(target: VectorTarget, workload: VectorWorkload, ctx: Context) -> None:
    if target.index == "ivf" and target.nlist > workload.vectors:
        ctx.fail("index_does_not_fit", f"nlist {target.nlist} is more than the {workload.vectors} vectors")
    if target.index == "pq" and workload.dimensions % target.pq_m:
        ctx.fail("index_does_not_fit", f"pq_m {target.pq_m} does not divide the {workload.dimensions} dimensions")
    if target.index == "pq" and 2**target.pq_bits > workload.vectors:
        ctx.fail("index_does_not_fit", f"pq_bits {target.pq_bits} needs at least {2**target.pq_bits} vectors")


def _build(
    engine: Any, target: VectorTarget, workload: VectorWorkload, vectors: "NDArray[float32]", ctx: Context
) -> None:
    before = _resident_bytes()
    engine.create(workload.dimensions, workload.metric, target.index, target.options)
    started = perf_counter_ns()
    engine.ingest(vectors)
    ingested = perf_counter_ns()
    engine.build()
    built = perf_counter_ns()
    ctx.emit("memory_mb", (_resident_bytes() - before) / 1e6)
    ctx.emit("build_s", (built - ingested) / 1e9)
    ctx.emit("ingest_rate", len(vectors) / ((built - started) / 1e9))


def _measure(
    engine: Any, workload: VectorWorkload, queries: "NDArray[float32]"
) -> tuple[list[int], float, "NDArray[int64]"]:
    """Nanoseconds of each call, seconds of all of them together, and the answers of the first measured pass."""
    import numpy

    calls = [queries[start : start + workload.batch] for start in range(0, len(queries), workload.batch)]
    for _ in range(workload.warmup):
        for call in calls:
            engine.search(call, workload.k)
    answers: list[NDArray[int64]] = []
    calls_ns: list[int] = []
    passes = 0
    started = perf_counter_ns()
    deadline = started + int(workload.duration * 1e9)
    while passes < workload.passes if workload.passes else passes == 0 or perf_counter_ns() < deadline:
        for call in calls:
            sent = perf_counter_ns()
            found = engine.search(call, workload.k)
            calls_ns.append(perf_counter_ns() - sent)
            if passes == 0:
                answers.append(found)
        passes += 1
    return calls_ns, (perf_counter_ns() - started) / 1e9, numpy.concatenate(answers)


def _resident_bytes() -> int:
    """Resident memory, after what the allocator merely keeps for later has been given back."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
