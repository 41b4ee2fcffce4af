"""The space of points: blocks that multiply, any point by its index, so that nothing need be held in memory."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Block:
    """Keys that vary together, and the rows of values that they take."""

    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Space:
    """The product of the blocks, less the excluded points; the last block varies fastest."""

    blocks: tuple[Block, ...]
    exclude: tuple[Mapping[str, tuple[Any, ...]], ...] = ()

    @property
    def raw_size(self) -> int:
        """Number of points before exclusions."""
        return math.prod(len(block.rows) for block in self.blocks)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for block in self.blocks for key in block.keys)

    def point(self, index: int) -> dict[str, Any] | None:
        """The point at `index` of the raw product, or None where it is excluded."""
        point: dict[str, Any] = {}
        for block in reversed(self.blocks):
            index, at = divmod(index, len(block.rows))
            point.update(zip(block.keys, block.rows[at], strict=True))
        if any(all(point[key] in allowed for key, allowed in rule.items()) for rule in self.exclude):
            return None
        return {key: point[key] for key in self.keys}

    def points(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in range(self.raw_size):
            point = self.point(index)
            if point is not None:
                yield index, point


class Shuffle:
    """A seeded permutation of range(size) in constant memory: a Feistel network that walks its cycles."""

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
