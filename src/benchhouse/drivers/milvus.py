"""Driver `milvus`: Milvus Lite inside this process, in a folder; or its server or a full Milvus, at an address."""

import logging
import math
import re
import socket
from typing import Any, ClassVar
from urllib.parse import urlsplit

from benchhouse.drivers import vector_shared as shared
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

_DISTANCES = {"l2": "L2", "ip": "IP", "cosine": "COSINE"}
_KINDS = {"flat": "FLAT", "ivf": "IVF_FLAT", "hnsw": "HNSW", "pq": "IVF_PQ"}
_PORT = 19530
_REQUEST_BYTES = 16 << 20  # of vectors: gRPC accepts at most 64 MB


class _Once(float):
    """A time limit for one attempt. With a plain number, pymilvus retries a dead server until the limit."""

    # pymilvus evaluates `elapsed >= limit`, which calls this method of the subclass first
    def __le__(self, _: object) -> bool:
        return True


class Milvus(shared.DatabaseDriver):
    """A Milvus collection, with one gRPC channel for all threads. pq is IVF_PQ over one partition; Lite has none."""

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "ivf", "hnsw", "pq")
    recipe: ClassVar[str] = "milvus_lite"

    def __init__(self, endpoint: str, collection: Collection) -> None:
        super().__init__("milvus", "pymilvus", endpoint, collection)
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints what it also raises
        self._address = endpoint if shared.is_address(endpoint) else ""  # pymilvus itself extracts the key
        self._home = self._home.with_name(f"{collection.name}.db")

    def open(self) -> None:
        if not self._address:
            shared.library("milvus_lite", "milvus")
        if self._address or self._home.exists():
            self._connect()
        else:
            self.version = f"milvus_lite-{shared.library('milvus_lite', 'milvus').__version__}"

    def _connect(self) -> None:
        where, limit = self._address or str(self._home), math.ceil(shared.CONNECT_S)
        if self._address:
            self._check_reachable()
        try:
            self._client = self._library.MilvusClient(where, timeout=limit)
        except self._library.MilvusException as error:  # something accepted the connection but does not speak Milvus
            raise CallFailed("timeout", str(error)[:500]) from error
        self.version = self._call(lambda: self._client.get_server_version(timeout=shared.CONNECT_S))

    def _check_reachable(self) -> None:
        """Raise CallFailed if nothing listens: pymilvus does not distinguish closed ports, unknown names, silence."""
        parts = urlsplit(self._address)
        try:
            with socket.create_connection((parts.hostname or "", parts.port or _PORT), timeout=shared.CONNECT_S):
                return
        except OSError as error:
            why = error.strerror or str(error)
            raise shared.named(error, f"{parts.hostname}:{parts.port or _PORT}: {why}") from error

    def create(self) -> None:
        name, types = self._collection.name, self._library.DataType
        if self._collection.index == "pq" and "lite" in self.version:
            raise BenchError("Milvus Lite has no index 'pq'", hint="it has: flat, ivf, hnsw; pq needs a full Milvus")
        if not self._address:
            self._claim_folder()
            self._connect()
        elif self._call(lambda: self._client.has_collection(name)):
            raise shared.refuse_existing("collection", name)
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field("label", types.INT64)
        schema.add_field("vector", types.FLOAT_VECTOR, dim=self._collection.dimensions)
        self._call(lambda: self._client.create_collection(name, schema=schema, consistency_level="Strong"))
        self._made = True

    def _insert(self, first: int, vectors: shared.Vectors, labels: shared.Ids | None) -> None:
        marks = [0] * len(vectors) if labels is None else labels.tolist()
        rows = [
            {"id": number, "label": label, "vector": vector}
            for number, (label, vector) in enumerate(zip(marks, vectors, strict=True), first)
        ]
        self._call(lambda: self._client.insert(self._collection.name, rows))

    def _batch_size(self) -> int:
        return max(_REQUEST_BYTES // (4 * self._collection.dimensions), 1)

    def build(self) -> None:
        name, options = self._collection.name, self._collection.options
        wanted: dict[str, Any] = {
            "flat": {},
            "ivf": {"nlist": options.get("nlist")},
            "hnsw": {"M": options.get("m"), "efConstruction": options.get("ef_construction")},
            "pq": {"nlist": 1, "m": options.get("pq_m"), "nbits": options.get("pq_bits")},
        }[self._collection.index]
        index = self._client.prepare_index_params()
        index.add_index(
            "vector",
            index_type=_KINDS[self._collection.index],
            metric_type=_DISTANCES[self._collection.distance],
            # pymilvus 3 sends each parameter separately; Lite reads them from one field and ignores all others.
            params={"params": wanted} if "lite" in self.version else wanted,
        )
        self._call(lambda: self._client.flush(name))
        self._call(lambda: self._client.create_index(name, index))  # returns when the index is ready
        made = str(self._call(lambda: self._client.describe_index(name, self._client.list_indexes(name)[0])))
        # The description may quote the parameters, and nests them at different depths.
        kept = {key for key, value in wanted.items() if re.search(rf"['\"]{key}['\"]: ['\"]?{value}\b", made)}
        if lost := [f"{key}={value}" for key, value in wanted.items() if key not in kept]:
            raise CallFailed("server_error", f"Milvus made an index without {', '.join(lost)}: {made}"[:500])
        self._call(lambda: self._client.load_collection(name))

    def _search(self, queries: shared.Vectors, k: int, below: int | None) -> shared.Ids:
        options = self._collection.options
        effort = {
            "flat": {},
            "ivf": {"nprobe": options.get("nprobe")},
            "hnsw": {"ef": max(options.get("ef_search", 0), k)},
            "pq": {"nprobe": 1},
        }[self._collection.index]
        answers = self._call(
            lambda: self._client.search(
                self._collection.name,
                list(queries),
                limit=k,
                filter="" if below is None else f"label < {int(below)}",
                search_params={"metric_type": _DISTANCES[self._collection.distance], "params": effort},
                timeout=_Once(shared.ANSWER_S),
            )
        )
        return shared.as_rows((hits.ids for hits in answers), k)

    def stats(self) -> VectorStats:
        name = self._collection.name
        counted = self._call(lambda: self._client.query(name, filter="id >= 0", output_fields=["count(*)"]))
        return VectorStats(int(counted[0]["count(*)"]), self._bytes())

    def _drop(self) -> None:
        self._call(lambda: self._client.drop_collection(self._collection.name, timeout=shared.CONNECT_S))

    def close(self) -> None:
        super().close()
        if not self._address:
            manager = shared.library("milvus_lite.server_manager", "milvus")
            manager.server_manager_instance.release_server(str(self._home))

    def _failure(self, error: Exception) -> CallFailed | None:
        if isinstance(error, self._library.MilvusException) or type(error).__module__.startswith("grpc"):
            return CallFailed(_kind(str(error)), str(error)[:500])
        return None


def _kind(text: str) -> str:
    """Return the kind of a gRPC error from the text that pymilvus passes on."""
    for kind, phrases in (
        ("timeout", ("DEADLINE_EXCEEDED", "Deadline Exceeded")),
        ("refused", ("Connection refused", "Fail connecting", "failed to connect")),
        ("reset", ("UNAVAILABLE", "Socket closed", "Connection reset", "CANCELLED")),
    ):
        if any(phrase in text for phrase in phrases):
            return kind
    return "server_error"
