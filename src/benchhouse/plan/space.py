"""The space of points: a product of blocks, with any point by its index, so that nothing is held in memory."""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchhouse.schema.cancellation import stop_if_cancelled


@dataclass(frozen=True)
class VaryingKeys:
    """Keys that vary together, and the rows of values that they take."""

    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def column(self, key: str) -> list[Any]:
        """Return the values of one of the keys."""
        at = self.keys.index(key)
        return [row[at] for row in self.rows]


@dataclass(frozen=True)
class PointSpace:
    """The product of the blocks without the excluded points; the last block varies fastest.

    A rule of `exclude` maps numbers of blocks to rows: it excludes the points all of whose rows are in the rule.
    """

    blocks: tuple[VaryingKeys, ...]
    exclude: tuple[Mapping[int, frozenset[int]], ...] = ()

    @property
    def raw_size(self) -> int:
        """The number of points before exclusions."""
        return math.prod(len(block.rows) for block in self.blocks)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for block in self.blocks for key in block.keys)

    def point(self, index: int) -> dict[str, Any] | None:
        """Return the point at `index` of the raw product, or None if it is excluded."""
        rows = []
        for block in reversed(self.blocks):
            index, row = divmod(index, len(block.rows))
            rows.append(row)
        rows.reverse()
        return None if self._excluded(rows) else self.at(rows)

    def points(self) -> Iterator[dict[str, Any]]:
        return map(self.at, self.rows())

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yield, for each point, the number of its row in each block."""
        step = max(1, 1024 // (1 + len(self.exclude)))  # a point with thousands of rules is slow
        for number, rows in enumerate(itertools.product(*(range(len(block.rows)) for block in self.blocks))):
            if number % step == 0:
                stop_if_cancelled()
            if not self.exclude or not self._excluded(rows):
                yield rows

    def _excluded(self, rows: Sequence[int]) -> bool:
        return any(all(rows[block] in gone for block, gone in rule.items()) for rule in self.exclude)

    def at(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the point with these rows."""
        point: dict[str, Any] = {}
        for block, row in zip(self.blocks, rows, strict=True):
            point.update(zip(block.keys, block.rows[row], strict=True))
        return point


class Shuffle:
    """A seeded permutation of range(size) in constant memory: a Feistel network with cycle walking."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.half = max(1, (max(1, size - 1).bit_length() + 1) // 2)
        self.mask = (1 << self.half) - 1
        self.keys = [hashlib.sha256(f"{seed}/{turn}".encode()).digest() for turn in range(4)]

    def __getitem__(self, index: int) -> int:
        value = self._mix(index)
        while value >= self.size:
            value = self._mix(value)
        return value

    def _mix(self, value: int) -> int:
        left, right = value >> self.half, value & self.mask
        for key in self.keys:
            word = hashlib.blake2b(right.to_bytes(8, "big"), key=key, digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(word, "big") & self.mask)
        return (left << self.half) | right
