"""When a server was silent although requests were waiting: kept in bins, so that memory does not grow with the load."""

_BIN_NS = 10_000_000
_MOST_BINS = 100_000  # then bins of twice the width


class Silence:
    """Hears of every answer when it is complete; `gaps` tells the times without output while something was waiting."""

    def __init__(self) -> None:
        self._width_ns = _BIN_NS
        self._sounds: set[int] = set()  # bins in which any output came
        self._waits: dict[int, int] = {}  # bin -> requests that began waiting minus those that ended

    def hear(self, sent_ns: int, ended_ns: int, stamps_ns: list[int]) -> None:
        """All from the start of the window; before it is negative."""
        width = self._width_ns
        self._sounds.update([stamp // width for stamp in stamps_ns])
        self._wait(sent_ns // width, 1)
        self._wait(ended_ns // width, -1)
        while len(self._sounds) > _MOST_BINS or len(self._waits) > _MOST_BINS:
            self._widen()

    def merge(self, other: "Silence") -> None:
        while self._width_ns < other._width_ns:
            self._widen()
        factor = self._width_ns // other._width_ns or 1
        self._sounds.update(place // factor for place in other._sounds)
        for place, count in other._waits.items():
            self._wait(place // factor, count)

    def gaps(self, window_s: float) -> list[tuple[float, float]]:
        """Times of the window without any output while a request was waiting: for how long, and from when, in seconds.

        Of requests that were answered well, to 10 ms (less for windows of more than a quarter of an hour). What
        precedes the first output of all is none: it has to come from somewhere.
        """
        end = round(window_s * 1e9) // self._width_ns
        first = min(self._sounds, default=0)
        found = []
        waiting = quiet_since = 0
        for place in sorted(self._sounds | self._waits.keys()):
            heard = place in self._sounds
            length = min(place, end) - max(quiet_since, 0)
            if heard and waiting and length > 0 and place > first:
                found.append((length * self._width_ns / 1e9, max(quiet_since, 0) * self._width_ns / 1e9))
            if heard or not waiting:
                quiet_since = place
            waiting += self._waits.get(place, 0)
        return found

    def _wait(self, place: int, count: int) -> None:
        self._waits[place] = self._waits.get(place, 0) + count

    def _widen(self) -> None:
        """A narrower one that is merged later still fits: widths are powers of two of each other."""
        self._width_ns *= 2
        self._sounds = {place // 2 for place in self._sounds}
        waits, self._waits = self._waits, {}
        for place, count in waits.items():
            self._wait(place // 2, count)
