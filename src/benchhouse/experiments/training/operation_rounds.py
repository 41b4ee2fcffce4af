"""Duration of one operation between ranks, from any program, and the factor of its bus bandwidth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]


@dataclass(frozen=True)
class OperationRounds:
    """Rounds of one operation."""

    bytes: int
    """Bytes that were really moved, as nccl-tests counts them."""
    seconds: Sequence[float]
    """Seconds of one operation on the slowest rank, for each round."""
    wrong: int | None
    """Number of wrong elements; None if none were checked."""
    skew_s: float = math.nan
    """Seconds between the ranks of a node that begin a round; NaN if unknown."""
    waited_s: float | None = None
    """Seconds per operation that the threads of the rank that waited most waited for a core; None if unknown."""
    off_s: float | None = None
    """Possible error of the time due to the skew; None if unknown."""
    facts: Mapping[str, Any] = field(default_factory=dict)


def bus_factor(operation: Operation, ranks: int) -> float:
    """Return bus bandwidth / algorithm bandwidth: what the busiest link moves for each byte of the size."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0
