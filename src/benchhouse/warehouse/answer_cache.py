"""Answers that this process has computed, by the question and the digests of the files that it was asked of.

The same bytes give the same answer, so nothing has to be thrown away when tables change: a question to other files is
another question. Only the memory is bounded.
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
    """The answers that were asked for last, in at most 32 MiB. For several threads."""

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
        """`values`: how many single values it has at least; one that is too large anyway is not measured."""
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
    """`root` is part of it, for the answer names the files as this workspace does."""
    return root, sql, json.dumps(parameters, sort_keys=True, default=str), tuple(item.sha256 for item in inputs)


def _size_of(value: Any) -> int:
    """Bytes of a value with all that is in it; what is in it twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, list | tuple):
        return size + sum(map(_size_of, value))
    if isinstance(value, dict):
        return size + sum(map(_size_of, value)) + sum(map(_size_of, value.values()))
    if is_dataclass(value):
        return size + sum(_size_of(getattr(value, field.name)) for field in fields(value))
    return size
