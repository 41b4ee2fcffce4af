"""Parcels: lines of orders or reports with the files that belong to them, as objects of a bucket.

A parcel is one tar. What is too long for one object goes before it in pieces, and its last object, whose name says how
many there are, is written when all else is there: a parcel is whole or not to be seen.
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

INDEX = "index"  # the orchestrator's sign of life, and how far the orders of each slot go
AWAY_S = 600.0  # how long a bucket that does not answer is waited for
_PASSING = frozenset({"dns", "timeout", "refused", "reset", "http_408", "http_429"})
_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_TIMEOUT_S = 20.0
_PIECE_BYTES = 16 << 20  # as much of a parcel is in memory
_LINES = "lines"

Answer = TypeVar("Answer")


class RunBucket:
    """A run's place in a bucket: patient with a server that is away, and that is said. Several threads may ask."""

    def __init__(
        self, address: str, environ: Mapping[str, str], say: Callable[[str], None], held_up: Callable[[], None]
    ) -> None:
        """`address` is s3://BUCKET/PREFIX/RUN. Raises BenchError where that is no address, or nobody to ask as.

        `held_up` is called again and again while objects are on their way, and while the bucket is away.
        """
        self._bucket, prefix = open_bucket(address, "", environ, _TIMEOUT_S)
        self.address, self._prefix, self._say, self._held_up = address, f"{prefix}/", say, held_up
        self._own, self._opened = local(), list[Bucket]()
        self._away_since = 0.0
        self.hurry = Event()
        """Set: nobody waits any more for a bucket that does not answer."""

    @property
    def away_s(self) -> float:
        """For how long it has not answered."""
        return time.monotonic() - self._away_since if self._away_since else 0.0

    def make_sure(self) -> None:
        """See that objects can be written, listed and removed here; raises BenchError."""
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
        """Piece by piece. Raises S3Refused, also in the middle."""
        for piece in self._connection().read(self._prefix + key):
            self._held_up()
            yield piece

    def look(self, key: str, etag: str) -> tuple[str, bytes] | None:
        """A small object and its tag; None while it is the one with this tag."""
        return self._patiently(lambda bucket: bucket.read_if_changed(self._prefix + key, etag))

    def keys(self, below: str = "") -> list[str]:
        listed = self._patiently(lambda bucket: list(bucket.keys(self._prefix + below)))
        return [key.removeprefix(self._prefix) for key in listed]

    def remove(self, keys: Iterable[str]) -> None:
        """Many with a request; that a key is not there is no error."""
        names = [self._prefix + key for key in keys]
        if names and (left := self._patiently(lambda bucket: bucket.remove(names))):
            raise S3Refused("http_403", f"{len(left)} objects could not be removed: {left[0]}")

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Work that reads, from its beginning once more where the bucket was away meanwhile."""
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
        """This thread's own: a bucket asks one thing after the other."""
        if not hasattr(self._own, "bucket"):
            self._own.bucket = self._bucket.another()
            self._opened.append(self._own.bucket)
        bucket: Bucket = self._own.bucket
        return bucket


def send(depot: RunBucket, kind: str, slot: str, at: int, lines: bytes, files: Iterable[tuple[str, Path]]) -> list[str]:
    """Put a parcel there; `at` is the place of its lines in their file. Returns the keys it is made of.

    Sent twice, the same bytes have the same names.
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
    """What is written here goes to the bucket whenever there is enough of it; `rest` is not there yet."""

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
    """A parcel that lies in the bucket, by its key."""

    def __init__(self, key: str) -> None:
        self.kind, self.slot, last = key.split("/")
        if self.slot in (".", ".."):
            raise BenchError(f"{key} is no parcel of ours: its slot would be another folder")
        at, _, pieces = last.partition(".")
        self.at = int(at)
        self.keys = [f"pieces/{self.slot}/{self.kind}/{at}/{number:06d}" for number in range(int(pieces))] + [key]


@contextmanager
def opened(depot: RunBucket, notice: ParcelNotice) -> Iterator[tuple[bytes, Iterator[tuple[str, IO[bytes]]]]]:
    """The lines of a parcel, and then its files, to be read in their order. Names are checked: none leads elsewhere."""
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
    """Reads what an iterator yields, as one file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int = -1) -> bytes:
        parts, left = [self._rest[:size]], size - len(self._rest[:size])
        self._rest = self._rest[size:]
        while left > 0 and (piece := next(self._pieces, b"")):
            parts.append(piece[:left])
            self._rest, left = piece[left:], left - len(piece[:left])
        return b"".join(parts)
