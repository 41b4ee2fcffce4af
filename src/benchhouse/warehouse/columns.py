"""Arrow columns from Python values, made of their buffers.

`pyarrow.array` would do, but where pandas is installed it imports it first, and that alone costs 200 ms: more than all
the rest of collecting a small run. For long columns it is still the quicker way.
"""

from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_LONG = 5_000  # values


def column(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """The column of these values, None where there is none. Raises TypeError or OverflowError for a wrong value."""
    import pyarrow as pa

    if len(values) > _LONG:
        return pa.array(values, type=kind)
    if pa.types.is_list(kind):
        lists = [value or () for value in values]
        content = column([item for value in lists for item in value], kind.value_type)
        buffers = [_present(values, pa), _offsets(lists, pa)]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[content])
    if pa.types.is_string(kind):
        texts = [value.encode() if value is not None else b"" for value in values]
        return pa.Array.from_buffers(
            kind, len(values), [_present(values, pa), _offsets(texts, pa), pa.py_buffer(b"".join(texts))]
        )
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [_present(values, pa), _bits(values, _true, pa)])
    plain = [_milliseconds(value) if isinstance(value, datetime) else value or 0 for value in values]
    numbers = array("d" if pa.types.is_floating(kind) else "q", plain)
    return pa.Array.from_buffers(kind, len(values), [_present(values, pa), pa.py_buffer(numbers)])


def _milliseconds(value: datetime) -> int:
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (plain - _EPOCH) // _MILLISECOND


def _true(value: Any) -> bool:
    return bool(value)


def _present(values: Sequence[Any], pa: Any) -> Any:
    """Which values there are; none where all are."""
    return _bits(values, lambda value: value is not None, pa) if None in values else None


def _bits(values: Sequence[Any], is_set: Callable[[Any], bool], pa: Any) -> Any:
    bits = bytearray(len(values) // 8 + 1)
    for place, value in enumerate(values):
        bits[place // 8] |= is_set(value) << place % 8
    return pa.py_buffer(bytes(bits))


def _offsets(parts: Sequence[Any], pa: Any) -> Any:
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))
