"""Read answers of HTTP servers that may be faulty or hostile, with limits of size and time."""

import time
from collections.abc import Iterator
from http.client import HTTPResponse

from benchhouse.schema.errors import BenchError

_PIECE_BYTES = 1 << 20
_LEAST_BYTES_PER_S = 1024


class Unbounded(BenchError):  # noqa: N818 - what the answer is
    """An answer that is too large or arrives too slowly."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server}: {reason}", "check that the address is that of the right server, and its health")


def pieces(answer: HTTPResponse, server: str, most_bytes: int, patience_s: float) -> Iterator[bytes]:
    """Yield the body as it arrives. Raise Unbounded if it is longer than `most_bytes`, or slower than 1 KiB per second.

    The speed limit applies after `patience_s`. OSError and HTTPException come from the connection itself.
    """
    began, size = time.monotonic(), 0
    while piece := answer.read1(_PIECE_BYTES):
        size += len(piece)
        if size > most_bytes:
            raise Unbounded(server, f"answers more than {most_bytes:,} bytes")
        elapsed_s = time.monotonic() - began
        if elapsed_s > patience_s + size / _LEAST_BYTES_PER_S:
            raise Unbounded(server, f"has sent {size:,} bytes in {elapsed_s:.0f} s")
        yield piece
    answer.close()  # `read1` leaves it open, and its connection could not be used again


def whole(answer: HTTPResponse, server: str, most_bytes: int, patience_s: float) -> bytes:
    """Return the whole body, read as by `pieces`."""
    return b"".join(pieces(answer, server, most_bytes, patience_s))
