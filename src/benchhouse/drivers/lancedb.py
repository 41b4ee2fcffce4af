"""Driver `lancedb`: LanceDB, which runs inside this process and keeps its table in a folder."""

from typing import Any, ClassVar

import numpy
import pyarrow

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

_DISTANCES = {"l2": "l2", "ip": "dot", "cosine": "cosine"}


class LanceDB(shared.DatabaseDriver):
    """A LanceDB table in its own folder. hnsw and pq are LanceDB's over a single partition: nothing is skipped."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "ivf", "hnsw", "pq")

    def __init__(self, endpoint: str, collection: Collection) -> None:
        if shared.is_address(endpoint):
            raise BenchError(f"lancedb runs inside this process: {endpoint!r} is not a folder")
        super().__init__("lancedb", "lancedb", endpoint, collection)
        self.version = str(self._library.__version__)
        self._table: Any = None

    def open(self) -> None:
        if self._home.exists() and not self._made:  # created by an earlier object
            self._table = self._call(lambda: self._library.connect(self._home).open_table("vectors"))

    def create(self) -> None:
        self._claim_folder()
        vector = pyarrow.list_(pyarrow.float32(), self._collection.dimensions)
        self._schema = pyarrow.schema([("id", pyarrow.int64()), ("label", pyarrow.int64()), ("vector", vector)])
        self._table = self._call(lambda: self._library.connect(self._home).create_table("vectors", schema=self._schema))

    def _insert(self, first: int, vectors: shared.Vectors, labels: shared.Ids | None) -> None:
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
            self._call(lambda: self._table.create_index("label", config=self._library.index.BTree()))
        if self._collection.index != "flat":
            self._call(lambda: self._table.create_index("vector", config=self._index()))

    def _index(self) -> Any:
        kinds, options = self._library.index, self._collection.options
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

    def _search(self, queries: shared.Vectors, k: int, below: int | None) -> shared.Ids:
        return shared.as_rows((self._ids(query, k, below) for query in queries), k)

    def _ids(self, query: shared.Vectors, k: int, below: int | None) -> list[int]:
        options = self._collection.options
        search = self._table.search(query, vector_column_name="vector")
        search = search.distance_type(_DISTANCES[self._collection.distance]).limit(k).select(["id", "_distance"])
        if below is not None:
            search = search.where(f"label < {int(below)}", prefilter=True)
        if self._collection.index == "ivf":
            search = search.nprobes(options["nprobe"])
        elif self._collection.index == "hnsw":
            search = search.nprobes(1).ef(max(options["ef_search"], k))
        ids: list[int] = self._call(lambda: search.to_arrow()["id"].to_pylist())
        return ids

    def stats(self) -> VectorStats:
        return VectorStats(self._call(lambda: self._table.count_rows()), self._bytes())

    def _drop(self) -> None:
        raise AssertionError("lancedb has no server")

    def close(self) -> None:
        self._table = None
