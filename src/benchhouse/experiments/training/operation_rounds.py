"""What one operation between ranks took, whoever measured it, and the factor of its bus bandwidth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]


@dataclass(frozen=True)
class OperationRounds:
    """Rounds of one operation."""

    bytes: int
    """Really moved, as nccl-tests counts them."""
    seconds: Sequence[float]
    """Of one operation, by the slowest rank: of each round."""
    wrong: int | None
    """Elements; None where nothing was checked."""
    skew_s: float = math.nan
    """Between the ranks of a node that begin a round; NaN where nobody says it."""
    waited_s: float | None = None
    """In an operation, threads of the rank that waited most, for a core; None where nobody says it."""
    off_s: float | None = None
    """How far the time can be off because of that skew; None where it is not known."""
    facts: Mapping[str, Any] = field(default_factory=dict)


def bus_factor(operation: Operation, ranks: int) -> float:
    """Bus bandwidth / algorithm bandwidth: what the busiest link moves for each byte of the size."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0
