"""Small tables as Parquet files, from the standard library alone.

`pyarrow` writes the same, but importing it, and NumPy with it, takes a fifth of a second of CPU: many times what a
short trial costs, and more than all the rest of collecting a small run. Of the format this needs little: one row group,
a page a column, plain numbers, texts by a dictionary.
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

Kind = Literal["text", "texts", "integer", "number", "truth", "time"]
Field = tuple[int, int, object]

_MAGIC = b"PAR1"
_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12  # types of Thrift's compact protocol
_BOOLEAN, _INT64, _DOUBLE, _BYTES = 0, 2, 5, 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_PLAIN, _RLE, _BY_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_GZIP = 2
_EPOCH, _MILLISECOND = datetime(1970, 1, 1), timedelta(milliseconds=1)

_IS_TEXT: list[Field] = [(6, _I32, 0), (10, _STRUCT, [(1, _STRUCT, [])])]
_IS_LIST: list[Field] = [(6, _I32, 3), (10, _STRUCT, [(3, _STRUCT, [])])]
_IS_TIME: list[Field] = [  # in milliseconds, of no zone
    (10, _STRUCT, [(8, _STRUCT, [(1, _FALSE, None), (2, _STRUCT, [(1, _STRUCT, [])])])])
]
_PHYSICAL: dict[Kind, int] = {
    "text": _BYTES, "texts": _BYTES, "integer": _INT64, "number": _DOUBLE, "truth": _BOOLEAN, "time": _INT64
}  # fmt: skip


class Chunk(NamedTuple):
    """One column: what the schema says of it, and its page or pages."""

    path: tuple[str, ...]
    physical: int
    elements: list[list[Field]]
    slots: int  # values, those that are not there included
    page: bytes
    dictionary: tuple[int, bytes] | None = None  # how many entries, and these
    encodings: tuple[int, ...] = (_PLAIN, _RLE)
    packed: bool = False


def encode(columns: Mapping[str, "array[float]"], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a table of doubles; all columns are of one length, NaN where there is no value."""
    rows = len(next(iter(columns.values())))
    chunks = []
    for name, values in columns.items():
        element: list[Field] = [(1, _I32, _DOUBLE), (3, _I32, _REQUIRED), (4, _BINARY, name)]
        chunks.append(Chunk((name,), _DOUBLE, [element], rows, _little(values), encodings=(_PLAIN,), packed=True))
    return _file(chunks, rows, metadata)


