"""Driver `qdrant`: qdrant-client's own search inside this process, on a folder, or a Qdrant server, by its address.

The server has never been run live by this driver's tests: there is no package to install it from.
"""

from collections.abc import Callable
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, Distance, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

_DISTANCES = {"l2": "EUCLID", "ip": "DOT", "cosine": "COSINE"}
_AT_A_TIME = 500  # points a request: a server takes 32 MB at most
_POLL_S = 0.1


class Qdrant(shared.Database):
    """On a folder it compares with every vector, whatever is asked: only `flat` is honest there."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "hnsw")
    distances: ClassVar[tuple[Distance, ...]] = ("l2", "ip", "cosine")
    filters: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    recipe: ClassVar[str] = ""

    def __init__(self, endpoint: str, collection: Collection) -> None:
        super().__init__("qdrant", "qdrant_client", endpoint, collection)
        self._qdrant = self._library
        if collection.index != "flat" and not self._address:
            raise BenchError(
                f"qdrant on a folder has no index {collection.index!r}: it compares with every vector",
                hint="it has: flat; hnsw needs a server (endpoint: http://...)",
            )

    def open(self) -> None:
        from importlib.metadata import version

        if self._address:
            self._version = shared.ask_version(self._address, "/", "version", "Qdrant server", self._key)
            self._client = self._qdrant.QdrantClient(
                url=self._address, api_key=self._key or None, timeout=int(shared.ANSWER_S), check_compatibility=False
            )
        else:
            self._version = f"client {version('qdrant-client')}"
            if self._home.exists():
                self._open_folder()

    def _open_folder(self) -> None:
        self._client = self._call(
            lambda: self._qdrant.QdrantClient(path=str(self._home), force_disable_check_same_thread=True)
        )

    def create(self) -> None:
        models, options, name = self._qdrant.models, self._collection.options, self._collection.name
        if not self._address:
            shared.claim(self._home)
            self._made = True
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

    def ingest(self, first: int, vectors: "NDArray[float32]", labels: "NDArray[int64] | None") -> None:
        shared.refuse_bad_vectors(vectors, self._collection)
        for start in range(0, len(vectors), _AT_A_TIME):
            part = vectors[start : start + _AT_A_TIME]
            marks = None if labels is None else labels[start : start + _AT_A_TIME]
            batch = self._qdrant.models.Batch(
                ids=list(range(first + start, first + start + len(part))),
                vectors=part.tolist(),
                payloads=None if marks is None else [{"label": int(label)} for label in marks],
            )
            self._call(partial(self._client.upsert, self._collection.name, batch, wait=True))

    def build(self) -> None:
        if not self._address or self._collection.index == "flat":
            return
        name = self._collection.name
        index_all = self._qdrant.models.OptimizersConfigDiff(indexing_threshold=1)
        self._call(lambda: self._client.update_collection(name, optimizers_config=index_all))
        while True:
            sleep(_POLL_S)
            status = self._call(lambda: self._client.get_collection(name).status)
            if status == "green":
                return
            if status == "red":
                raise CallFailed("server_error", f"Qdrant could not index the collection {name}: its status is red")

    def search(self, queries: "NDArray[float32]", k: int, below: int | None = None) -> "NDArray[int64]":
        shared.refuse_bad_vectors(queries, self._collection)
        shared.refuse_filter_without_labels(below, self._collection)
        models = self._qdrant.models
        chosen = None
        if below is not None:
            chosen = models.Filter(must=[models.FieldCondition(key="label", range=models.Range(lt=int(below)))])
        effort = None
        if self._address:
            options = self._collection.options
            effort = models.SearchParams(exact=self._collection.index == "flat", hnsw_ef=options.get("ef_search"))
        asked = [
            models.QueryRequest(query=query.tolist(), limit=k, filter=chosen, params=effort, with_payload=False)
            for query in queries
        ]
        answers = self._call(lambda: self._client.query_batch_points(self._collection.name, requests=asked))
        return shared.as_rows(([point.id for point in answer.points] for answer in answers), k)

    def stats(self) -> VectorStats:
        count = self._call(lambda: self._client.count(self._collection.name, exact=True).count)
        return VectorStats(count, None if self._address else shared.folder_bytes(self._home))

    def _drop(self) -> None:
        self._call(lambda: self._client.delete_collection(self._collection.name))

    @staticmethod
    def _call(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except (ValueError, RuntimeError, OSError) as error:
            raise CallFailed("server_error", str(error)[:500]) from error
        except Exception as error:
            if type(error).__name__ == "ResponseHandlingException":  # wraps what httpx raised
                raise shared.named(getattr(error, "source", error)) from error
            if type(error).__name__ == "UnexpectedResponse":
                raise CallFailed(f"http_{getattr(error, 'status_code', 0)}", str(error)[:500]) from error
            raise
