"""Where between two levels does the new one begin, and how strong is the evidence that there are two?

By the likelihood of every place. Of places that are nearly as likely, the one is taken that has most of the likelihood
near it. In noise that remembers the first run of a new level tells most, as the run before it does not explain it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchhouse.analysis.segments import median

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

NEAR = 5
"""Runs either way that count as the same place."""
_CLIP = 2.5  # standard deviations outside both levels, beyond which a value counts no more than one there


class Place(NamedTuple):
    """The likeliest beginning of a new level."""

    at: int
    evidence: float
    """Twice the log of how much likelier two levels are than one: for one given place the square of a z."""
    size: float
    """The level after less the one before."""


def place(x: Vector, start: int, cut: int, end: int, error: float, shortest: int) -> Place:
    """Between `start` and `end`, where one cut is known to be about `cut`, of noise that does not remember."""
    import numpy as np

    gains, sizes = _gains(_pull_in(x, start, cut, end, 0.0, error), 0.0, shortest)
    peak = int(gains.argmax())
    most = float(gains[peak]) / (error * error)
    likely = np.exp((gains - gains[peak]) / (2.0 * error * error))
    best = peak
    if len(likely) > 2 * NEAR + 1:
        around = np.convolve(likely, np.ones(2 * NEAR + 1), "same")
        best = int((around + 1e-6 * likely).argmax())
    return Place(start + shortest + best, most, float(sizes[peak]))


def size_step(x: Vector, start: int, cut: int, end: int, memory: float, error: float) -> float:
    """The step at the likeliest place, of noise that remembers; `error` is the deviation of a run given the last."""
    gains, sizes = _gains(_pull_in(x, start, cut, end, memory, error), memory, NEAR)
    return float(sizes[int(gains.argmax())])


def _pull_in(x: Vector, start: int, cut: int, end: int, memory: float, error: float) -> Vector:
    """The runs about the level before the cut, none farther outside both levels than a run may be."""
    import numpy as np

    left, right = median(x[start:cut]), median(x[cut:end])
    reach = _CLIP * error / float(np.sqrt(1.0 - memory * memory))
    near: Vector = np.clip(x[start:end], min(left, right) - reach, max(left, right) + reach) - left
    return near


def _gains(x: Vector, memory: float, shortest: int) -> tuple[Vector, Vector]:
    """How many squares two levels explain that one does not, for each place; and the step that fits best there.

    Of x[t] - memory * x[t-1], a level of one explains `keep` at each run, at the first run after a step the new level
    explains 1 and the old one -memory; the very first run stands for itself.
    """
    import numpy as np

    n, keep, first = len(x), 1.0 - memory, 1.0 - memory * memory
    steps = x[1:] - memory * x[:-1]
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    at = np.arange(shortest, n - shortest + 1)
    here = steps[at - 1]
    before = keep * sums[at - 1] - memory * here + first * x[0]
    after = here + keep * (sums[-1] - sums[at])
    known_before = (at - 1) * keep * keep + memory * memory + first
    known_after = 1.0 + (n - 1 - at) * keep * keep
    shared = known_before * known_after - memory * memory
    explained = (before * before * known_after + 2.0 * memory * before * after + after * after * known_before) / shared
    whole = keep * float(sums[-1]) + first * float(x[0])
    one = whole * whole / ((n - 1) * keep * keep + first)
    sizes = (after * known_before + memory * before - before * known_after - memory * after) / shared
    return explained - one, sizes
