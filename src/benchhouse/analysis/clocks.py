"""Clocks of two nodes, compared by round trips: the other node reads its clock between request and response."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class RoundTrip:
    """This node's monotonic clock at request and response, in seconds, and both clocks of the other node in between."""

    asked_s: float
    heard_s: float
    there_s: float  # the other node's monotonic clock
    ahead_s: float  # its time of day minus ours, each minus its own monotonic clock

    @property
    def length_s(self) -> float:
        return self.heard_s - self.asked_s

    @property
    def offset_s(self) -> float:
        """The other node's monotonic clock minus ours, assuming that both ways took equally long."""
        return self.there_s - (self.asked_s + self.heard_s) / 2


class NodeClock:
    """The clock of another node relative to ours, by the shortest of its round trips before and after a trial.

    However long the two ways took, an offset is off by at most half of its round trip.
    """

    def __init__(self, before: Iterable[RoundTrip], after: Iterable[RoundTrip] = ()) -> None:
        self._before = min(before, key=lambda trip: trip.length_s)
        self._after = min(after, key=lambda trip: trip.length_s, default=None)

    @property
    def uncertainty_s(self) -> float:
        return max(trip.length_s for trip in (self._before, self._after) if trip) / 2

    @property
    def offset_s(self) -> float:
        """The other node's monotonic clock minus ours, at the first moment."""
        return self._before.offset_s

    @property
    def ahead_s(self) -> float:
        """The other node's time of day minus ours."""
        return self._before.ahead_s + self._before.offset_s

    @cached_property
    def drift(self) -> float:
        """Seconds per second that the other node's clock gains on ours; 0 if the two moments are too close to measure
        it.
        """
        if self._after is None:
            return 0.0
        apart_s = self._after.there_s - self._before.there_s
        gained_s = self._after.offset_s - self._before.offset_s
        told = abs(gained_s) > (self._before.length_s + self._after.length_s) / 2
        return gained_s / apart_s if told and apart_s > 0 else 0.0

    def here_s(self, there_s: float) -> float:
        """Return the time of our monotonic clock at which the other node's clock showed `there_s`."""
        return there_s - self._before.offset_s - self.drift * (there_s - self._before.there_s)
