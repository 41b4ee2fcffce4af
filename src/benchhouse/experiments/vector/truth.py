"""Exact nearest neighbours by brute force: float32 products choose candidates with room to spare, float64 decides."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchhouse.load.protocols.vector import Distance

if TYPE_CHECKING:
    from numpy import float32, float64, int64
    from numpy.typing import NDArray

_QUERIES = 1024  # at a time
_FIRST_VECTORS, _VECTORS = 2048, 4096  # at a time; the first ones only give a bound
_CROWD = 1000  # candidates of a query beyond which they are ranked before all have been seen
_EXACT_VALUES = 2**21  # of float64 at a time


def nearest(
    vectors: "NDArray[float32]",
    queries: "NDArray[float32]",
    k: int,
    distance: Distance,
    among: "NDArray[int64] | None" = None,
) -> "NDArray[int64]":
    """Ids of the k nearest of each query, nearest first, the lower id first where two are equally near.

    `among` are the only ids that count, ascending. -1 where there are fewer than k. Memory does not grow with the
    number of vectors, which may be mapped from a file.
    """
    import numpy

    count = len(vectors) if among is None else len(among)
    found = numpy.full((len(queries), k), -1, dtype=numpy.int64)
    if not count:
        return found
    centre = _centre(vectors, distance)
    for start in range(0, len(queries), _QUERIES):
        block = queries[start : start + _QUERIES]
        near = _Candidates(block, vectors, min(k, count), distance, centre)
        for first, last in _blocks(count):
            near.look_at(numpy.arange(first, last) if among is None else among[first:last])
        found[start : start + len(block), : min(k, count)] = near.ranked()
    return found


def costs(
    ids: "NDArray[int64]", vectors: "NDArray[float32]", queries: "NDArray[float32]", distance: Distance
) -> "NDArray[float64]":
    """How far each query is from its vectors, in float64: squared distance, of normalised vectors for cosine, or the
    negative inner product. Less is nearer; infinite where the id is negative.
    """
    import numpy

    found = numpy.empty(ids.shape)
    rows = max(1, _EXACT_VALUES // max(ids.shape[1] * vectors.shape[1], 1))
    for start in range(0, len(ids), rows):
        part = ids[start : start + rows]
        near = _direction(vectors[part].astype(numpy.float64), distance)
        asked = _direction(queries[start : start + rows].astype(numpy.float64), distance)[:, :, None]
        if distance == "ip":
            found[start : start + rows] = -(near @ asked)[:, :, 0]
        else:
            near -= asked.transpose(0, 2, 1)
            found[start : start + rows] = numpy.einsum("qvd,qvd->qv", near, near)
    found[ids < 0] = numpy.inf
    return found


class _Candidates:
    """The vectors that may be among the k nearest of each query of a block, by scores in float32: more is nearer.

    A score is off by at most a slack that is known, so that whoever is two slacks below the k-th best score is out.
    """

    def __init__(
        self,
        queries: "NDArray[float32]",
        vectors: "NDArray[float32]",
        k: int,
        distance: Distance,
        centre: "NDArray[float32] | None",
    ) -> None:
        import numpy

        self._asked, self._vectors, self._k, self._distance, self._centre = queries, vectors, k, distance, centre
        self._queries = _prepared_queries(queries, centre, distance)
        own = self._queries if centre is None else self._queries[:, :-1]
        self._sizes = numpy.linalg.norm(own.astype(numpy.float64), axis=1)
        self._relative = float(numpy.finfo(numpy.float32).eps) * (vectors.shape[1] + 8)  # of a sum of so many products
        self._longest = 0.0  # of the vectors so far
        self._ids = numpy.zeros((len(queries), 0), dtype=numpy.int64)
        self._scores = numpy.zeros((len(queries), 0), dtype=numpy.float32)

    def look_at(self, ids: "NDArray[int64]") -> None:
        """Vectors with higher ids than those before."""
        import numpy

        part = self._vectors[ids[0] : ids[-1] + 1] if ids[-1] - ids[0] == len(ids) - 1 else self._vectors[ids]
        made = _prepared_vectors(part, self._centre, self._distance)
        own = made if self._centre is None else made[:, :-1]
        self._longest = max(self._longest, float(numpy.sqrt(numpy.einsum("vd,vd->v", own, own).max())))
        scores = self._queries @ made.T
        if self._scores.shape[1] < self._k:
            new_ids, new_scores = numpy.broadcast_to(ids, scores.shape), scores
        else:
            rows, columns = numpy.nonzero(scores >= self._lowest()[:, None])
            new_ids, new_scores = _padded(rows, ids[columns], scores[rows, columns], len(scores))
        self._keep(
            numpy.concatenate((self._ids, new_ids), axis=1), numpy.concatenate((self._scores, new_scores), axis=1)
        )

    def ranked(self) -> "NDArray[int64]":
        """The k nearest, by float64."""
        import numpy

        return numpy.take_along_axis(self._ids, self._order(), axis=1)

    def _order(self) -> "NDArray[int64]":
        import numpy

        far = costs(self._ids, self._vectors, self._asked, self._distance)
        order: NDArray[int64] = numpy.lexsort((self._ids, far), axis=1)[:, : self._k]
        return order

    def _lowest(self) -> "NDArray[float32]":
        """The score below which nobody can be among the k nearest."""
        import numpy

        products = self._sizes * self._longest + (0.0 if self._centre is None else self._longest**2 / 2)
        low: NDArray[float32] = (self._bound - 2 * self._relative * products).astype(numpy.float32)
        numpy.nextafter(low, numpy.float32(-numpy.inf), out=low)
        return low

    def _keep(self, ids: "NDArray[int64]", scores: "NDArray[float32]") -> None:
        import numpy

        self._ids, self._scores = ids, scores
        width = scores.shape[1]
        if width < self._k:
            return
        self._bound = numpy.partition(scores, width - self._k, axis=1)[:, width - self._k].astype(numpy.float64)
        rows, columns = numpy.nonzero(scores >= self._lowest()[:, None])
        self._ids, self._scores = _padded(rows, ids[rows, columns], scores[rows, columns], len(scores))
        if self._ids.shape[1] > 2 * self._k + _CROWD:  # nearly all are equally near: float64 decides at once
            order = self._order()
            self._ids = numpy.take_along_axis(self._ids, order, axis=1)
            self._scores = numpy.take_along_axis(self._scores, order, axis=1)


def _padded(
    rows: "NDArray[int64]", ids: "NDArray[int64]", scores: "NDArray[float32]", height: int
) -> "tuple[NDArray[int64], NDArray[float32]]":
    """What was found, row by row from the left; -1 and -infinity to the right of it. `rows` are ascending."""
    import numpy

    counts = numpy.bincount(rows, minlength=height)
    places = numpy.arange(len(rows)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    wide = int(counts.max(initial=0))
    all_ids = numpy.full((height, wide), -1, dtype=numpy.int64)
    all_scores = numpy.full((height, wide), -numpy.inf, dtype=numpy.float32)
    all_ids[rows, places] = ids
    all_scores[rows, places] = scores
    return all_ids, all_scores


def _blocks(count: int) -> "list[tuple[int, int]]":
    edges = [0, *range(_FIRST_VECTORS, count, _VECTORS), count]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def _centre(vectors: "NDArray[float32]", distance: Distance) -> "NDArray[float32] | None":
    """The middle of the data: distances don't change when it is taken off, and float32 keeps more of their digits."""
    import numpy

    if distance != "l2":
        return None
    sample = vectors[:: max(1, len(vectors) // 10_000)]
    middle: NDArray[float32] = sample.mean(axis=0, dtype=numpy.float64).astype(numpy.float32)
    return middle


def _prepared_vectors(
    part: "NDArray[float32]", centre: "NDArray[float32] | None", distance: Distance
) -> "NDArray[float32]":
    """So that the inner product with a prepared query ranks by nearness: for l2, with half the squared length."""
    import numpy

    if centre is None:
        return _direction(part, distance).astype(numpy.float32, copy=False)
    made = numpy.empty((len(part), part.shape[1] + 1), dtype=numpy.float32)
    numpy.subtract(part, centre, out=made[:, :-1])
    made[:, -1] = numpy.einsum("vd,vd->v", made[:, :-1], made[:, :-1], dtype=numpy.float64) / -2
    return made


def _prepared_queries(
    queries: "NDArray[float32]", centre: "NDArray[float32] | None", distance: Distance
) -> "NDArray[float32]":
    import numpy

    if centre is None:
        return _direction(queries, distance).astype(numpy.float32, copy=False)
    return numpy.hstack((queries - centre, numpy.ones((len(queries), 1), dtype=numpy.float32)))


def _direction(vectors: "NDArray[Any]", distance: Distance) -> "NDArray[Any]":
    import numpy

    return vectors / numpy.linalg.norm(vectors, axis=-1, keepdims=True) if distance == "cosine" else vectors