def encode_rows(kinds: Mapping[str, Kind], rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a table of these rows, each with all columns of `kinds`; None where there is no value.

    Raises KeyError, TypeError, AttributeError or OverflowError for a row that does not fit. Nothing is compressed:
    equal rows give equal bytes, with whatever libraries.
    """
    chunks = [_chunk(name, kind, [row[name] for row in rows]) for name, kind in kinds.items()]
    return _file(chunks, len(rows), metadata)


def _chunk(name: str, kind: Kind, values: Sequence[Any]) -> Chunk:
    physical = _PHYSICAL[kind]
    if kind == "texts":
        return _chunk_of_lists(name, values)
    present = values if None not in values else [value for value in values if value is not None]
    levels = _levels([value is not None for value in values], 1)
    element: list[Field] = [(1, _I32, physical), (3, _I32, _OPTIONAL), (4, _BINARY, name)]
    if kind == "text":
        page, dictionary = _texts(present)
        by_dictionary = (_PLAIN, _RLE, _BY_DICTIONARY)
        return Chunk((name,), physical, [element + _IS_TEXT], len(values), levels + page, dictionary, by_dictionary)
    if kind == "time":
        element += _IS_TIME
    return Chunk((name,), physical, [element], len(values), levels + _numbers(kind, present))


def _chunk_of_lists(name: str, values: Sequence[Any]) -> Chunk:
    """Each text is a slot; so is each list that is empty or not there."""
    repeated, defined, texts = list[bool](), list[int](), list[str]()
    for value in values:
        for at, text in enumerate(value or (None,)):
            repeated.append(at > 0)
            defined.append(0 if value is None else 1 if not value else 2 if text is None else 3)
            if text is not None:
                texts.append(text)
    page, dictionary = _texts(texts)
    elements: list[list[Field]] = [
        [(3, _I32, _OPTIONAL), (4, _BINARY, name), (5, _I32, 1), *_IS_LIST],
        [(3, _I32, _REPEATED), (4, _BINARY, "list"), (5, _I32, 1)],
        [(1, _I32, _BYTES), (3, _I32, _OPTIONAL), (4, _BINARY, "element"), *_IS_TEXT],
    ]
    levels = _levels(repeated, 1) + _levels(defined, 2)
    path, encodings = (name, "list", "element"), (_PLAIN, _RLE, _BY_DICTIONARY)
    return Chunk(path, _BYTES, elements, len(defined), levels + page, dictionary, encodings)


def _texts(values: Sequence[str]) -> tuple[bytes, tuple[int, bytes]]:
    """Which entry of the dictionary each is, and the dictionary."""
    known = {text: at for at, text in enumerate(dict.fromkeys(values))}
    width = max(1, (len(known) - 1).bit_length())
    entries = [text.encode() for text in known]
    plain = b"".join(struct.pack("<I", len(text)) + text for text in entries)
    return bytes([width]) + _hybrid([known[text] for text in values], width), (len(known), plain)


def _numbers(kind: Kind, values: Sequence[Any]) -> bytes:
    if kind == "truth":
        return _bits([bool(value) for value in values], 1)
    if kind == "time":
        values = [_milliseconds(value) for value in values]
    return _little(array("d" if kind == "number" else "q", values))


def _milliseconds(value: datetime) -> int:
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (plain - _EPOCH) // _MILLISECOND


def _levels(values: Sequence[int], width: int) -> bytes:
    """Per slot, how much of it is there, or whether it goes on with the row before."""
    runs = _hybrid(values, width)
    return struct.pack("<I", len(runs)) + runs


def _hybrid(values: Sequence[int], width: int) -> bytes:
    """One run: of the same number, or of numbers one after the other, eight at a time."""
    if not values:
        return b""
    if values.count(values[0]) == len(values):
        return _varint(len(values) << 1) + int(values[0]).to_bytes((width + 7) // 8, "little")
    return _varint((len(values) + 7) // 8 << 1 | 1) + _bits(values, width)


def _bits(values: Sequence[int], width: int) -> bytes:
    """Each in as many bits, the first in the lowest, whole groups of eight."""
    bits = "".join([f"{value:0{width}b}" for value in reversed(values)]) or "0"
    return int(bits, 2).to_bytes((len(values) + 7) // 8 * width, "little")


def _little(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _file(columns: Sequence[Chunk], rows: int, metadata: Mapping[str, str]) -> bytes:
    out = [_MAGIC]
    at, total, chunks = len(_MAGIC), 0, []
    elements: list[list[Field]] = [[(4, _BINARY, "schema"), (5, _I32, len(columns))]]
    for one in columns:
        pages, whole, about = _pages(one, at)
        chunks.append([(2, _I64, at), (3, _STRUCT, about)])
        elements += one.elements
        out += pages
        at += sum(map(len, pages))
        total += whole
    group = [(1, _LIST, (_STRUCT, chunks)), (2, _I64, total), (3, _I64, rows)]
    pairs = [[(1, _BINARY, key), (2, _BINARY, value)] for key, value in metadata.items()]
    footer = _struct(
        [
            (1, _I32, 1), (2, _LIST, (_STRUCT, elements)), (3, _I64, rows), (4, _LIST, (_STRUCT, [group])),
            (5, _LIST, (_STRUCT, pairs)), (6, _BINARY, "benchhouse"),
        ]
    )  # fmt: skip
    return b"".join([*out, footer, struct.pack("<I", len(footer)), _MAGIC])


def _pages(one: Chunk, at: int) -> tuple[list[bytes], int, list[Field]]:
    """A column's bytes, how many they would be unpacked, and what the footer says of it; it begins at `at`."""
    pages: list[bytes] = []
    if one.dictionary is not None:
        entries, plain = one.dictionary
        kind = [(1, _I32, entries), (2, _I32, _PLAIN)]
        pages = [_header(_DICTIONARY_PAGE, len(plain), len(plain), (7, _STRUCT, kind)), plain]
    begin = at + sum(map(len, pages))
    packed = zlib.compress(one.page, 1, wbits=31) if one.packed else one.page
    coded = _BY_DICTIONARY if one.dictionary is not None else _PLAIN
    kind = [(1, _I32, one.slots), (2, _I32, coded), (3, _I32, _RLE), (4, _I32, _RLE)]
    pages += [_header(_DATA_PAGE, len(one.page), len(packed), (5, _STRUCT, kind)), packed]
    size = sum(map(len, pages))
    whole = size - len(packed) + len(one.page)
    about: list[Field] = [
        (1, _I32, one.physical), (2, _LIST, (_I32, one.encodings)), (3, _LIST, (_BINARY, one.path)),
        (4, _I32, _GZIP if one.packed else 0), (5, _I64, one.slots), (6, _I64, whole), (7, _I64, size),
        (9, _I64, begin),
    ]  # fmt: skip
    if one.dictionary is not None:
        about.append((11, _I64, at))
    return pages, whole, about


def _header(kind: int, plain: int, packed: int, own: Field) -> bytes:
    return _struct([(1, _I32, kind), (2, _I32, plain), (3, _I32, packed), own])


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
    if kind in (_TRUE, _FALSE):  # the type says it all
        return b""
    assert isinstance(value, tuple)
    inner, items = value
    head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
    return head + b"".join([_value(inner, item) for item in items])


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _BYTE[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_BYTE = [bytes([number]) for number in range(0x80)]
