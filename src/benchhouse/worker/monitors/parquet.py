"""Writes the samples of a scope as a Parquet file: a table of doubles, with only the standard library.

A worker in a container has no pyarrow: a worker layer contains pydantic and PyYAML. Elsewhere, importing pyarrow and
NumPy would cost 0.25 s of CPU after each trial. This only needs one row group, and one page per column.
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping

Field = tuple[int, int, object]
"""Number, type, and value of a field in Thrift's compact protocol."""

_MAGIC = b"PAR1"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # types of Thrift's compact protocol
_DOUBLE, _REQUIRED, _PLAIN, _RLE, _DATA_PAGE, _GZIP = 5, 0, 0, 3, 0, 2  # of Parquet


def encode(columns: Mapping[str, "array[float]"], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a table of doubles; all columns have the same length, with NaN for missing values."""
    rows = len(next(iter(columns.values())))
    out = [_MAGIC]
    offset, total, chunks = len(_MAGIC), 0, []
    elements: list[list[Field]] = [[(4, _BINARY, "schema"), (5, _I32, len(columns))]]
    for name, values in columns.items():
        elements.append([(1, _I32, _DOUBLE), (3, _I32, _REQUIRED), (4, _BINARY, name)])
        plain = _little_endian(values)
        packed = zlib.compress(plain, 1, wbits=31)
        page = [(1, _I32, rows), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE)]
        sizes = [(2, _I32, len(plain)), (3, _I32, len(packed))]
        header = _struct([(1, _I32, _DATA_PAGE), *sizes, (5, _STRUCT, page)])
        uncompressed, size = len(header) + len(plain), len(header) + len(packed)
        about: list[Field] = [
            (1, _I32, _DOUBLE), (2, _LIST, (_I32, (_PLAIN,))), (3, _LIST, (_BINARY, (name,))), (4, _I32, _GZIP),
            (5, _I64, rows), (6, _I64, uncompressed), (7, _I64, size), (9, _I64, offset),
        ]  # fmt: skip
        chunks.append([(2, _I64, offset), (3, _STRUCT, about)])
        out += [header, packed]
        offset += size
        total += uncompressed
    group = [(1, _LIST, (_STRUCT, chunks)), (2, _I64, total), (3, _I64, rows)]
    pairs = [[(1, _BINARY, key), (2, _BINARY, value)] for key, value in metadata.items()]
    footer = _struct(
        [
            (1, _I32, 1), (2, _LIST, (_STRUCT, elements)), (3, _I64, rows), (4, _LIST, (_STRUCT, [group])),
            (5, _LIST, (_STRUCT, pairs)), (6, _BINARY, "benchhouse"),
        ]
    )  # fmt: skip
    return b"".join([*out, footer, struct.pack("<I", len(footer)), _MAGIC])


def _little_endian(values: "array[float]") -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _struct(fields: Iterable[Field]) -> bytes:
    """Encode fields in ascending order: each is its distance from the previous one and its type, then its value; 0 ends
    them."""
    out, last = bytearray(), 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | kind)
        out += _value(kind, value)
        last = number
    return bytes(out) + b"\0"


def _value(kind: int, value: object) -> bytes:
    if kind in (_I32, _I64):
        assert isinstance(value, int)
        return _varint(value << 1 ^ value >> 63)
    if kind == _BINARY:
        text = str(value).encode()
        return _varint(len(text)) + text
    if kind == _STRUCT:
        return _struct(value)  # type: ignore[arg-type]
    assert isinstance(value, tuple)
    inner, items = value
    head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
    return head + b"".join([_value(inner, item) for item in items])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
