"""Parcels: lines of orders or reports with the files that belong to them, as objects of a bucket.

A parcel is one tar file. The part that is too long for one object is sent first, in pieces. The last object, whose name
contains the number of pieces, is written after them, so that a parcel is either complete or invisible.
"""

import hashlib
import io
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, local
from typing import IO, TypeVar

from benchhouse.http.s3_bucket import Bucket, S3Refused, open_bucket
from benchhouse.schema.errors import BenchError

INDEX = "index"  # the orchestrator's heartbeat, and how many bytes of orders each slot has
AWAY_S = 600.0  # how long to wait for a bucket that does not answer
_PASSING = frozenset({"dns", "timeout", "refused", "reset", "http_408", "http_429"})
_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_TIMEOUT_S = 20.0
_PIECE_BYTES = 16 << 20  # the amount of a parcel in memory
_LINES = "lines"

Answer = TypeVar("Answer")


class RunBucket:
    """A run's place in a bucket. Requests are repeated, with a message, while the server is away. It is thread-safe."""

    def __init__(
        self, address: str, environ: Mapping[str, str], say: Callable[[str], None], held_up: Callable[[], None]
    ) -> None:
        """`address` is s3://BUCKET/PREFIX/RUN. Raise BenchError if the address is invalid or credentials are missing.

        `held_up` is called repeatedly while objects are transferred and while the bucket is away.
        """
        self._bucket, prefix = open_bucket(address, "", environ, _TIMEOUT_S)
        self.address, self._prefix, self._say, self._held_up = address, f"{prefix}/", say, held_up
        self._own, self._opened = local(), list[Bucket]()
        self._away_since = 0.0
        self.hurry = Event()
        """If set, a bucket that does not answer is no longer waited for."""

    @property
    def away_s(self) -> float:
        """For how long the bucket has not answered; 0 if it answers."""
        return time.monotonic() - self._away_since if self._away_since else 0.0

    def make_sure(self) -> None:
        """Check that objects can be written, listed, and removed here. Raise BenchError if not."""
        try:
            self._put(self._connection(), "probe", b"")
            list(self._connection().sizes(self._prefix + "probe"))
            self._connection().remove([self._prefix + "probe"])
        except S3Refused as refused:
            hint = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL say who asks, and where"
            raise BenchError(f"bucket {self._bucket.where}: {refused.message}", hint) from refused

    def put(self, key: str, content: bytes) -> None:
        self._held_up()
        self._patiently(lambda bucket: self._put(bucket, key, content))

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        self._patiently(lambda bucket: bucket.put(self._prefix + key, path, sha256))

    def read(self, key: str) -> Iterator[bytes]:
        """Yield an object in pieces. Raise S3Refused, possibly in the middle."""
        for piece in self._connection().read(self._prefix + key):
            self._held_up()
            yield piece

    def look(self, key: str, etag: str) -> tuple[str, bytes] | None:
        """Return a small object and its tag, or None if its tag is still this one."""
        return self._patiently(lambda bucket: bucket.read_if_changed(self._prefix + key, etag))

    def keys(self, below: str = "") -> list[str]:
        listed = self._patiently(lambda bucket: list(bucket.keys(self._prefix + below)))
        return [key.removeprefix(self._prefix) for key in listed]

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects, many per request. A missing key is not an error."""
        names = [self._prefix + key for key in keys]
        if names and (left := self._patiently(lambda bucket: bucket.remove(names))):
            raise S3Refused("http_403", f"{len(left)} objects could not be removed: {left[0]}")

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Call `work`, which reads, and start it again if the bucket was away."""
        return self._patiently(lambda _: work())

    def close(self) -> None:
        for bucket in self._opened:
            bucket.close()

    def _put(self, bucket: Bucket, key: str, content: bytes) -> None:
        bucket.put(self._prefix + key, content, hashlib.sha256(content).hexdigest())

    def _patiently(self, ask: Callable[[Bucket], Answer]) -> Answer:
        tries = 0
        while True:
            try:
                answer = ask(self._connection())
            except S3Refused as refused:
                if not (refused.kind in _PASSING or refused.kind.startswith("http_5")):
                    raise
                self._away_since = self._away_since or time.monotonic()
                if self.away_s > AWAY_S or self.hurry.is_set():
                    raise
                if tries == len(_WAITS_S) - 2:
                    full = "; one that is full answers so too" if refused.kind.startswith("http_5") else ""
                    self._say(f"bucket {self._bucket.where} is away: {refused.message}{full}; trying again")
                self._held_up()
                self.hurry.wait(_WAITS_S[min(tries, len(_WAITS_S) - 1)])
                tries += 1
            else:
                if tries >= len(_WAITS_S) - 1:
                    self._say(f"bucket {self._bucket.where} answers again, after {self.away_s:.0f} s")
                self._away_since = 0.0
                return answer

    def _connection(self) -> Bucket:
        """Return this thread's own connection, because a connection handles one request at a time."""
        if not hasattr(self._own, "bucket"):
            self._own.bucket = self._bucket.another()
            self._opened.append(self._own.bucket)
        bucket: Bucket = self._own.bucket
        return bucket


