"""Arrow columns from Python values, made from their buffers.

`pyarrow.array` would do the same, but it imports pandas if installed, which alone costs 0.2 s of CPU and more: the cost
of all other steps of collecting a small run.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of these values; None is null. Raise TypeError or OverflowError for an invalid value."""
    return _lists(values, kind) if pa.types.is_list(kind) else _plain(values, kind)


def records(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a table of these rows, which all have all columns."""
    values = zip(*map(itemgetter(*schema.names), rows), strict=True) if rows else ((),) * len(schema)
    columns = [column(each, field.type) for each, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def chained(parts: Sequence[list[Any]], kind: pa.DataType) -> pa.Array:
    """Return a column of these lists, one after the other."""
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        numbers = array("d" if pa.types.is_floating(kind) else "q")
        try:
            for part in parts:
                numbers.fromlist(part)
            return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
        except TypeError:  # one of the values is None
            pass
    return column(list(chain.from_iterable(parts)), kind)


def spread(values: Sequence[Any], counts: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return a column that repeats each value by its count."""
    known = {value: at for at, value in enumerate(dict.fromkeys(values))}
    if len(known) == 1:
        return pick(list(known), array("i", bytes(4 * sum(counts))), kind)
    places = array("i")
    for value, count in zip(values, counts, strict=True):
        places.extend(array("i", [known[value]]) * count)
    return pick(list(known), places, kind)


def pick(values: Sequence[Any], places: "array[int]", kind: pa.DataType) -> pa.Array:
    """Return a column in which row n is the value at `places[n]`.

    Distinct texts stay a dictionary, because the writer would make one of them anyway.
    """
    if all(value is None for value in values):
        return pa.nulls(len(places), kind)
    index = pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])
    entries = pa.DictionaryArray.from_arrays(index, column(values, kind))
    distinct = pa.types.is_string(kind) and None not in values and len(set(values)) == len(values)
    return entries if distinct else entries.dictionary_decode()


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        texts = [value.encode() if value is not None else b"" for value in values]
        return pa.Array.from_buffers(
            kind, len(values), [_present(values), _offsets(texts), pa.py_buffer(b"".join(texts))]
        )
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [_present(values), _bits(values, bool)])
    present = _present(values)
    if pa.types.is_timestamp(kind):
        values = [_milliseconds(value) if isinstance(value, datetime) else value or 0 for value in values]
    elif present is not None:
        values = [0 if value is None else value for value in values]
    numbers = array("d" if pa.types.is_floating(kind) else "q", values)
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(numbers)])


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if any(values):
        lists = [value or () for value in values]
        content, offsets = column([item for value in lists for item in value], kind.value_type), _offsets(lists)
    else:  # as for nearly all slices of a run
        content, offsets = column((), kind.value_type), pa.py_buffer(bytes(4 * len(values) + 4))
    buffers = [_present(values), offsets]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[content])


def _milliseconds(value: datetime) -> int:
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (plain - _EPOCH) // _MILLISECOND


def _present(values: Sequence[Any]) -> Any:
    """Return the validity bits of values; None if all are valid."""
    if None not in values:
        return None
    if all(value is None for value in values):
        return pa.py_buffer(bytes(len(values) // 8 + 1))
    return _bits(values, lambda value: value is not None)


def _bits(values: Sequence[Any], is_set: Callable[[Any], bool]) -> Any:
    """Return one bit per value, eight per byte, the first in the lowest bit."""
    bits = "".join("1" if is_set(value) else "0" for value in reversed(values)) or "0"
    return pa.py_buffer(int(bits, 2).to_bytes(len(values) // 8 + 1, "little"))


def _offsets(parts: Sequence[Any]) -> Any:
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))
