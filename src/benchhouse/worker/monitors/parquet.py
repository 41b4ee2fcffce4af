"""A table of doubles as a Parquet file, from the standard library alone.

`pyarrow` writes the same, but importing it costs a worker a quarter of a second of CPU after each trial, many times
what a whole short trial costs. Of the format this needs little: one row group, a page a column, plain doubles, gzip.
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping

_MAGIC = b"PAR1"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # types of Thrift's compact protocol
_DOUBLE, _REQUIRED, _PLAIN, _RLE, _GZIP, _DATA_PAGE = 5, 0, 0, 3, 2, 0
Field = tuple[int, int, object]


def encode(columns: Mapping[str, "array[float]"], metadata: Mapping[str, str]) -> bytes:
    """The bytes of the file; all columns are of one length, NaN where there is no value."""
    rows = len(next(iter(columns.values())))
    out = [_MAGIC]
    at, total, chunks = len(_MAGIC), 0, []
    for name, values in columns.items():
        plain = _little(values)
        packed = zlib.compress(plain, 1, wbits=31)
        page = [(1, _I32, rows), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE)]
        header = _struct([(1, _I32, _DATA_PAGE), (2, _I32, len(plain)), (3, _I32, len(packed)), (5, _STRUCT, page)])
        out += [header, packed]
        whole = len(plain) + len(header)
        about = [
            (1, _I32, _DOUBLE), (2, _LIST, (_I32, [_PLAIN])), (3, _LIST, (_BINARY, [name])), (4, _I32, _GZIP),
            (5, _I64, rows), (6, _I64, whole), (7, _I64, len(header) + len(packed)), (9, _I64, at),
        ]  # fmt: skip
        chunks.append([(2, _I64, at), (3, _STRUCT, about)])
        at += len(header) + len(packed)
        total += whole
    schema = [[(4, _BINARY, "schema"), (5, _I32, len(columns))]]
    schema += [[(1, _I32, _DOUBLE), (3, _I32, _REQUIRED), (4, _BINARY, name)] for name in columns]
    group = [(1, _LIST, (_STRUCT, chunks)), (2, _I64, total), (3, _I64, rows)]
    pairs = [[(1, _BINARY, key), (2, _BINARY, value)] for key, value in metadata.items()]
    footer = _struct(
        [
            (1, _I32, 1), (2, _LIST, (_STRUCT, schema)), (3, _I64, rows), (4, _LIST, (_STRUCT, [group])),
            (5, _LIST, (_STRUCT, pairs)), (6, _BINARY, "benchhouse"),
        ]
    )  # fmt: skip
    return b"".join([*out, footer, struct.pack("<I", len(footer)), _MAGIC])


def _little(values: "array[float]") -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _struct(fields: Iterable[Field]) -> bytes:
    """Fields in ascending order: each is its distance from the last and its type, then its value; 0 ends them."""
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
    return head + b"".join(_value(inner, item) for item in items)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
