"""Clocks of two nodes, compared by round trips: between asking and hearing, the other node read its clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class RoundTrip:
    """Seconds of this node's monotonic clock when it asked and when it heard, and both clocks of the other between."""

    asked_s: float
    heard_s: float
    there_s: float  # by its monotonic clock
    ahead_s: float  # its time of day less ours, each less its own monotonic clock

    @property
    def length_s(self) -> float:
        return self.heard_s - self.asked_s

    @property
    def offset_s(self) -> float:
        """Its monotonic clock less ours, were both ways as long."""
        return self.there_s - (self.asked_s + self.heard_s) / 2


class NodeClock:
    """The clock of another node beside ours: by the shortest of its round trips before and after a trial.

    Whatever the two ways took, an offset is off by at most half of its round trip.
    """

    def __init__(self, before: Iterable[RoundTrip], after: Iterable[RoundTrip] = ()) -> None:
        self._before = min(before, key=lambda trip: trip.length_s)
        self._after = min(after, key=lambda trip: trip.length_s, default=None)

    @property
    def uncertainty_s(self) -> float:
        return max(trip.length_s for trip in (self._before, self._after) if trip) / 2

    @property
    def offset_s(self) -> float:
        """Its monotonic clock less ours, at the first moment."""
        return self._before.offset_s

    @property
    def ahead_s(self) -> float:
        """Its time of day less ours."""
        return self._before.ahead_s + self._before.offset_s

    @cached_property
    def drift(self) -> float:
        """Seconds that its clock gains on ours a second; 0 where the two moments are too close to tell."""
        if self._after is None:
            return 0.0
        apart_s = self._after.there_s - self._before.there_s
        gained_s = self._after.offset_s - self._before.offset_s
        told = abs(gained_s) > (self._before.length_s + self._after.length_s) / 2
        return gained_s / apart_s if told and apart_s > 0 else 0.0

    def here_s(self, there_s: float) -> float:
        """The moment of our monotonic clock at which its own showed `there_s`."""
        return there_s - self._before.offset_s - self.drift * (there_s - self._before.there_s)
