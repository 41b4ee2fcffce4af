"""Synthetic vectors, their exact nearest neighbours by brute force, and recall against them."""

from typing import TYPE_CHECKING, Literal, Protocol

from benchhouse.schema.digests import digest
from benchhouse.schema.experiment import Context

if TYPE_CHECKING:
    from pathlib import Path

    from numpy import float32, float64, int64
    from numpy.typing import NDArray

_GENERATOR = 1  # part of the cache key: raise it whenever the data or the truth change
_SPREAD = 0.5  # of cluster centres, in standard deviations of a cluster: they overlap
_DECAY = 0.5  # variance falls as 1/rank, as in learned embeddings
_TIE = 1e-5
_BLOCK_VALUES = 2**24  # distances in memory at a time


class Workload(Protocol):
    """What decides data and truth."""

    @property
    def vectors(self) -> int: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def clusters(self) -> int: ...
    @property
    def data_seed(self) -> int: ...
    @property
    def metric(self) -> Literal["l2", "ip"]: ...
    @property
    def k(self) -> int: ...


def synthetic(workload: Workload) -> "tuple[NDArray[float32], NDArray[float32]]":
    """Vectors and queries of one distribution: overlapping clusters with a decaying spectrum, rotated.

    Hard on purpose: far-apart clusters would let every index reach recall 1.0.
    """
    import numpy

    rng = numpy.random.default_rng(workload.data_seed)
    count, dimensions = workload.vectors + workload.queries, workload.dimensions
    scale = numpy.arange(1, dimensions + 1, dtype=numpy.float32) ** -_DECAY
    centres = rng.standard_normal((workload.clusters, dimensions), dtype=numpy.float32) * _SPREAD
    points = rng.standard_normal((count, dimensions), dtype=numpy.float32)
    points += centres[rng.integers(0, workload.clusters, count)]
    points *= scale
    rotation = numpy.linalg.qr(rng.standard_normal((dimensions, dimensions)))[0]
    points = numpy.ascontiguousarray(points @ rotation.astype(numpy.float32))
    if workload.metric == "ip":
        points /= numpy.linalg.norm(points, axis=1, keepdims=True)
    return points[: workload.vectors], points[workload.vectors :]


def load_truth(
    workload: Workload, vectors: "NDArray[float32]", queries: "NDArray[float32]", ctx: Context
) -> "NDArray[int64]":
    """Ids of the k nearest vectors of each query, best first; computed once, then from the cache."""
    import numpy

    fields = ("vectors", "dimensions", "queries", "clusters", "data_seed", "metric", "k")
    key = digest({"generator": _GENERATOR} | {name: getattr(workload, name) for name in fields})

    def make(path: "Path") -> None:
        with path.open("wb") as file:
            numpy.save(file, nearest(vectors, queries, workload.k, workload.metric))

    with ctx.cache.build(f"vector-truth-{key.removeprefix('sha256:')[:32]}.npy", make).open("rb") as file:
        truth: NDArray[int64] = numpy.load(file, allow_pickle=False)
    return truth


def nearest(
    vectors: "NDArray[float32]", queries: "NDArray[float32]", k: int, metric: Literal["l2", "ip"]
) -> "NDArray[int64]":
    """Exact k nearest by brute force, in float64."""
    import numpy

    exact = vectors.astype(numpy.float64)
    half_norms = (exact**2).sum(axis=1) / 2 if metric == "l2" else numpy.zeros(len(exact))
    rows = max(1, _BLOCK_VALUES // len(exact))
    found = []
    for start in range(0, len(queries), rows):
        costs = half_norms - queries[start : start + rows].astype(numpy.float64) @ exact.T
        candidates = numpy.argpartition(costs, k - 1, axis=1)[:, :k]
        order = numpy.take_along_axis(costs, candidates, axis=1).argsort(axis=1, kind="stable")
        found.append(numpy.take_along_axis(candidates, order, axis=1))
    return numpy.concatenate(found).astype(numpy.int64)


def recall(
    answers: "NDArray[int64]",
    truth: "NDArray[int64]",
    vectors: "NDArray[float32]",
    queries: "NDArray[float32]",
    workload: Workload,
) -> float:
    """Mean share of the true k that was found. Equally near vectors are equally right; a repeated id counts once."""
    import numpy

    furthest = _costs(truth[:, -1:], vectors, queries, workload.metric)
    limit = furthest + _TIE * numpy.maximum(numpy.abs(furthest), 1e-12)
    ordered = numpy.sort(answers, axis=1)
    fresh = numpy.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    right = fresh & (ordered >= 0) & (_costs(ordered, vectors, queries, workload.metric) <= limit)
    return float(numpy.minimum(right.sum(axis=1), truth.shape[1]).mean() / truth.shape[1])


def _costs(
    ids: "NDArray[int64]", vectors: "NDArray[float32]", queries: "NDArray[float32]", metric: Literal["l2", "ip"]
) -> "NDArray[float64]":
    """Squared distance, or for inner products their negative, of each query to its vectors: less is nearer."""
    import numpy

    near = vectors[ids].astype(numpy.float64)
    asked = queries[:, None, :].astype(numpy.float64)
    costs: NDArray[float64] = ((near - asked) ** 2).sum(axis=2) if metric == "l2" else -(near * asked).sum(axis=2)
    return costs
