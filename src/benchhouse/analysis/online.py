"""Watch new runs against an accepted baseline: alarm a few runs after a step, and never follow a slow drift.

The baseline is fixed when it is accepted. What comes later is compared with it alone and never becomes part of it, so
a hundred small steps add up to an alarm as one large one does.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist, median
from typing import Literal, NamedTuple

from benchhouse.analysis.changes import ChangeHistory, find_changes
from benchhouse.analysis.summary import finite

NEEDED = 10  # runs of history from which noise can be learned
WINDOW = 50  # an alarm's beginning is looked for in so many last runs


class AlarmLimits(NamedTuple):
    """Standard errors from the baseline that raise an alarm, by the runs since the beginning that is tried."""

    two: float
    three: float
    more: float


WORSE, EITHER, BETTER = AlarmLimits(3.5, 3.15, 3.7), AlarmLimits(3.65, 3.35, 3.85), AlarmLimits(4.2, 4.2, 4.2)
"""What got worse is to be told after three runs, so three need least; what got better can wait, at as few false alarms.
`EITHER` is for a metric without a direction."""

_EASED = 0.5  # less for three runs, at a memory of one: the first of them tells most
_LONG, _LONGER = 8, 0.2  # runs since a beginning that need no more evidence, and what each doubling of them needs
_CLIP, _MOST_CLIP = 2.7, 3.2  # a far run counts no more: alone it would raise an alarm with whatever follows
_MOST_FAR = 1.5  # far values of the baseline make its spread larger by so much at most: one must not blind it
_SAMPLE = 200  # last runs whose noise is kept
_INDEPENDENT = 5  # as many as which the runs of a baseline count at least: more memory can't be known from them
_MISHAP = 2.0  # times as far as the second farthest
_FEWEST = 9  # values that noise can be ranked among
_CAME_BACK = 0.5  # of the step that is left
_SMALLEST_LEVEL = 1e-300
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Baseline:
    """The accepted level and the noise around it: logarithms where `logs`, else in the metric's unit."""

    level: float
    spread: float
    memory: float
    n: int
    logs: bool
    noise: tuple[float, ...] = ()
    """What each run was off by beyond what the run before explains, in deviations, sorted; empty: a normal noise."""


@dataclass(frozen=True, slots=True)
class LevelAlarm:
    """New runs no longer fit the baseline: noticed at `at`, since `since` (places among the new runs)."""

    at: int
    since: int
    change: float | None  # relative to the baseline; None where its level is zero
    difference: float  # of the level that the runs have now
    z: float
    worse: bool | None  # None where the metric has no direction


class AlarmNotice(NamedTuple):
    """Where an alarm is raised, since when, and the standard errors between the baseline and the runs since."""

    at: int
    since: int
    z: float


def learn(values: Sequence[float], *, floor: float = 0.01) -> Baseline | None:
    """The baseline that a history ends with: its last level, and its noise; None where there are too few runs."""
    history = find_changes(values, floor=floor)
    if len(values) < NEEDED or history.noise is None:
        return None
    ordered = finite(values)
    logs = min(ordered) > 0.0
    numbers = [math.log(value) for value in ordered] if logs else ordered
    off, level, n = _decompose(numbers, history, logs)
    # Few runs know their own spread and memory badly, and it is the small guesses that cry wolf: take the large ones.
    unsure = 1.0 / math.sqrt(len(ordered))
    memory = max(history.noise.raw_memory, 0.0) + (0.7 * unsure if history.noise.memory else 0.0)
    memory = min(memory, 0.9, (len(ordered) - _INDEPENDENT) / (len(ordered) + _INDEPENDENT))
    calm, full = _MOST_FAR * history.noise.spread, history.noise.full_spread
    shrunk = calm / full if calm < full else 1.0
    spread = math.sqrt(math.fsum(part * part for part in off) / len(off)) * (1.0 + 0.5 * unsure) * shrunk
    least = floor / 5.0 * (1.0 if logs else abs(level) or 1.0)
    baseline = Baseline(level, max(spread, least), memory, n, logs)
    # Noise below `least` is taken to be that large.
    noise = _raw_shocks(replace(baseline, spread=spread), off, [])[-_SAMPLE:] if spread > least * 1e-6 else []
    return replace(baseline, noise=tuple(sorted(noise)))


