"""Driver `chroma`: Chroma inside this process, in a folder, or as a server at an address."""

import contextlib
from typing import Any, ClassVar

import numpy

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats


class Chroma(shared.DatabaseDriver):
    """A Chroma collection. In a folder, each collection has its own database, because Chroma leaves files of deleted
    ones.

    With a server, the client's pool has one connection per thread; one client per thread was no faster.
    """

    indexes: ClassVar[tuple[IndexKind, ...]] = ("hnsw",)
    recipe: ClassVar[str] = "chroma"

    def __init__(self, endpoint: str, collection: Collection) -> None:
        super().__init__("chroma", "chromadb", endpoint, collection)
        self.version = str(self._library.__version__)
        self._records: Any = None

    def open(self) -> None:
        if self._address:
            self.version = shared.fetch_server_version(
                self._address, "/api/v2/version", "", "Chroma 1 server", self._key
            )
            tls, who = self._address.startswith("https"), {"x-chroma-token": self._key} if self._key else None
            self._client = self._call(
                lambda: self._library.HttpClient(self._address, ssl=tls, headers=who, settings=self._quiet())
            )
            # Chroma's client waits forever, and has no option for a time limit.
            self._client._server._session.timeout = shared.ANSWER_S
        elif self._home.exists():
            self._open_folder()
        if self._client:  # the collection, if another object has created it
            with contextlib.suppress(self._library.errors.NotFoundError):
                self._records = self._client.get_collection(self._collection.name, embedding_function=None)

    def _quiet(self) -> Any:
        return self._library.Settings(anonymized_telemetry=False)

    def _open_folder(self) -> None:
        self._client = self._call(lambda: self._library.PersistentClient(str(self._home), settings=self._quiet()))

    def create(self) -> None:
        if not self._address:
            self._claim_folder()
            self._open_folder()
        options = self._collection.options
        hnsw = {"space": self._collection.distance, "max_neighbors": options["m"]}
        hnsw |= {name: options[name] for name in ("ef_construction", "ef_search")}
        try:
            self._records = self._call(
                lambda: self._client.create_collection(
                    self._collection.name, configuration={"hnsw": hnsw}, embedding_function=None
                )
            )
        except CallFailed as failed:
            if "already exists" in failed.detail:
                raise shared.refuse_existing("collection", self._collection.name) from failed
            raise
        self._made = True

    def _insert(self, first: int, vectors: shared.Vectors, labels: shared.Ids | None) -> None:
        ids = [str(first + number) for number in range(len(vectors))]
        marks = None if labels is None else [{"label": int(label)} for label in labels]
        self._call(lambda: self._records.add(ids, vectors, marks))

    def _batch_size(self) -> int:
        return int(self._call(lambda: self._client.get_max_batch_size()))

    def build(self) -> None:
        """Make Chroma index its vectors: it takes them into a log, which its index processes at the first query."""
        self._ids(numpy.ones((1, self._collection.dimensions), numpy.float32), 1, None)

    def _search(self, queries: shared.Vectors, k: int, below: int | None) -> shared.Ids:
        return shared.as_rows(self._ids(queries, k, below), k)

    def _ids(self, queries: shared.Vectors, k: int, below: int | None) -> Any:
        where = None if below is None else {"label": {"$lt": int(below)}}
        answer = self._call(lambda: self._records.query(query_embeddings=queries, n_results=k, where=where, include=[]))
        return answer["ids"]

    def stats(self) -> VectorStats:
        return VectorStats(self._call(lambda: self._records.count()), self._bytes())

    def _drop(self) -> None:
        self._call(lambda: self._client.delete_collection(self._collection.name))

    def close(self) -> None:
        self._records = None
        if self._client and self._address:
            self._client._server._session.close()  # Chroma's own `close` leaves it open
        super().close()

    def _failure(self, error: Exception) -> CallFailed | None:
        if isinstance(error, self._library.errors.ChromaError):
            return CallFailed("server_error", str(error)[:500])
        if type(error).__module__.startswith("httpx"):  # its timeouts and lost connections, by name
            return shared.named(error)
        return super()._failure(error)
