"""Find the knee: the highest load at which every clause of an SLO holds, by probes placed where they are most
informative.

The search is a state machine without I/O: `next` returns the next probe, `tell` takes its result (`undelivered`: the
client could not generate the load), `result` returns the current estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchhouse.analysis.saturation import ProbePoint, TrialCounts, see, share_interval
from benchhouse.analysis.saturation import RequestBatch as RequestBatch
from benchhouse.analysis.student import critical_t

if TYPE_CHECKING:
    from benchhouse.analysis.knee import KneePosterior

Status = Literal["found", "all_pass", "none_pass", "budget", "client_limited"]

_FEWEST = 200  # requests of a probe
_FIRST_OVER = 5.0  # requests over the limit that a first probe would see at the knee
_STAGE_OVER = 130.0  # the same for a probe of a stage: in a shorter one, clumps look like chance
_BRACKET_S = 8.0  # duration of a probe that only determines on which side the knee lies
_LOCATING_S = 24.0  # duration of a locating probe: a shorter one has no blocks to estimate its clumps from
_STAGE_S = 42.0  # duration of a probe of a stage
_GROWTH = 2.0  # from one probe to the next: a long one must not be spent on a place that is hardly known
_ROOM = 0.4  # log load beyond the outermost probes in which the knee is searched
# half widths of the wanted interval, and the probability with which the knee must lie there before a stage
_LOCATED, _ROUGHLY = 2.5, 0.8
_STEP = 0.6  # change of the log odds from the knee to a probe of a stage
_WIDEST = 2.0  # half widths of the wanted interval: the maximum
_STAGE = 2  # probes of a stage: one below the knee and one above it
_MORE = 1.4  # times the requests that would be needed if all estimates were exact
_BACK_OFF = 8.0  # the first load divided by this is the lowest load that a client that delivers nothing is tried with
# ratio of a load that the client cannot deliver to one that it can, below which nothing in between is tried
_CLOSE = 1.25
_FIRST_STAGE, _NEXT_STAGE = 0.6, 0.25  # share of all requests so far that a stage may cost


@dataclass(frozen=True, slots=True)
class LoadProbe:
    """Run this load for about this many measured requests."""

    load: float
    requests: int


@dataclass(frozen=True, slots=True)
class KneeEstimate:
    """The knee, which is the highest load that meets the SLO, with its interval.

    `all_pass`: even the highest allowed load passes, and `knee` is that load. `none_pass`: even the lowest fails, and
    `knee` is 0. `budget`: the requests ran out before the interval was narrow enough, or before one existed (`low` is
    then the highest load that seemed to pass, `high` the lowest that seemed to fail). `client_limited`: the highest
    load that the client could deliver passes, and `knee` is that load; the true knee may be higher.
    """

    knee: float
    low: float
    high: float
    confidence: float
    probes: int
    requests: int
    curve: tuple[ProbePoint, ...]
    status: Status
    client_limit: float | None = None  # the lowest load that the client could not deliver


@dataclass(frozen=True, slots=True)
class _Probed:
    """The result of one probe, for each clause and as a point of the curve."""

    load: float
    n: int
    seen: tuple[TrialCounts, ...]
    point: ProbePoint
    holds: bool


@dataclass(frozen=True, slots=True)
class LoadRange:
    """The loads that a search may probe; if `whole`, they are integers, such as concurrency."""

    lowest: float | None = None
    highest: float | None = None
    whole: bool = False

    def ends(self, first: float) -> tuple[float, float]:
        """Return the lowest and the highest load for a search that starts at `first`."""
        lowest = self.lowest if self.lowest is not None else 1.0 if self.whole else first / 2.0**20
        highest = self.highest if self.highest is not None else first * 2.0**20
        if not 0.0 < lowest <= highest < math.inf or first <= 0.0:
            raise ValueError(f"expected 0 < lowest <= highest, found {lowest} and {highest}")
        return lowest, highest


class Search:
    """Searches for the knee within `loads`, starting at `first`.

    `shares` are those of the SLO's clauses. The search ends when half the interval is within `precision` of the load
    (for `whole` loads such as concurrency: also when it spans at most two adjacent loads), or after `requests` measured
    requests.
    """

    def __init__(
        self,
        shares: Sequence[float],
        first: float,
        *,
        loads: LoadRange = LoadRange(),  # noqa: B008 - frozen
        requests: int = 1_000_000,
        precision: float = 0.03,
        confidence: float = 0.95,
    ) -> None:
        self.shares = tuple(shares)
        if not (self.shares and all(0.0 < share < 1.0 for share in self.shares)):
            raise ValueError(f"expected shares between 0 and 1, found {self.shares}")
        self.lowest, self.highest = loads.ends(first)
        self.first = min(max(first, self.lowest), self.highest)
        self.budget, self.precision, self.confidence, self.whole = requests, precision, confidence, loads.whole
        self.used = 0
        self.client_limit: float | None = None  # the lowest load that the client could not deliver
        self._stuck = False  # the client cannot deliver the next load, and nothing lower is worth trying
        self._probed: list[_Probed] = []
        self._place: KneePosterior | None = None
        self._stage, self._left = 0.0, 0  # requests of each probe of the stage, and how many of its probes are left
        self._narrow = False

    def next(self) -> LoadProbe | None:
        """Return the next probe; None if the search has ended."""
        if self._status() is not None:
            return None
        if self._place is None:
            load = self._bracketing_load()
            requests = self._fewest(load, _BRACKET_S)
        else:
            load = self._best_load(self._place)
            requests = max(self._fewest(load, _LOCATING_S), self._locating(self._place))
            if self._stage:
                requests = max(self._fewest(load, _STAGE_S), _STAGE_OVER / min(self.shares), self._stage)
        return LoadProbe(load, min(math.ceil(requests), self.budget - self.used))

    def tell(
        self, load: float, batches: Sequence[RequestBatch], delivered: float, latency_s: float | None = None
    ) -> None:
        """Add the result of a probe at `load`: its batches in order of time, and `delivered` requests per second;
        `latency_s` is the mean, if known.
        """
        n = sum(batch.n for batch in batches)
        if not n:
            raise ValueError(f"the probe at load {load:g} has no requests: nothing can be learned from it")
        counts = [[(b.n, b.over[i]) for b in batches if b.n] for i in range(len(self.shares))]
        seen = tuple(see(math.log(load), clause) for clause in counts)
        holds = all(clause.over <= share * n for clause, share in zip(seen, self.shares, strict=True))
        over = tuple(share_interval(clause, self.confidence) for clause in seen)
        self._probed.append(_Probed(load, n, seen, ProbePoint(load, n, delivered, over, latency_s), holds))
        self.used += n
        if self._bracketed():
            self._plan()

    def undelivered(self, load: float) -> bool:
        """Search below `load`, which the client could not generate. Return False if no lower load is left to try."""
        self.client_limit = min(load, self.client_limit or load)
        delivered = max((probe.load for probe in self._probed if probe.load < load), default=None)
        if delivered is not None:
            highest = math.sqrt(delivered * load) if load > _CLOSE * delivered else delivered
        else:
            floor = max(self.lowest, self.first / _BACK_OFF)
            if load <= floor:
                self._stuck = True
                return False
            highest = max(load / 2.0, floor)
        self.highest = max(float(math.floor(highest)), self.lowest) if self.whole else highest
        if self._place is None and self._bracketed():
            self._plan()
        return True

    def result(self) -> KneeEstimate:
        """Return the current estimate; `status` is `budget` if the search has not ended."""
        status = self._status() or "budget"
        load, low, high = self._interval()
        if status in ("all_pass", "client_limited") and not self._stuck:
            load = self.highest
        elif status == "none_pass":
            load = 0.0
        curve = tuple(sorted((probe.point for probe in self._probed), key=lambda item: item.load))
        return KneeEstimate(load, low, high, self.confidence, len(curve), self.used, curve, status, self.client_limit)

    def _bracketed(self) -> bool:
        """Whether the knee is known to lie between two probes, or beyond the highest or the lowest allowed load."""
        held, missed = self._sides()
        return (held > 0.0 and missed < math.inf) or held >= self.highest or missed <= self.lowest

    def _sides(self) -> tuple[float, float]:
        """Return the highest load that held, and the lowest that did not."""
        held = max((probe.load for probe in self._probed if probe.holds), default=0.0)
        return held, min((probe.load for probe in self._probed if not probe.holds), default=math.inf)

    def _locate(self) -> "KneePosterior":
        from benchhouse.analysis import knee  # imports numpy

        xs = [math.log(probe.load) for probe in self._probed]
        clauses = [[probe.seen[i] for probe in self._probed] for i in range(len(self.shares))]
        pairs = list(zip(clauses, self.shares, strict=True))
        broke = [any(trial.over > share * trial.n for trial in seen) for seen, share in pairs]
        places = []
        for (seen, share), broken in zip(pairs, broke, strict=True):
            # A clause that never broke although another did (no errors at all) need not prove that it has no clumps.
            clump = knee.CLUMP if broken or not any(broke) else 0.0
            places.append(knee.locate(seen, share, min(xs) - _ROOM, max(xs) + _ROOM, clump))
        return knee.earliest(places)

    def _status(self) -> Status | None:
        if self._place is not None:
            tail = (1.0 - self.confidence) / 2.0
            if self._place.at(tail) >= math.log(self.highest):
                return "all_pass" if self.client_limit is None else "client_limited"
            if self._place.at(1.0 - tail) < math.log(self.lowest):
                return "none_pass"
        if self._narrow:
            return "found"
        if self._stuck:
            return "client_limited"
        return "budget" if self.used >= self.budget else None

    def _interval(self) -> tuple[float, float, float]:
        """Return load, low, and high; whole loads are rounded down, because the result is the highest whole load that
        holds.
        """
        if self._place is None:
            held, missed = self._sides()
            return held, held, missed
        tail = (1.0 - self.confidence) / 2.0
        load, low, high = (math.exp(self._place.at(p)) for p in (0.5, tail, 1.0 - tail))
        return (math.floor(load), math.floor(low), math.floor(high)) if self.whole else (load, low, high)

    def _plan(self) -> None:
        """Locate the knee, then continue the stage, or evaluate it and begin the next.

        The interval is evaluated only after a whole stage of probes: if evaluated after each probe, it is narrow by
        chance sooner or later.
        """
        self._place = place = self._locate()
        self._left = max(0, self._left - 1)
        width = place.half_width(self.confidence)
        if self._left or (not self._stage and place.half_width(_ROUGHLY) > _LOCATED * self.precision):
            return
        _, low, high = self._interval()
        if self._stage and (width <= self.precision or (self.whole and high - low <= 1)):
            self._narrow = True
            return
        needed = _MORE * self._needed(place, self.precision)
        if self._stage:
            near = sum(probe.n * weight for probe, weight in zip(self._probed, place.near, strict=True))
            needed = min(needed, max(0.3 * needed, near * ((width / self.precision) ** 2 - 1.0)))
        self._stage = min(needed, (_NEXT_STAGE if self._stage else _FIRST_STAGE) * self.used) / _STAGE
        self._left = _STAGE

    def _bracketing_load(self) -> float:
        """Return twice the highest load that held, or half the lowest that did not, until both have been seen."""
        if not self._probed:
            return self._allowed(self.first)
        loads = [probe.load for probe in self._probed]
        return self._allowed(2.0 * max(loads) if self._probed[-1].holds else 0.5 * min(loads))

    def _best_load(self, place: "KneePosterior") -> float:
        """Return a load next to the likeliest knee, alternately below and above: the middle alone would leave the slope
        unknown.
        """
        step = min(_STEP / place.slope, _WIDEST * self.precision)
        if not self._left:
            step = min(max(step, place.half_width(0.5)), max(_STEP / place.slope, self.precision))
        return self._allowed(math.exp(place.at(0.5) + (step if len(self._probed) % 2 else -step)))

    def _allowed(self, load: float) -> float:
        load = min(max(load, self.lowest), self.highest)
        return float(round(load)) if self.whole else load

    def _fewest(self, load: float, seconds: float) -> float:
        """Return the requests below which a probe is not worth its start; `load` is used as the rate until one is
        known.
        """
        rate = self._probed[-1].point.delivered if self.whole and self._probed else load
        return max(_FEWEST, _FIRST_OVER / min(self.shares), min(seconds * rate, self.budget / 20.0))

    def _locating(self, place: "KneePosterior") -> float:
        """Return the requests of a locating probe, limited to a fraction of the known precision while the place is
        uncertain.
        """
        known = max(self.precision, 0.4 * place.half_width(self.confidence))
        return min(self._needed(place, known) / _STAGE, _GROWTH * max(probe.n for probe in self._probed))

    def _needed(self, place: "KneePosterior", half_width: float) -> float:
        """Return the requests that give this half width if all were at the knee and its slope were known."""
        z = critical_t(self.confidence, 1e6)
        return place.dispersion * (1.0 - place.share) / place.share * (z / (half_width * place.steepness)) ** 2
