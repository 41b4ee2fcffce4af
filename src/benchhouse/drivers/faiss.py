"""Driver `faiss`: an index of the FAISS library, inside this process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray


class Faiss:
    """create, ingest (any number of times), build, search, stats, delete: in that order."""

    def __init__(self, threads: int = 1) -> None:
        try:
            import faiss
        except ImportError as error:
            raise BenchError(
                "the faiss driver needs the FAISS library", hint="pip install 'benchhouse[faiss]'"
            ) from error
        self._faiss: Any = faiss
        self._index: Any = None
        self._waiting: list[NDArray[float32]] = []
        faiss.omp_set_num_threads(threads)

    @property
    def version(self) -> str:
        return str(self._faiss.__version__)

    def create(self, dimensions: int, metric: Literal["l2", "ip"], index: str, options: Mapping[str, int]) -> None:
        """An empty index. `options`: nlist, nprobe (ivf); m, ef_construction, ef_search (hnsw); pq_m, pq_bits (pq)."""
        faiss = self._faiss
        measure = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
        if index == "flat":
            self._index = faiss.IndexFlat(dimensions, measure)
        elif index == "ivf":
            self._index = faiss.index_factory(dimensions, f"IVF{options['nlist']},Flat", measure)
            self._index.nprobe = options["nprobe"]
        elif index == "hnsw":
            self._index = faiss.IndexHNSWFlat(dimensions, options["m"], measure)
            self._index.hnsw.efConstruction = options["ef_construction"]
            self._index.hnsw.efSearch = options["ef_search"]
        elif index == "pq":
            self._index = faiss.IndexPQ(dimensions, options["pq_m"], options["pq_bits"], measure)
        else:
            raise BenchError(f"the faiss driver has no index {index!r}", hint="choose flat, ivf, hnsw or pq")

    def ingest(self, vectors: "NDArray[float32]") -> None:
        """Hand over vectors; their ids are their positions in the order of ingestion."""
        self._waiting.append(vectors)

    def build(self) -> None:
        """Train where the index needs it and make everything ingested searchable."""
        import numpy

        vectors = self._waiting[0] if len(self._waiting) == 1 else numpy.concatenate(self._waiting)
        self._waiting = []
        if not self._index.is_trained:
            self._index.train(vectors)
        self._index.add(vectors)

    def search(self, queries: "NDArray[float32]", k: int) -> "NDArray[int64]":
        """Ids of the k nearest of each query, best first; -1 where fewer were found."""
        ids: NDArray[int64] = self._index.search(queries, k)[1]
        return ids

    def stats(self) -> dict[str, int]:
        """`vectors` in the index and its size in `bytes`, as FAISS would write it to a file."""
        return {"vectors": int(self._index.ntotal), "bytes": int(self._faiss.serialize_index(self._index).nbytes)}

    def delete(self) -> None:
        self._index, self._waiting = None, []
