"""Exact nearest neighbors: a search in float32 proposes candidates; float64 ranks them and proves that none is missing.

FAISS does the search if it is installed, otherwise NumPy. Both give the same neighbors; NumPy takes up to two and a
half times the CPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
from numpy import bool_, float32, float64, int64
from numpy.typing import NDArray

from benchhouse.load.protocols.vector import Distance

Ids = NDArray[int64]
Rows = NDArray[float32]
Scan = Callable[[Rows, Rows, int, bool], tuple[Rows, Ids]]
"""A function of queries, vectors, a number, and whether to rank by inner product instead of squared distance. It
returns that many vectors with the least costs for each query, in any order. The cost of an inner product is its
negative."""

_SPARE, _WIDER = 32, 8  # candidates beyond k at first; factor for a second try if they prove too few
_BLOCK_VALUES = 2**24  # of float32 vectors at a time
_PRODUCTS = 2**22  # of NumPy's search at a time
_EXACT_VALUES = 2**21  # of float64 at a time


def nearest(
    vectors: Rows, queries: Rows, k: int, distance: Distance, among: Ids | None = None, scan: Scan | None = None
) -> Ids:
    """Return the ids of the k nearest of each query, nearest first; of two equally near ones, the lower id comes first.

    Only the ids in `among`, ascending, count. The id is -1 if there are fewer than k. Memory does not grow with the
    number of vectors, which may be mapped from a file. `scan` proposes the candidates; it does not change the result.
    """
    ids = numpy.arange(len(vectors)) if among is None else among
    result = numpy.full((len(queries), k), -1, dtype=numpy.int64)
    depth = min(k, len(ids))
    if not depth:
        return result
    search = _NeighborSearch(vectors, ids, distance, _centre(vectors, distance), scan or best_scan())
    unproven = numpy.arange(len(queries))
    for width in (depth + _SPARE, _WIDER * (depth + _SPARE)):
        ranked, proven = search.rank(queries[unproven], depth, min(width, len(ids)))
        result[unproven[proven], :depth] = ranked[proven]
        unproven = unproven[~proven]
        if not len(unproven):
            return result
    for number in unproven:  # many vectors are nearly equally near: compare all in float64
        result[number, :depth] = search.rank_all(queries[number : number + 1], depth)
    return result


def costs(ids: Ids, vectors: Rows, queries: Rows, distance: Distance) -> NDArray[float64]:
    """Return the cost of each id for its query, in float64: squared distance, of normalized vectors for cosine, or the
    negative inner product. Less is nearer; the cost is infinite if the id is negative."""
    result = numpy.empty(ids.shape)
    rows = max(1, _EXACT_VALUES // max(ids.shape[1] * vectors.shape[1], 1))
    for start in range(0, len(ids), rows):
        part = ids[start : start + rows]
        near = _direction(vectors[part].astype(numpy.float64), distance)
        query = _direction(queries[start : start + rows].astype(numpy.float64), distance)[:, :, None]
        if distance == "ip":
            result[start : start + rows] = -(near @ query)[:, :, 0]
        else:
            near -= query.transpose(0, 2, 1)
            result[start : start + rows] = numpy.einsum("qvd,qvd->qv", near, near)
    result[ids < 0] = numpy.inf
    return result


def best_scan() -> Scan:
    """Return the scan of FAISS if it is installed, otherwise that of NumPy."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        return numpy_scan
    return faiss_scan


def faiss_scan(queries: Rows, vectors: Rows, width: int, inner: bool) -> tuple[Rows, Ids]:
    import faiss

    index = faiss.IndexFlat(vectors.shape[1], faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2)
    index.add(vectors)
    scores, places = index.search(queries, width)
    return -scores if inner else scores, places


