"""Driver `lancedb`: LanceDB, which runs inside this process and keeps its table in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, Distance, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

_DISTANCES = {"l2": "l2", "ip": "dot", "cosine": "cosine"}


class LanceDB:
    """A folder of its own for each collection. hnsw and pq are LanceDB's, over a single cell: nothing is left out."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "ivf", "hnsw", "pq")
    distances: ClassVar[tuple[Distance, ...]] = ("l2", "ip", "cosine")
    filters: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    recipe: ClassVar[str] = ""

    def __init__(self, endpoint: str, collection: Collection) -> None:
        if shared.is_address(endpoint):
            raise BenchError(f"lancedb runs inside this process: {endpoint!r} is not a folder")
        shared.refuse_what_it_lacks(self, "lancedb", collection)
        self._lancedb = shared.library("lancedb", "lancedb")
        self._collection = collection
        self._home = Path(endpoint) / collection.name
        self._made = False
        self._table: Any = None

    @property
    def version(self) -> str:
        return str(self._lancedb.__version__)

    def open(self) -> None:
        if self._home.exists() and not self._made:  # one that an earlier object has made
            self._table = self._call(lambda: self._lancedb.connect(self._home).open_table("vectors"))

    def create(self) -> None:
        import pyarrow

        shared.claim(self._home)
        vector = pyarrow.list_(pyarrow.float32(), self._collection.dimensions)
        self._schema = pyarrow.schema([("id", pyarrow.int64()), ("label", pyarrow.int64()), ("vector", vector)])
        self._made = True
        self._table = self._call(lambda: self._lancedb.connect(self._home).create_table("vectors", schema=self._schema))

    def ingest(self, first: int, vectors: "NDArray[float32]", labels: "NDArray[int64] | None") -> None:
        import numpy
        import pyarrow

        shared.refuse_bad_vectors(vectors, self._collection)
        flat = pyarrow.array(numpy.ascontiguousarray(vectors).reshape(-1), pyarrow.float32())
        rows = {
            "id": numpy.arange(first, first + len(vectors)),
            "label": numpy.zeros(len(vectors), numpy.int64) if labels is None else labels,
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, self._collection.dimensions),
        }
        self._call(lambda: self._table.add(pyarrow.table(rows, schema=self._schema)))

    def build(self) -> None:
        if not self._table.count_rows():
            return
        if self._collection.labels:
            self._call(lambda: self._table.create_index("label", config=self._lancedb.index.BTree()))
        if self._collection.index != "flat":
            self._call(lambda: self._table.create_index("vector", config=self._index()))

    def _index(self) -> Any:
        kinds, options = self._lancedb.index, self._collection.options
        distance = _DISTANCES[self._collection.distance]
        if self._collection.index == "ivf":
            return kinds.IvfFlat(distance_type=distance, num_partitions=options["nlist"])
        if self._collection.index == "hnsw":
            return kinds.HnswFlat(
                distance_type=distance, num_partitions=1, m=options["m"], ef_construction=options["ef_construction"]
            )
        return kinds.IvfPq(
            distance_type=distance, num_partitions=1, num_sub_vectors=options["pq_m"], num_bits=options["pq_bits"]
        )

    def search(self, queries: "NDArray[float32]", k: int, below: int | None = None) -> "NDArray[int64]":
        shared.refuse_bad_vectors(queries, self._collection)
        shared.refuse_filter_without_labels(below, self._collection)
        return shared.as_rows((self._ids(query, k, below) for query in queries), k)

    def _ids(self, query: "NDArray[float32]", k: int, below: int | None) -> list[int]:
        options = self._collection.options
        asked = self._table.search(query, vector_column_name="vector")
        asked = asked.distance_type(_DISTANCES[self._collection.distance]).limit(k).select(["id", "_distance"])
        if below is not None:
            asked = asked.where(f"label < {int(below)}", prefilter=True)
        if self._collection.index == "ivf":
            asked = asked.nprobes(options["nprobe"])
        elif self._collection.index == "hnsw":
            asked = asked.nprobes(1).ef(max(options["ef_search"], k))
        ids: list[int] = self._call(lambda: asked.to_arrow()["id"].to_pylist())
        return ids

    def stats(self) -> VectorStats:
        return VectorStats(self._call(lambda: self._table.count_rows()), shared.folder_bytes(self._home))

    def delete(self) -> None:
        import shutil

        self._table = None
        if self._made:
            shutil.rmtree(self._home, ignore_errors=True)
            self._made = False

    def close(self) -> None:
        self._table = None

    @staticmethod
    def _call(action: Any) -> Any:
        try:
            return action()
        except (ValueError, RuntimeError, OSError) as error:  # what the library raises, whatever went wrong
            raise CallFailed("server_error", str(error)[:500]) from error
