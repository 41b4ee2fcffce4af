"""Driver `qdrant`: qdrant-client's own search inside this process, in a folder, or a Qdrant server at an address.

The driver's tests have never run a server, because no package installs one.
"""

from importlib.metadata import version
from time import sleep
from typing import ClassVar

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

_DISTANCES = {"l2": "EUCLID", "ip": "DOT", "cosine": "COSINE"}
_POLL_S = 0.1


class Qdrant(shared.DatabaseDriver):
    """A Qdrant collection. In a folder, it always compares with every vector, so only `flat` is offered there."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "hnsw")

    def __init__(self, endpoint: str, collection: Collection) -> None:
        super().__init__("qdrant", "qdrant_client", endpoint, collection)
        if collection.index != "flat" and not self._address:
            raise BenchError(
                f"qdrant on a folder has no index {collection.index!r}: it compares with every vector",
                hint="it has: flat; hnsw needs a server (endpoint: http://...)",
            )

    def open(self) -> None:
        if self._address:
            self.version = shared.fetch_server_version(self._address, "/", "version", "Qdrant server", self._key)
            self._client = self._library.QdrantClient(
                url=self._address, api_key=self._key or None, timeout=int(shared.ANSWER_S), check_compatibility=False
            )
        else:
            self.version = f"client {version('qdrant-client')}"
            if self._home.exists():
                self._open_folder()

    def _open_folder(self) -> None:
        self._client = self._call(
            lambda: self._library.QdrantClient(path=str(self._home), force_disable_check_same_thread=True)
        )

    def create(self) -> None:
        models, options, name = self._library.models, self._collection.options, self._collection.name
        if not self._address:
            self._claim_folder()
            self._open_folder()
        elif self._call(lambda: self._client.collection_exists(name)):
            raise shared.refuse_existing("collection", name)
        hnsw = models.HnswConfigDiff(m=options.get("m", 0), ef_construct=options.get("ef_construction"))
        shape = models.VectorParams(
            size=self._collection.dimensions, distance=models.Distance[_DISTANCES[self._collection.distance]]
        )
        no_index_yet = models.OptimizersConfigDiff(indexing_threshold=0)
        self._call(
            lambda: self._client.create_collection(
                name, vectors_config=shape, hnsw_config=hnsw, optimizers_config=no_index_yet
            )
        )
        self._made = True
        if self._collection.labels and self._address:
            kind = models.PayloadSchemaType.INTEGER
            self._call(lambda: self._client.create_payload_index(name, "label", field_schema=kind))

    def _insert(self, first: int, vectors: shared.Vectors, labels: shared.Ids | None) -> None:
        ids = list(range(first, first + len(vectors)))
        payloads = None if labels is None else [{"label": int(label)} for label in labels]
        batch = self._library.models.Batch(ids=ids, vectors=vectors.tolist(), payloads=payloads)
        self._call(lambda: self._client.upsert(self._collection.name, batch, wait=True))

    def _batch_size(self) -> int:
        return 500  # a server accepts at most 32 MB

    def build(self) -> None:
        if not self._address or self._collection.index == "flat":
            return
        name = self._collection.name
        index_all = self._library.models.OptimizersConfigDiff(indexing_threshold=1)
        self._call(lambda: self._client.update_collection(name, optimizers_config=index_all))
        while True:
            sleep(_POLL_S)
            status = self._call(lambda: self._client.get_collection(name).status)
            if status == "green":
                return
            if status == "red":
                raise CallFailed("server_error", f"Qdrant could not index the collection {name}: its status is red")

    def _search(self, queries: shared.Vectors, k: int, below: int | None) -> shared.Ids:
        models = self._library.models
        chosen = None
        if below is not None:
            chosen = models.Filter(must=[models.FieldCondition(key="label", range=models.Range(lt=int(below)))])
        effort = None
        if self._address:
            options = self._collection.options
            effort = models.SearchParams(exact=self._collection.index == "flat", hnsw_ef=options.get("ef_search"))
        requests = [
            models.QueryRequest(query=query.tolist(), limit=k, filter=chosen, params=effort, with_payload=False)
            for query in queries
        ]
        answers = self._call(lambda: self._client.query_batch_points(self._collection.name, requests=requests))
        return shared.as_rows(([point.id for point in answer.points] for answer in answers), k)

    def stats(self) -> VectorStats:
        count = self._call(lambda: self._client.count(self._collection.name, exact=True).count)
        return VectorStats(count, self._bytes())

    def _drop(self) -> None:
        self._call(lambda: self._client.delete_collection(self._collection.name))

    def _failure(self, error: Exception) -> CallFailed | None:
        if type(error).__name__ == "ResponseHandlingException":  # wraps what httpx raised
            return shared.named(getattr(error, "source", error))
        if type(error).__name__ == "UnexpectedResponse":
            return CallFailed(f"http_{getattr(error, 'status_code', 0)}", str(error)[:500])
        return super()._failure(error)