def _decompose(numbers: Sequence[float], history: ChangeHistory, logs: bool) -> tuple[list[float], float, int]:
    """What each run is off by, the level at the end, and the runs that it is known by."""
    drifts = {drift.start: drift for drift in history.drifts}
    starts = {0, *drifts, *(drift.end for drift in history.drifts), *(change.index for change in history.changes)}
    off, level, known = list[float](), 0.0, 0
    for start, end in pairwise(sorted(starts | {len(numbers)})):
        piece, slope, known = numbers[start:end], 0.0, end - start
        level = _middle(piece)
        if drift := drifts.get(start):
            rise = math.log(drift.after / drift.before) if logs else drift.after - drift.before
            slope, known = rise / (end - start - 1), known // 4  # runs by which the end of a line is known
        first = level - slope * (end - start - 1) / 2.0
        off += [number - first - slope * at for at, number in enumerate(piece)]
        level = first + slope * (end - start - 1)
    return off, level, known


def _middle(numbers: Sequence[float]) -> float:
    """The mean without a tenth at either end: one far value in ten must not be the level."""
    cut = len(numbers) // 10
    kept = sorted(numbers)[cut : len(numbers) - cut]
    return math.fsum(kept) / len(kept)


def watch(
    baseline: Baseline,
    values: Sequence[float],
    direction: Literal["higher", "lower"] | None = None,
    before: float | None = None,
) -> LevelAlarm | None:
    """The alarm that `values`, the runs since the baseline was accepted, oldest first, raise: the first one, with the
    level that the runs have now. Where that came back to the baseline, it is what they raise since then.

    `before` is the run before them, where it is known: it tells what the first of them remembers.
    """
    off = [_off(baseline, value) for value in finite(values)]
    start = 0
    while first := notice(baseline, values[start:], direction, before):
        at, since = first.at + start, first.since + start
        edges = [since, *(since + change.index for change in find_changes(values[since:]).changes), len(off)]
        shifts = [median(off[begin:end]) for begin, end in pairwise(edges)]
        step = median(off[since : at + 1])
        back = next((begin for begin, shift in zip(edges, shifts, strict=False) if shift / step < _CAME_BACK), None)
        if back is None:
            return _alarm(baseline, first._replace(at=at, since=since), shifts[-1], direction)
        start, before = max(back, at + 1), None
    return None


def _alarm(baseline: Baseline, first: AlarmNotice, shift: float, direction: str | None) -> LevelAlarm:
    if baseline.logs:
        change: float | None = math.expm1(shift)
        difference = math.exp(baseline.level) * math.expm1(shift)
    else:
        difference = shift
        change = shift / abs(baseline.level) if abs(baseline.level) > _SMALLEST_LEVEL else None
    worse = None if direction is None else (first.z > 0.0) == (direction == "lower")
    return LevelAlarm(first.at, first.since, change, difference, first.z, worse)


def notice(
    baseline: Baseline,
    values: Sequence[float],
    direction: Literal["higher", "lower"] | None = None,
    before: float | None = None,
) -> AlarmNotice | None:
    """Where the first alarm is raised, whatever came later.

    At each run, every beginning in the last runs is tried: how far are the runs since then from the baseline, in
    standard errors? Noise that remembers is whitened first, with the memory that was learned.
    """
    off = [_off(baseline, value) for value in finite(values)]
    steps = _shocks(baseline, off, [] if before is None else [_off(baseline, *finite([before]))])
    sides = {None: (EITHER, EITHER), "lower": (WORSE, BETTER), "higher": (BETTER, WORSE)}[direction]
    up, down = (_needed(side, baseline.memory) for side in sides)
    keep = 1.0 - baseline.memory
    # The level itself is known only so well: what it may be off by counts in every later run.
    doubt = (1.0 + baseline.memory) / keep / baseline.n / (1.0 - baseline.memory**2)
    for at in range(len(steps)):
        first = max(0, at - WINDOW + 1)
        since, z, beyond = _farthest(steps[first : at + 1], keep, doubt, up, down)
        if beyond >= 0.0:
            return AlarmNotice(at, _begin(off[: at + 1], first, first + since), z)
    return None


