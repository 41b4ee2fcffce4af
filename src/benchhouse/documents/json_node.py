"""Values of a JSON document, read by type; a value of another type is a problem with its path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_SHOWN = 60
_LARGEST = 1e300


class JsonNode:
    """A value of a document, and the path to it: `results[0].times`."""

    __slots__ = ("_problem", "path", "value")

    def __init__(self, value: object, path: str, problem: Callable[[str], NoReturn]) -> None:
        self.value: Any = value
        self.path, self._problem = path, problem

    def __getitem__(self, key: str) -> JsonNode:
        """Return the member; a missing one is a problem."""
        found = self.get(key)
        if found is None:
            self._problem(f"{self._where} has no '{key}'")
        return found

    def get(self, key: str) -> JsonNode | None:
        """Return the member; None if it is missing or null."""
        value = self.mapping().get(key)
        return None if value is None else JsonNode(value, f"{self.path}.{key}" if self.path else key, self._problem)

    def at(self, *keys: str) -> JsonNode | None:
        """Return the value at the end of a path; None if there is none."""
        node: JsonNode | None = self
        for key in keys:
            node = node.get(key) if node is not None and isinstance(node.value, dict) else None
        return node

    def mapping(self) -> dict[str, Any]:
        return self.value if isinstance(self.value, dict) else self._expected("a mapping")

    def members(self) -> Iterator[tuple[str, JsonNode]]:
        for key, value in self.mapping().items():
            yield key, JsonNode(value, f"{self.path}.{key}" if self.path else key, self._problem)

    def items(self) -> Iterator[JsonNode]:
        if not isinstance(self.value, list):
            self._expected("a list")
        for at, value in enumerate(self.value):
            yield JsonNode(value, f"{self.path}[{at}]", self._problem)

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self._expected("a text")

    def number(self) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._expected("a number")
        if (isinstance(value, int) and abs(value) > _LARGEST) or not math.isfinite(value):
            return self._expected("a finite number")
        return float(value)

    def numbers(self) -> list[float]:
        return [item.number() for item in self.items()]

    def maybe_number(self, *keys: str) -> float | None:
        """Return the number at the end of a path; None if there is none."""
        node = self.at(*keys)
        return None if node is None else node.number()

    def maybe_text(self, *keys: str) -> str | None:
        """Return the text, or a number as text, at the end of a path; None if there is none."""
        node = self.at(*keys)
        if node is None or isinstance(node.value, dict | list):
            return None
        return str(node.value)

    def refuse(self, message: str) -> NoReturn:
        """Report a problem with this value."""
        self._problem(f"{self._where}: {message}")

    @property
    def _where(self) -> str:
        return self.path or "the document"

    def _expected(self, what: str) -> NoReturn:
        try:
            shown = repr(self.value)[:_SHOWN]
        except (ValueError, RecursionError):  # an integer with a million digits
            shown = f"a {type(self.value).__name__}"
        self._problem(f"{self._where}: expected {what}, found {shown}")
