"""The common part of the vector drivers: start and end, refusals, and the form of answers and failures."""

import importlib
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy
from numpy.typing import NDArray

from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection, Distance, IndexKind
from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import read_json
from benchhouse.schema.secrets import user_and_password

Vectors: TypeAlias = NDArray[numpy.float32]
Ids: TypeAlias = NDArray[numpy.int64]
CONNECT_S = 10.0  # limit of a server's first answer
ANSWER_S = 60.0  # limit of one search; building an index has none


class Driver(ABC):
    """A driver that checks its input. A subclass takes vectors in `_insert` and answers in `_search`."""

    indexes: ClassVar[tuple[IndexKind, ...]]
    distances: ClassVar[tuple[Distance, ...]] = ("l2", "ip", "cosine")
    filters: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    recipe: ClassVar[str] = ""
    _collection: Collection

    def ingest(self, first: int, vectors: Vectors, labels: Ids | None) -> None:
        refuse_bad_vectors(vectors, self._collection)
        most = self._batch_size() or max(len(vectors), 1)
        for start in range(0, len(vectors), most):
            part = slice(start, start + most)
            self._insert(first + start, vectors[part], None if labels is None else labels[part])

    def search(self, queries: Vectors, k: int, below: int | None = None) -> Ids:
        refuse_bad_vectors(queries, self._collection)
        refuse_filter_without_labels(below, self._collection)
        return self._search(queries, k, below)

    def _batch_size(self) -> int:
        """Return the largest number of vectors per request; 0 means any number."""
        return 0

    @abstractmethod
    def _insert(self, first: int, vectors: Vectors, labels: Ids | None) -> None: ...

    @abstractmethod
    def _search(self, queries: Vectors, k: int, below: int | None) -> Ids: ...


class DatabaseDriver(Driver):
    """A driver whose database is a server at an address, or runs inside this process in a folder of its own.

    `_drop` removes the collection from a server.
    """

    def __init__(self, name: str, package: str, endpoint: str, collection: Collection) -> None:
        refuse_what_it_lacks(self, name, collection)
        self._library = library(package, name)
        self._collection = collection
        self._address, self._key = address_and_key(endpoint) if is_address(endpoint) else ("", "")
        self._home = Path(endpoint) / collection.name
        self._made = False
        self._client: Any = None
        self.version = ""

    def delete(self) -> None:
        if not self._made:
            return
        self._made = False
        if self._address:
            self._drop()
        else:
            self.close()
            shutil.rmtree(self._home, ignore_errors=True)

    @abstractmethod
    def _drop(self) -> None: ...

    def close(self) -> None:
        client, self._client = self._client, None
        if client:
            client.close()

    def _claim_folder(self) -> None:
        """Claim the folder of an embedded database, which creates it itself. Raise BenchError if it exists."""
        if self._home.exists():
            raise refuse_existing("folder", str(self._home))
        self._home.parent.mkdir(parents=True, exist_ok=True)
        self._made = True

    def _bytes(self) -> int | None:
        """Return the size of an embedded database's files; None for a server."""
        return None if self._address else sum(path.stat().st_size for path in self._home.rglob("*") if path.is_file())

    def _call(self, action: Callable[[], Any]) -> Any:
        """Return the result of `action`. Raise CallFailed in place of the library's exceptions."""
        try:
            return action()
        except Exception as error:
            if failed := self._failure(error):
                raise failed from error
            raise

    def _failure(self, error: Exception) -> CallFailed | None:
        """Return the failure for an error of the library; None for errors of our own code."""
        if isinstance(error, ValueError | RuntimeError | OSError):
            return CallFailed("server_error", str(error)[:500])
        return None