def send(depot: RunBucket, kind: str, slot: str, at: int, lines: bytes, files: Iterable[tuple[str, Path]]) -> list[str]:
    """Write a parcel and return the keys of its objects. `at` is the offset of its lines in their file.

    The same bytes get the same keys if they are sent twice.
    """
    out = _Pieces(depot, f"pieces/{slot}/{kind}/{at:012d}")
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        head = tarfile.TarInfo(_LINES)
        head.size = len(lines)
        tar.addfile(head, io.BytesIO(lines))
        for name, path in files:
            with path.open("rb") as file:
                entry = tarfile.TarInfo(name)
                entry.size = path.stat().st_size
                tar.addfile(entry, file)
    key = f"{kind}/{slot}/{at:012d}.{len(out.keys)}"
    depot.put(key, bytes(out.rest))
    return [*out.keys, key]


class _Pieces(io.RawIOBase):
    """A writer that sends its content to the bucket in pieces; `rest` is the part that is not sent yet."""

    def __init__(self, depot: RunBucket, key: str) -> None:
        self._depot, self._key = depot, key
        self.keys, self.rest = list[str](), bytearray()

    def write(self, data: object) -> int:
        self.rest += memoryview(data)  # type: ignore[arg-type]
        while len(self.rest) >= _PIECE_BYTES:
            key = f"{self._key}/{len(self.keys):06d}"
            self._depot.put(key, bytes(self.rest[:_PIECE_BYTES]))
            self.keys.append(key)
            del self.rest[:_PIECE_BYTES]
        return len(memoryview(data))  # type: ignore[arg-type]


class ParcelNotice:
    """A parcel in the bucket, described by its key."""

    def __init__(self, key: str) -> None:
        self.kind, self.slot, last = key.split("/")
        if self.slot in (".", ".."):
            raise BenchError(f"{key} is no parcel of ours: its slot would be another folder")
        at, _, pieces = last.partition(".")
        self.at = int(at)
        self.keys = [f"pieces/{self.slot}/{self.kind}/{at}/{number:06d}" for number in range(int(pieces))] + [key]


@contextmanager
def opened(depot: RunBucket, notice: ParcelNotice) -> Iterator[tuple[bytes, Iterator[tuple[str, IO[bytes]]]]]:
    """Yield the lines of a parcel and an iterator of its files, to be read in order. Unsafe file names are refused."""
    stream = _Stream(piece for key in notice.keys for piece in depot.read(key))
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            head = tar.next()
            lines = tar.extractfile(head) if head and head.name == _LINES else None
            if lines is None:
                raise BenchError(f"{depot.address}/{notice.keys[-1]} is no parcel of ours")
            yield lines.read(), _files(tar)
    except tarfile.TarError as error:
        raise BenchError(f"{depot.address}/{notice.keys[-1]} can't be read: {error}") from error


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    while entry := tar.next():
        parts = entry.name.split("/")
        if not entry.isreg() or not {"", ".", ".."}.isdisjoint(parts) or (file := tar.extractfile(entry)) is None:
            raise BenchError(f"a parcel has {entry.name!r} in it, which is no plain file of a trial")
        yield entry.name, file


class _Stream(io.RawIOBase):
    """Reads the items of an iterator as one file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int = -1) -> bytes:
        parts, left = [self._rest[:size]], size - len(self._rest[:size])
        self._rest = self._rest[size:]
        while left > 0 and (piece := next(self._pieces, b"")):
            parts.append(piece[:left])
            self._rest, left = piece[left:], left - len(piece[:left])
        return b"".join(parts)
