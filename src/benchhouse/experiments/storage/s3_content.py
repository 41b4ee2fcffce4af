"""Contents of objects: made from a seed, never stored as a whole, and compared byte by byte when they come back.

Every content is a stretch of one random block that is repeated; contents differ in where they begin. So an object of a
gigabyte does not need a gigabyte of memory, and comparing costs less than any digest.
"""

import hashlib
import random
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

PIECE_BYTES = 1 << 20
_LARGEST_BLOCK = 16 << 20
_DIGESTED_BYTES = 256 << 20  # of contents: their digests are made before the measured time
_MOST_CONTENTS = 64


class ContentBlock:
    """Random bytes, or the first bytes of a file, repeated without end."""

    def __init__(self, seed: int, size: int, given: Path | None = None) -> None:
        once = random.Random(seed).randbytes(min(max(size, PIECE_BYTES), _LARGEST_BLOCK)) if not given else _read(given)
        self.size = len(once)
        self.data = once + once[:PIECE_BYTES]  # a piece may begin anywhere

    def pieces(self, start: int, size: int) -> list[memoryview]:
        view = memoryview(self.data)
        places = [((start + at) % self.size, min(PIECE_BYTES, size - at)) for at in range(0, size, PIECE_BYTES)]
        return [view[at : at + length] for at, length in places]


def _read(path: Path) -> bytes:
    """Return the beginning of a file; a short one is repeated until it fills a piece."""
    with path.open("rb") as file:
        once = file.read(_LARGEST_BLOCK)
    return once * -(-PIECE_BYTES // len(once))


class Stretch:
    """The content of an object, or of a part of one."""

    def __init__(self, block: ContentBlock, start: int, size: int) -> None:
        self.block, self.start, self.size = block, start, size

    def pieces(self) -> list[memoryview]:
        return self.block.pieces(self.start, self.size)

    @cached_property
    def whole(self) -> bytes:
        """The whole content; only for small objects."""
        return b"".join(self.pieces())

    @cached_property
    def md5(self) -> str:
        return self._digest(hashlib.md5(usedforsecurity=False))

    @cached_property
    def sha256(self) -> str:
        return self._digest(hashlib.sha256())

    def _digest(self, digest: "hashlib._Hash") -> str:
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def parts(self, size: int) -> "list[Stretch]":
        return [Stretch(self.block, self.start + at, min(size, self.size - at)) for at in range(0, self.size, size)]

    def problem(self, pieces: Iterable[bytes]) -> str:
        """Describe how pieces differ from this content; empty if they do not."""
        compared = Compared(self)
        for piece in pieces:
            compared(piece)
        return compared.problem()


class Compared:
    """A sink that compares received bytes with those that were written."""

    __slots__ = ("_at", "_content", "_wrong")

    def __init__(self, content: Stretch) -> None:
        self._content = content
        self._at = 0
        self._wrong = -1  # offset of the first piece that differs

    def __call__(self, piece: bytes | memoryview) -> None:
        block, content = self._content.block, self._content
        for begin in range(0, len(piece), PIECE_BYTES):
            part = piece[begin : begin + PIECE_BYTES] if len(piece) > PIECE_BYTES else piece
            if self._wrong < 0 and not block.data.startswith(part, (content.start + self._at) % block.size):
                self._wrong = self._at
            self._at += len(part)

    def problem(self) -> str:
        if self._at != self._content.size:
            return f"{self._at} bytes came, {self._content.size} were written"
        return f"what came differs from what was written, after byte {self._wrong}" if self._wrong >= 0 else ""


def make_contents(seed: int, size: int, most: int, given: Path | None = None) -> list[Stretch]:
    """Return different contents of one size: one per object, limited by what can be digested quickly.

    Contents of a given file are stretches of its first 16 MiB; they differ in where they begin.
    """
    block = ContentBlock(seed, size, given)
    count = max(min(most, _MOST_CONTENTS, _DIGESTED_BYTES // size), 2)
    places = random.Random(seed + 1).sample(range(block.size), count)
    return [Stretch(block, place, size) for place in places]
