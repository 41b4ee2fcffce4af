"""Answers that this process has computed, by the question and the digests of the files that it was asked of.

The same bytes give the same answer, so nothing has to be thrown away when tables change: a question to other files is
another question. Only the room is bounded.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from benchhouse.schema.query import QueryInput

_MOST_CELLS = 300_000  # some 30 MB
_LARGEST = 60_000
Answer = TypeVar("Answer")
Key = tuple[str, str, str, tuple[str, ...]]


class KnownAnswers(Generic[Answer]):
    """The answers that were asked for last. For several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, tuple[Answer, int]] = OrderedDict()
        self._cells = 0
        self._lock = threading.Lock()

    def find(self, key: Key) -> Answer | None:
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key][0]

    def keep(self, key: Key, answer: Answer, cells: int) -> None:
        """`cells`: how much room it takes, in values."""
        if cells > _LARGEST:
            return
        with self._lock:
            _, before = self._known.pop(key, (None, 0))
            self._known[key] = answer, cells
            self._cells += cells - before
            while self._cells > _MOST_CELLS:
                _, (_, freed) = self._known.popitem(last=False)
                self._cells -= freed


def key_of(root: str, sql: str, parameters: Mapping[str, Any], inputs: Sequence[QueryInput]) -> Key:
    """`root` is part of it, for the answer names the files as this workspace does."""
    return root, sql, json.dumps(parameters, sort_keys=True, default=str), tuple(item.sha256 for item in inputs)