def library(name: str, extra: str) -> Any:
    """Return the client library. Raise BenchError, with how to install it, if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BenchError(
            f"the {extra} driver needs the Python package {name.partition('.')[0]}",
            hint=f"pip install 'benchhouse[{extra}]'",
        ) from error


def refuse_what_it_lacks(driver: Driver, name: str, collection: Collection) -> None:
    """Raise BenchError, naming what is available, if the driver does not have the index or distance."""
    options = ("index", collection.index, driver.indexes), ("distance", collection.distance, driver.distances)
    for what, wanted, known in options:
        if wanted not in known:
            raise BenchError(f"{name} has no {what} {wanted!r}", hint=f"it has: {', '.join(known)}")


def refuse_bad_vectors(vectors: Vectors, collection: Collection) -> None:
    """Raise BenchError for wrong dimensions, NaN, and infinity, which some databases accept silently."""
    if vectors.ndim != 2 or vectors.shape[1] != collection.dimensions:
        raise BenchError(
            f"the vectors have the shape {vectors.shape}, and the collection has {collection.dimensions} dimensions"
        )
    if not numpy.isfinite(vectors).all():
        raise BenchError("a vector holds NaN or infinity: its distance to anything is not a number")


def refuse_filter_without_labels(below: int | None, collection: Collection) -> None:
    if below is not None and not collection.labels:
        raise BenchError("a filtered search needs a collection that was made with labels")


def refuse_existing(what: str, name: str) -> BenchError:
    """Return the error for an existing object of that name that is not ours."""
    return BenchError(
        f"the {what} {name!r} exists already; it is left unchanged", hint="choose another name, or remove it yourself"
    )


def as_rows(answers: Iterable[Iterable[Any]], k: int) -> Ids:
    """Return ids, one row per query, padded with -1."""
    lists = [[int(number) for number in answer] for answer in answers]
    rows = numpy.full((len(lists), k), -1, dtype=numpy.int64)
    for number, ids in enumerate(lists):
        rows[number, : len(ids)] = ids
    return rows


def is_address(endpoint: str) -> bool:
    """Return whether `endpoint` is the address of a server rather than a folder."""
    return "://" in endpoint


def fetch_server_version(url: str, path: str, field: str, what: str, key: str = "") -> str:
    """Return the server's version, requested first, with the time limit that client libraries lack while connecting.

    `path` answers with JSON that has the version in `field`, or that is only the version.
    """
    status, body = exchange(url, "GET", path, CONNECT_S, key=key)
    if status in (401, 403):
        raise CallFailed(f"http_{status}", f"{url} refuses access: {body[:200].decode(errors='replace')}")
    try:
        content = read_json(body)
        version = content[field] if field else content
    except (ValueError, KeyError, TypeError):
        version = None
    if status != 200 or not isinstance(version, str):
        raise BenchError(
            f"{url} does not look like a {what}: {path} answers {status}, {body[:100].decode(errors='replace')!r}",
            hint="is the address right, and the server new enough?",
        )
    return version


def exchange(
    url: str, method: str, path: str, timeout_s: float, body: bytes | None = None, key: str = ""
) -> tuple[int, bytes]:
    """Return the status and body of one HTTP answer. Raise CallFailed, with the reason, if there is none."""
    from benchhouse.http.client import HttpClient, NoAnswer

    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers |= {"Authorization": f"Bearer {key}", "api-key": key}
    try:
        answer = HttpClient(timeout_s, total=False).request(method, url.rstrip("/") + path, body, headers)
    except NoAnswer as error:
        if error.failure == "address":
            raise
        kind = error.failure if error.failure in ("dns", "timeout", "refused", "reset") else "server_error"
        raise CallFailed(kind, error.message) from error
    return answer.status, answer.body


def named(error: BaseException, detail: str = "") -> CallFailed:
    """Return the failure for an exception of sockets, http.client, or httpx."""
    text = detail or f"{type(error).__name__}: {error}"[:500]
    name = type(error).__name__
    if isinstance(error, socket.gaierror):
        return CallFailed("dns", text)
    if isinstance(error, TimeoutError) or name.endswith("Timeout"):
        return CallFailed("timeout", text)
    if isinstance(error, ConnectionRefusedError) or name == "ConnectError":
        return CallFailed("refused", text)
    if isinstance(error, ConnectionError) or name in ("ReadError", "WriteError", "RemoteProtocolError"):
        return CallFailed("reset", text)
    if isinstance(error, OSError):
        return CallFailed("refused", text)
    return CallFailed("server_error", text)


def address_and_key(endpoint: str) -> tuple[str, str]:
    """Return the address without `key@`, and the key: `https://$MY_API_KEY@host` keeps it out of the plan."""
    address, user, password = user_and_password(endpoint)
    return address, password or user
