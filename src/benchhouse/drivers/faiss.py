"""Driver `faiss`: an index of the FAISS library, inside this process."""

import threading
from collections.abc import Callable, Sequence
from math import isfinite
from time import sleep
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from benchhouse.drivers import vector_shared
from benchhouse.drivers.vector_shared import Ids, Vectors
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

_LOOK_AGAIN_S = 0.00005
_ROOM = 64  # answers of a thread for which room is made at a time


class Faiss(vector_shared.Driver):
    """An index that all threads share. Before `build`, `ingest` only collects; after it, vectors are added directly.

    FAISS cannot search while it adds, so an addition waits until no search runs, and delays new ones.
    """

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "ivf", "hnsw", "pq")

    def __init__(self, endpoint: str, collection: Collection) -> None:
        vector_shared.refuse_what_it_lacks(self, "faiss", collection)
        self._faiss = vector_shared.library("faiss", "faiss")
        self.version = str(self._faiss.__version__)
        self._collection, self._one = collection, (1, collection.dimensions)
        self._index: Any = None
        self._built = False
        self._waiting: list[Vectors] = []
        self._labels: list[Ids] = []
        self._count = 0  # of vectors that were ingested
        self._ids: Ids | None = None  # by position, if ids and positions differ
        self._chosen: dict[int, Any] = {}  # by `below`: search parameters, or for pq the mask of allowed vectors
        self._mine = threading.local()
        self._desks: list[SimpleNamespace] = []  # one per searching thread: whether it is busy
        self._looked_at: Sequence[Vectors] | None = None  # prepared calls that passed the check
        self._adding = False
        self._added = threading.Condition()

    def open(self) -> None:
        self._threads_of_this_one()

    def create(self) -> None:
        if self._index is not None:
            raise BenchError(f"the index {self._collection.name} has been created already")
        faiss, kind = self._faiss, self._collection.index
        size, options = self._collection.dimensions, self._collection.options
        metric = faiss.METRIC_L2 if self._collection.distance == "l2" else faiss.METRIC_INNER_PRODUCT
        if kind == "flat":
            self._index = faiss.IndexFlat(size, metric)
        elif kind == "ivf":
            self._index = faiss.index_factory(size, f"IVF{options['nlist']},Flat", metric)
            self._index.nprobe = options["nprobe"]
        elif kind == "hnsw":
            self._index = faiss.IndexHNSWFlat(size, options["m"], metric)
            self._index.hnsw.efConstruction = options["ef_construction"]
            self._index.hnsw.efSearch = options["ef_search"]
        else:
            self._index = faiss.IndexPQ(size, options["pq_m"], options["pq_bits"], metric)

    def _insert(self, first: int, vectors: Vectors, labels: Ids | None) -> None:
        if self._collection.distance == "cosine":
            vectors = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
        if first != self._count or self._ids is not None:
            before = numpy.arange(self._count) if self._ids is None else self._ids
            self._ids = numpy.concatenate((before, numpy.arange(first, first + len(vectors))))
        if labels is not None:
            self._labels.append(labels)
        if self._built:
            self._add(vectors)
        else:
            self._waiting.append(vectors)
        self._count += len(vectors)

    def build(self) -> None:
        if self._waiting:
            vectors = self._waiting[0] if len(self._waiting) == 1 else numpy.concatenate(self._waiting)
            self._waiting = []
            self._threads_of_this_one()
            if not self._index.is_trained:
                self._index.train(vectors)
            self._index.add(vectors)
        self._built = True

    def search(self, queries: Vectors, k: int, below: int | None = None) -> Ids:
        # The sum detects every NaN and infinity, without releasing the interpreter.
        if queries.shape[1:] != self._one[1:] or not isfinite(numpy.add.reduce(queries, None, "f8")):
            vector_shared.refuse_bad_vectors(queries, self._collection)
        return self._search(queries, k, below)

    def _search(self, queries: Vectors, k: int, below: int | None) -> Ids:
        desk = getattr(self._mine, "desk", None) or self._threads_of_this_one()
        desk.busy = True  # before the check: an addition first sets its flag, then checks the desks
        try:
            if self._adding:
                self._wait_for_additions(desk)
            # The length of a query does not change which vectors are nearest by cosine.
            nearest: Ids
            if below is None:
                nearest = self._index.search(queries, k)[1]
            elif self._collection.index == "pq":
                nearest = self._among(queries, k, self._let_through(below))
            else:
                nearest = self._index.search(queries, k, params=self._let_through(below))[1]
        finally:
            desk.busy = False
        return nearest if self._ids is None else self._by_id(nearest)

    def prepare(self, calls: Sequence[Vectors], k: int) -> Callable[[int], Ids] | None:
        """Return a function that passes single queries straight to the library, or None if these cannot.

        The Python code of FAISS's own `search` costs ten microseconds, because each search leaves cold caches behind.
        Room for answers is allocated for many at once.
        """
        if type(self).search is not _SEARCH or not self._are_single(calls):
            return None  # a subclass with its own search must be called
        desk, search, pointer = self._threads_of_this_one(), self._index.search_c, self._faiss.swig_ptr
        distances, whole = numpy.empty((1, k), numpy.float32), numpy.dtype(numpy.int64)
        nowhere = pointer(distances)  # unused, but required
        room: list[tuple[Ids, Any]] = []

        def search_one(number: int, _: Any = distances) -> Ids:  # the default argument keeps them alive
            if not room:
                room.extend([(row, pointer(row)) for row in [numpy.empty((1, k), whole) for _ in range(_ROOM)]])
            nearest, address = room.pop()
            desk.busy = True
            try:
                if self._adding:
                    self._wait_for_additions(desk)
                search(1, pointer(calls[number]), k, nowhere, address, None)
            finally:
                desk.busy = False
            return nearest if self._ids is None else self._by_id(nearest)

        return search_one

    def stats(self) -> VectorStats:
        """Return the statistics; the size is that of the file that FAISS would write."""
        return VectorStats(int(self._index.ntotal), int(self._faiss.serialize_index(self._index).nbytes))

    def delete(self) -> None:
        self._index, self._waiting, self._labels, self._built = None, [], [], False
        self._ids, self._count = None, 0
        self._chosen.clear()

    def close(self) -> None:
        pass

    def _add(self, vectors: Vectors) -> None:
        self._threads_of_this_one()
        self._adding = True
        try:
            while any(desk.busy for desk in self._desks):
                sleep(_LOOK_AGAIN_S)
            self._index.add(vectors)
            self._chosen.clear()
        finally:
            with self._added:
                self._adding = False
                self._added.notify_all()

    def _are_single(self, calls: Sequence[Vectors]) -> bool:
        """Return whether each call is one query in the library's memory layout. Raise BenchError for bad vectors."""
        if calls is not self._looked_at:
            if {call.shape for call in calls} != {self._one}:
                return False
            if not all(call.dtype == numpy.float32 and call.flags.c_contiguous for call in calls):
                return False
            vector_shared.refuse_bad_vectors(numpy.concatenate(calls), self._collection)
            self._looked_at = calls
        return True

    def _by_id(self, places: Ids) -> Ids:
        return numpy.where(places >= 0, self._ids[places], -1)  # type: ignore[index]

    def _wait_for_additions(self, desk: SimpleNamespace) -> None:
        while self._adding:
            desk.busy = False
            with self._added:
                self._added.wait_for(lambda: not self._adding)
            desk.busy = True

    def _threads_of_this_one(self) -> SimpleNamespace:
        """Set the number of threads, which OpenMP keeps per calling thread, and return this thread's desk."""
        self._faiss.omp_set_num_threads(self._collection.threads)
        desk: SimpleNamespace | None = getattr(self._mine, "desk", None)
        if desk is None:
            desk = self._mine.desk = SimpleNamespace(busy=False)
            self._desks.append(desk)
        return desk

    def _let_through(self, below: int) -> Any:
        """Return search parameters that select vectors with labels below that number; for pq, a mask instead."""
        if below not in self._chosen:
            vector_shared.refuse_filter_without_labels(below, self._collection)
            mask = numpy.concatenate(self._labels) < below
            self._chosen[below] = mask if self._collection.index == "pq" else self._selection(mask)
        return self._chosen[below]

    def _selection(self, mask: NDArray[numpy.bool_]) -> Any:
        faiss, options = self._faiss, self._collection.options
        bits = numpy.packbits(mask, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)
        if self._collection.index == "hnsw":
            chosen = faiss.SearchParametersHNSW(sel=selector, efSearch=options["ef_search"])
        elif self._collection.index == "ivf":
            chosen = faiss.SearchParametersIVF(sel=selector, nprobe=options["nprobe"])
        else:
            chosen = faiss.SearchParameters(sel=selector)
        chosen.kept = (selector, bits)  # FAISS only points at them
        return chosen

    def _among(self, queries: Vectors, k: int, mask: NDArray[numpy.bool_]) -> Ids:
        """Widen the search until enough of the nearest vectors pass the mask."""
        count = len(mask)
        enough, wide = min(k, int(mask.sum())), min(2 * k, count)
        while True:
            nearest = self._index.search(queries, max(wide, 1))[1]
            good = (nearest >= 0) & mask[nearest]
            if wide >= count or (good.sum(axis=1) >= enough).all():
                break
            wide = min(4 * wide, count)
        order = numpy.argsort(~good, axis=1, kind="stable")[:, :k]
        chosen = numpy.full((len(queries), k), -1, dtype=numpy.int64)
        kept = numpy.take_along_axis(numpy.where(good, nearest, -1), order, axis=1)
        chosen[:, : kept.shape[1]] = kept
        return chosen


_SEARCH = Faiss.search