def numpy_scan(queries: Rows, vectors: Rows, width: int, inner: bool) -> tuple[Rows, Ids]:
    lengths = numpy.zeros(len(vectors), numpy.float32) if inner else numpy.einsum("vd,vd->v", vectors, vectors)
    scores = numpy.empty((len(queries), width), dtype=numpy.float32)
    places = numpy.empty((len(queries), width), dtype=numpy.int64)
    rows = max(1, _PRODUCTS // len(vectors))
    for start in range(0, len(queries), rows):
        part = queries[start : start + rows]
        cost = part @ vectors.T * numpy.float32(-1 if inner else -2)
        cost += lengths
        if not inner:
            cost += numpy.einsum("qd,qd->q", part, part)[:, None]
        best = numpy.argpartition(cost, width - 1, axis=1)[:, :width]
        places[start : start + rows] = best
        scores[start : start + rows] = numpy.take_along_axis(cost, best, axis=1)
    return scores, places


@dataclass(frozen=True)
class _NeighborSearch:
    vectors: Rows
    ids: Ids  # of the vectors that count, ascending
    distance: Distance
    centre: Rows | None  # subtracted from vectors and queries before the search in float32
    scan: Scan

    def rank(self, queries: Rows, depth: int, width: int) -> tuple[Ids, NDArray[bool_]]:
        """Return the nearest among `width` candidates of each query, and whether they are proven: the furthest is
        nearer than any vector outside of the candidates can be, however float32 has rounded its cost."""
        candidates, beyond = self._candidates(queries, width)
        exact = costs(candidates, self.vectors, queries, self.distance)
        order = numpy.lexsort((candidates, exact), axis=1)[:, :depth]
        last = numpy.take_along_axis(exact, order[:, -1:], axis=1)[:, 0]
        proven: NDArray[bool_] = (last < beyond) | (width == len(self.ids))
        return numpy.take_along_axis(candidates, order, axis=1), proven

    def rank_all(self, query: Rows, depth: int) -> Ids:
        """Return the nearest of one query, by comparing it with all vectors in float64."""
        rows = max(1, _EXACT_VALUES // self.vectors.shape[1])
        blocks = [self.ids[start : start + rows] for start in range(0, len(self.ids), rows)]
        exact = numpy.concatenate([costs(ids[None], self.vectors, query, self.distance)[0] for ids in blocks])
        return self.ids[numpy.lexsort((self.ids, exact))[:depth]]

    def _candidates(self, queries: Rows, width: int) -> tuple[Ids, NDArray[float64]]:
        """Return the ids with the least costs in float32, and the true cost that every other vector exceeds."""
        prepared = self._prepared(queries)
        ids = numpy.zeros((len(queries), 0), dtype=numpy.int64)
        scores = numpy.zeros((len(queries), 0), dtype=numpy.float32)
        longest = 0.0
        for block_ids, block in self._blocks():
            longest = max(longest, float(numpy.sqrt(numpy.einsum("vd,vd->v", block, block).max())))
            block_scores, places = self.scan(prepared, block, min(width, len(block)), self.distance == "ip")
            scores = numpy.concatenate((scores, block_scores), axis=1)
            ids = numpy.concatenate((ids, block_ids[places]), axis=1)
            if ids.shape[1] > width:
                best = numpy.argpartition(scores, width - 1, axis=1)[:, :width]
                scores = numpy.take_along_axis(scores, best, axis=1)
                ids = numpy.take_along_axis(ids, best, axis=1)
        own = numpy.linalg.norm(prepared.astype(numpy.float64), axis=1)
        # No product or distance of this number of terms is off by more than this share of the product of the lengths.
        share = float(numpy.finfo(numpy.float32).eps) * (self.vectors.shape[1] + 8)
        slack = share * (own * longest if self.distance == "ip" else (own + longest) ** 2)
        return ids, scores.max(axis=1) - slack

    def _blocks(self) -> Iterator[tuple[Ids, Rows]]:
        rows = max(1, _BLOCK_VALUES // self.vectors.shape[1])
        for start in range(0, len(self.ids), rows):
            ids = self.ids[start : start + rows]
            together = ids[-1] - ids[0] == len(ids) - 1
            yield ids, self._prepared(self.vectors[ids[0] : ids[-1] + 1] if together else self.vectors[ids])

    def _prepared(self, rows: Rows) -> Rows:
        made = _direction(rows, self.distance)
        made = made if self.centre is None else made - self.centre
        return numpy.ascontiguousarray(made, dtype=numpy.float32)


def _centre(vectors: Rows, distance: Distance) -> Rows | None:
    """Return the center of the data: subtracting it keeps distances, and more of their digits in float32."""
    if distance == "ip":
        return None
    sample = _direction(vectors[:: max(1, len(vectors) // 10_000)], distance)
    middle: Rows = sample.mean(axis=0, dtype=numpy.float64).astype(numpy.float32)
    return middle


def _direction(vectors: NDArray[Any], distance: Distance) -> NDArray[Any]:
    """Return the vectors; for cosine with length 1, in float64."""
    if distance != "cosine":
        return vectors
    exact = vectors.astype(numpy.float64, copy=False)
    unit: NDArray[float64] = exact / numpy.linalg.norm(exact, axis=-1, keepdims=True)
    return unit
