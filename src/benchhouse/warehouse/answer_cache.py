"""A cache of answers of this process, by query and digests of the files that it reads.

The same bytes give the same answer, so nothing is invalidated when tables change: a query over other files has another
key. Only the memory is bounded.
"""

import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

from benchhouse.schema.query import QueryInput

_MOST_BYTES = 32 << 20
_LARGEST_BYTES = 6 << 20
_SMALLEST_VALUE = 32  # bytes of a number and the reference to it
_INPUT_BYTES = 200
Answer = TypeVar("Answer")
Key = tuple[str, str, str, tuple[str, ...]]


class KnownAnswers(Generic[Answer]):
    """A thread-safe cache of the most recently used answers, of at most 32 MiB."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, tuple[Answer, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, key: Key) -> Answer | None:
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key][0]

    def keep(self, key: Key, answer: Answer, values: int) -> None:
        """Store an answer. `values` is the minimum number of its single values, so that an answer that is too large is
        not measured."""
        if values * _SMALLEST_VALUE > _LARGEST_BYTES:
            return
        root, sql, parameters, digests = key
        size = _size_of(answer) + len(root) + 4 * (len(sql) + len(parameters)) + _INPUT_BYTES * len(digests)
        if size > _LARGEST_BYTES:
            return
        with self._lock:
            _, before = self._known.pop(key, (None, 0))
            self._known[key] = answer, size
            self._bytes += size - before
            while self._bytes > _MOST_BYTES:
                _, (_, freed) = self._known.popitem(last=False)
                self._bytes -= freed


def key_of(root: str, sql: str, parameters: Mapping[str, Any], inputs: Sequence[QueryInput]) -> Key:
    """Return the cache key. `root` is part of it, because the answer names the files by their paths in this
    workspace."""
    return root, sql, json.dumps(parameters, sort_keys=True, default=str), tuple(item.sha256 for item in inputs)


def _size_of(value: Any) -> int:
    """Return the bytes of a value with everything in it; an object that is in it twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, list | tuple):
        return size + sum(map(_size_of, value))
    if isinstance(value, dict):
        return size + sum(map(_size_of, value)) + sum(map(_size_of, value.values()))
    if is_dataclass(value):
        return size + sum(_size_of(getattr(value, field.name)) for field in fields(value))
    return size
