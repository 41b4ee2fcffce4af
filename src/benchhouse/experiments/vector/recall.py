"""The true neighbors of a workload, from the cache, and the share of them that was found."""

from dataclasses import dataclass
from pathlib import Path

import numpy
from numpy import bool_, float64
from numpy.typing import NDArray

from benchhouse.experiments.vector.data import VectorDataset
from benchhouse.experiments.vector.truth import Ids, costs, nearest
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.load.protocols.vector import LABELS, Distance
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Cache

_VERSION = 3  # part of the cache key: increase it whenever the truth changes
_DEPTH = 100  # computed neighbors, at least, so that all k up to it share one file
_SAMPLE = 20  # queries whose given neighbors are checked
_TIE = 1e-5
_ALIKE = 0.99


def labels(vectors: int) -> Ids:
    """Return a random label for each vector, uniformly distributed."""
    return numpy.random.default_rng(LABELS).integers(0, LABELS, vectors)


def load_truth(data: VectorDataset, workload: VectorWorkload, cache: Cache) -> Ids:
    """Return ids of at least the k nearest of each query, best first, -1 if there are fewer; computed once."""
    if data.truth is not None and workload.below is None and data.truth.shape[1] >= workload.k:
        check_given(data, workload)
        return data.truth
    depth = min(max(workload.k, _DEPTH), len(data.vectors))
    parts = {"data": data.digest, "distance": workload.distance, "k": depth, "below": workload.below}
    key = digest({"version": _VERSION, **parts})
    among = None if workload.below is None else numpy.flatnonzero(labels(len(data.vectors)) < workload.below)

    def make(path: Path) -> None:
        with path.open("wb") as file:
            numpy.save(file, nearest(data.vectors, data.queries, depth, workload.distance, among).astype(numpy.int32))

    path = cache.build(f"vector-truth-{key[:32]}.npy", make)
    with path.open("rb") as file:
        truth: Ids = numpy.load(file, allow_pickle=False).astype(numpy.int64)
    return truth


def check_given(data: VectorDataset, workload: VectorWorkload) -> None:
    """Raise BenchError if the given neighbors are wrong: often they are those of another distance or data set."""
    assert data.truth is not None
    queries = data.queries[:_SAMPLE]
    exact = nearest(data.vectors, queries, workload.k, workload.distance)
    marks = limits(exact, data, workload)[0][: len(queries)]
    right = score(data.truth[:_SAMPLE, : workload.k], slice(0, _SAMPLE), marks, data, workload.distance)
    if right.mean() < _ALIKE * workload.k:
        raise BenchError(
            f"the neighbours that come with the data are not the nearest by {workload.distance}: of the first "
            f"{len(queries)} queries' {workload.k} nearest they have {right.mean() / workload.k:.0%}",
            "is workload.distance that of the data? or leave them out, and they are computed",
        )


@dataclass(frozen=True)
class Recall:
    """Share of the true neighbors that was found, for each query."""

    shares: NDArray[float64]
    strangers: int  # answers that are not ids of the index, or that the filter forbids

    @property
    def mean(self) -> float:
        return float(self.shares.mean())

    @property
    def standard_error(self) -> float:
        return float(self.shares.std(ddof=1) / len(self.shares) ** 0.5) if len(self.shares) > 1 else 0.0


def recall(
    answers: Ids, asked: Ids, truth: Ids, data: VectorDataset, workload: VectorWorkload, known: Ids | None = None
) -> Recall:
    """Return the recall of the answers to the queries with the numbers `asked`. Equally near vectors are equally right;
    a repeated id counts once. `known`: number of vectors, from the first, that were acknowledged at the time of each
    query."""
    best = truth[asked, : workload.k] if known is None else _of_the_known(asked, truth, known, data, workload)
    marks, there = limits(best, data, workload, asked)
    allowed = None if workload.below is None else labels(len(data.vectors)) < workload.below
    outside = (answers >= len(data.vectors)) | (answers < -1)
    if allowed is not None:
        outside |= (answers >= 0) & ~allowed[numpy.where(outside, 0, answers)]
    right = score(numpy.where(outside, -1, answers), asked, marks, data, workload.distance)
    some = there > 0
    return Recall(numpy.minimum(right[some], there[some]) / there[some], int(outside.sum()))


def limits(
    best: Ids, data: VectorDataset, workload: VectorWorkload, asked: Ids | None = None
) -> tuple[NDArray[float64], Ids]:
    """Return the cost of the furthest true neighbor of each query, and the number of true neighbors."""
    queries = data.queries[: len(best)] if asked is None else data.queries[asked]
    there = (best >= 0).sum(axis=1)
    last = numpy.take_along_axis(best, numpy.maximum(there - 1, 0)[:, None], axis=1)
    return costs(last, data.vectors, queries, workload.distance)[:, 0], there


def score(answers: Ids, asked: Ids | slice, marks: NDArray[float64], data: VectorDataset, distance: Distance) -> Ids:
    """Count the different answers of each query that are as near as its mark, within the error of float32."""
    ordered = numpy.sort(answers, axis=1)
    fresh: NDArray[bool_] = numpy.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    far = costs(ordered, data.vectors, data.queries[asked], distance)
    near = far <= (marks + _TIE * numpy.maximum(numpy.abs(marks), 1e-12))[:, None]
    counts: Ids = (fresh & (ordered >= 0) & near).sum(axis=1)
    return counts


def _of_the_known(asked: Ids, truth: Ids, known: Ids, data: VectorDataset, workload: VectorWorkload) -> Ids:
    """Return the k nearest among the first `known` vectors: from the truth, or computed exactly if it has too few."""
    best = numpy.full((len(asked), workload.k), -1, dtype=numpy.int64)
    for row, (query, count) in enumerate(zip(asked.tolist(), known.tolist(), strict=True)):
        ids = truth[query]
        ids = ids[(ids >= 0) & (ids < count)][: workload.k]
        if len(ids) < min(workload.k, count):
            ids = nearest(data.vectors[:count], data.queries[query : query + 1], workload.k, workload.distance)[0]
        best[row, : len(ids)] = ids
    return best
