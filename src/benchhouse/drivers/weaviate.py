"""Driver `weaviate`: a Weaviate server at an address, `http://[key@]host:8080?grpc=50051`.

It has never run against a server, because no package installs one. Its requests are compared byte by byte with those of
the vendor's Python client, whose messages it uses. That client retries a dead server for a minute on its own.
"""

import json
from time import sleep
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import read_json

_DISTANCES = {"l2": "l2-squared", "ip": "dot", "cosine": "cosine"}
_POLL_S = 0.1
_INGEST_S = 600.0


class Weaviate(shared.DatabaseDriver):
    """A Weaviate collection. Collections and their state use REST; vectors and searches use gRPC over one channel."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "hnsw")

    def __init__(self, endpoint: str, collection: Collection) -> None:
        super().__init__("weaviate", "weaviate.proto.v1.search_get_pb2", endpoint, collection)
        if not shared.is_address(endpoint):
            raise BenchError(
                "weaviate is a server, and none can be started here: give its address",
                hint="target.endpoint: http://host:8080?grpc=50051",
            )
        self._grpc = shared.library("grpc", "weaviate")
        parts = urlsplit(self._address)
        self._url = parts._replace(query="").geturl()
        self._grpc_at = f"{parts.hostname}:{parse_qs(parts.query).get('grpc', ['50051'])[0]}"
        self._name = collection.name[:1].upper() + collection.name[1:]  # the form that Weaviate itself would store

    def open(self) -> None:
        self.version = shared.fetch_server_version(self._url, "/v1/meta", "version", "Weaviate server", self._key)
        if self._url.startswith("https"):
            self._client = self._grpc.secure_channel(self._grpc_at, self._grpc.ssl_channel_credentials())
        else:
            self._client = self._grpc.insecure_channel(self._grpc_at)
        try:
            self._grpc.channel_ready_future(self._client).result(shared.CONNECT_S)
        except self._grpc.FutureTimeoutError as error:
            raise CallFailed(
                "refused", f"no gRPC server answers at {self._grpc_at} (endpoint: ...?grpc=PORT)"
            ) from error
        self._stub = shared.library("weaviate.proto.v1.weaviate_pb2_grpc", "weaviate").WeaviateStub(self._client)

    def create(self) -> None:
        options = self._collection.options
        config: dict[str, Any] = {"distance": _DISTANCES[self._collection.distance]}
        if self._collection.index == "hnsw":
            config |= {"efConstruction": options["ef_construction"], "ef": options["ef_search"]}
            config |= {"maxConnections": options["m"]}
        label = {"name": "label", "dataType": ["int"], "indexFilterable": True, "indexRangeFilters": True}
        shape = {
            "class": self._name,
            "vectorizer": "none",
            "vectorIndexType": self._collection.index,
            "vectorIndexConfig": config,
            "properties": [label],
        }
        try:
            self._rest("POST", "/v1/schema", shape)
        except CallFailed as failed:
            if failed.kind == "http_422" and "already exists" in failed.detail:
                raise shared.refuse_existing("class", self._name) from failed
            raise
        self._made = True

    def _insert(self, first: int, vectors: shared.Vectors, labels: shared.Ids | None) -> None:
        from weaviate.proto.v1 import batch_pb2

        request = batch_pb2.BatchObjectsRequest()
        for number, vector in enumerate(vectors.astype("<f4")):
            item = request.objects.add(uuid=str(UUID(int=first + number + 1)), collection=self._name)
            item.vector_bytes = vector.tobytes()
            item.properties.non_ref_properties["label"] = 0 if labels is None else int(labels[number])
        reply = self._call(lambda: self._stub.BatchObjects(request, _INGEST_S, self._who()))
        if reply.errors:
            raise CallFailed("server_error", f"{len(reply.errors)} objects: {reply.errors[0].error}"[:500])

    def _batch_size(self) -> int:
        return 1000

    def build(self) -> None:
        """Wait until a server that indexes in the background has caught up."""
        while True:
            body = self._rest("GET", f"/v1/nodes/{self._name}?output=verbose")
            shards = [shard for node in read_json(body)["nodes"] for shard in node.get("shards") or ()]
            if all(shard.get("vectorIndexingStatus", "READY") == "READY" for shard in shards):
                return
            sleep(_POLL_S)

    def _search(self, queries: shared.Vectors, k: int, below: int | None) -> shared.Ids:
        return shared.as_rows((self._ids(query.tobytes(), k, below) for query in queries.astype("<f4")), k)

    def _ids(self, query: bytes, k: int, below: int | None) -> list[int]:
        request = self._library.SearchRequest(
            collection=self._name, limit=k, uses_123_api=True, uses_125_api=True, uses_127_api=True
        )
        request.metadata.uuid = True
        request.properties.SetInParent()  # none of them
        near = request.near_vector.vectors.add(vector_bytes=query)
        near.type = near.VECTOR_TYPE_SINGLE_FP32
        if below is not None:
            request.filters.operator = request.filters.OPERATOR_LESS_THAN
            request.filters.target.property, request.filters.value_int = "label", int(below)
        reply = self._call(lambda: self._stub.Search(request, shared.ANSWER_S, self._who()))
        return [_number(result.metadata) for result in reply.results]

    def stats(self) -> VectorStats:
        from weaviate.proto.v1 import aggregate_pb2

        request = aggregate_pb2.AggregateRequest(collection=self._name, objects_count=True)
        reply = self._call(lambda: self._stub.Aggregate(request, shared.ANSWER_S, self._who()))
        return VectorStats(int(reply.single_result.objects_count))

    def _drop(self) -> None:
        self._rest("DELETE", f"/v1/schema/{self._name}")

    def _rest(self, method: str, path: str, content: Any = None) -> bytes:
        text = None if content is None else json.dumps(content).encode()
        status, body = shared.exchange(self._url, method, path, shared.ANSWER_S, text, self._key)
        if status != 200:
            raise CallFailed(f"http_{status}", body[:500].decode(errors="replace"))
        return body

    def _who(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._key}"),) if self._key else ()

    def _failure(self, error: Any) -> CallFailed | None:
        if not isinstance(error, self._grpc.RpcError):
            return None
        code, detail = error.code().name, str(error.details())[:500]
        kinds = {"DEADLINE_EXCEEDED": "timeout", "UNAVAILABLE": "reset"}
        kind = "refused" if "onnection refused" in detail else kinds.get(code, "server_error")
        return CallFailed(kind, f"{code} {detail}")


def _number(metadata: Any) -> int:
    """Return the id, which is one less than the UUID, because the first UUID must not be the nil UUID."""
    return (UUID(bytes=metadata.id_as_bytes) if metadata.id_as_bytes else UUID(metadata.id)).int - 1
