"""The evidence store's objects in a bucket: thread-safe, and patient with a server that is briefly unavailable."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchhouse.evidence.store import StoreRefused
from benchhouse.http.s3_bucket import S3Refused

_PASSING = frozenset({"http_429", "http_500", "http_502", "http_503", "http_504"})
_WAITS_S = (0.2, 0.5, 1.0, 2.0)
_PATIENCE_S = 30.0  # of all waits together: a server that stays unavailable is reported soon, whatever is requested

Answer = TypeVar("Answer")


class S3Shelf:
    """The part of a bucket below a prefix; nothing else in it is read, and nothing is removed.

    Failures of the server (500, 503, ...) are retried a few times. Each thread has its own connection.
    """

    def __init__(self, bucket: Any, name: str, prefix: str) -> None:
        self._bucket, self.name, self._prefix = bucket, name, f"{prefix}/" if prefix else ""
        self._own, self._opened, self._waited_s = threading.local(), list[Any](), 0.0

    def make_sure(self, create: bool) -> None:
        """Check that the bucket exists and can be read, or `create` it. Raise S3Refused."""
        self._patiently(lambda bucket: bucket.make_sure(create))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        with _told(prefix):
            listed = self._patiently(lambda bucket: list(bucket.sizes(self._prefix + prefix)))
        yield from ((key.removeprefix(self._prefix), size) for key, size in listed)

    def put(self, key: str, source: Path | bytes, sha256: str) -> None:
        with _told(key, passing="; a store that is full answers so too"):
            self._patiently(lambda bucket: bucket.put(self._prefix + key, source, sha256))

    def read(self, key: str) -> Iterator[bytes]:
        def begin(bucket: Any) -> tuple[bytes, Iterator[bytes]]:
            pieces = bucket.read(self._prefix + key)
            return next(pieces, b""), pieces

        with _told(key, missing="http_404"):
            first, rest = self._patiently(begin)
            yield first
            yield from rest

    def close(self) -> None:
        for bucket in self._opened:
            bucket.close()

    def _patiently(self, ask: Callable[[Any], Answer]) -> Answer:
        for wait_s in _WAITS_S:
            try:
                return ask(self._connection())
            except S3Refused as refused:
                if refused.kind not in _PASSING or self._waited_s + wait_s > _PATIENCE_S:
                    raise
            self._waited_s += wait_s
            time.sleep(wait_s)
        return ask(self._connection())

    def _connection(self) -> Any:
        """Return this thread's own connection, because a bucket sends one request at a time."""
        if not hasattr(self._own, "bucket"):
            self._own.bucket = self._bucket.another()
            self._opened.append(self._own.bucket)
        return self._own.bucket


@contextmanager
def _told(key: str, *, missing: str = "", passing: str = "") -> Iterator[None]:
    """Convert S3Refused to the store's errors; `missing` is the kind that means that a key does not exist."""
    try:
        yield
    except S3Refused as refused:
        if refused.kind == missing:
            raise FileNotFoundError(key) from refused
        raise StoreRefused(f"{key}: {refused.message}{passing if refused.kind in _PASSING else ''}") from refused