def _raw_shocks(baseline: Baseline, off: Sequence[float], before: list[float]) -> list[float]:
    """The noise of each run that the run before does not explain, in its deviations."""
    memory, error = baseline.memory, baseline.spread * math.sqrt(1.0 - baseline.memory**2)
    raw = [] if before else [own / baseline.spread for own in off[:1]]
    return raw + [(own - memory * last) / error for last, own in pairwise([*before, *off])]


def _shocks(baseline: Baseline, off: Sequence[float], before: list[float]) -> list[float]:
    """How far out each run is among those of the baseline, as normal scores: so it does not matter how noise is shaped.

    Far ones count as nearer ones. Where noise remembers, the first run of a new level tells most, and is cut off later.
    """
    clip = min(_CLIP + baseline.memory, _MOST_CLIP)
    scores = [_score(baseline.noise, shock) for shock in _raw_shocks(baseline, off, before)]
    return [min(max(score, -clip), clip) for score in scores]


def _score(noise: Sequence[float], shock: float) -> float:
    """The normal deviate that has the rank of this one.

    Beyond the second farthest on its side ranks say no more. There the two farthest tell how the tail goes on, one that
    lies twice as far as the other or more being a mishap, and nothing counts for more than it would in normal noise.
    """
    n = len(noise)
    if n < _FEWEST:
        return shock
    middle = noise[n // 2]
    distance, side = abs(shock - middle), 1.0 if shock > middle else -1.0
    second, farthest = (abs(end - middle) for end in (noise[-2:] if side > 0.0 else noise[1::-1]))
    if distance <= second:
        rank = (bisect_left(noise, shock) + bisect_right(noise, shock)) / 2.0
        return _NORMAL.inv_cdf((rank + 0.5) / (n + 1.0))
    of_second, of_farthest, beyond = (_NORMAL.inv_cdf(1.0 - rank / (n + 1.0)) for rank in (2.0, 1.0, 1.5))
    scale = (second / of_second + min(farthest, _MISHAP * second) / of_farthest) / 2.0
    return side * max(beyond, min(distance / scale, abs(shock)) if scale else abs(shock))


def _needed(limits: AlarmLimits, memory: float) -> list[float]:
    """Standard errors that raise an alarm, for each number of runs since a beginning; one run alone never does."""
    longer = [limits.more + _LONGER * math.log2(max(1.0, runs / _LONG)) for runs in range(4, WINDOW + 1)]
    return [math.inf, limits.two, limits.three - _EASED * memory, *longer]


def _farthest(
    steps: Sequence[float], keep: float, doubt: float, up: Sequence[float], down: Sequence[float]
) -> tuple[int, float, float]:
    """The beginning since which the last runs are farthest beyond a limit; how far from the baseline, and beyond it.

    A step of one moves the first whitened run by 1 and each later one by `keep`.
    """
    best, farthest, beyond = 0, 0.0, -math.inf
    later, weight = 0.0, 0.0
    for runs, step in enumerate(reversed(steps)):
        moved, known = step + later, 1.0 + weight
        z = moved / known / math.sqrt(1.0 / known + doubt)
        over = z - up[runs] if z > 0.0 else -z - down[runs]
        if over > beyond:
            best, farthest, beyond = len(steps) - 1 - runs, z, over
        later, weight = later + keep * step, weight + keep * keep
    return best, farthest, beyond


def _begin(off: Sequence[float], first: int, since: int) -> int:
    """Where a step of the size that the last runs have begins most likely; no run counts for more than two such."""
    size = sorted(off[since:], key=abs)[(len(off) - since - 1) // 2]
    best, place, total = -math.inf, since, 0.0
    for at in range(len(off) - 1, first - 1, -1):
        total += min(max(off[at] / size, -1.0), 2.0) - 0.5 if size else 0.0
        if total >= best:
            best, place = total, at
    return place


def _off(baseline: Baseline, value: float) -> float:
    if not baseline.logs:
        return value - baseline.level
    # A metric that was positive and no longer is has not merely moved by some percent.
    return math.log(max(value, _SMALLEST_LEVEL)) - baseline.level
