"""Watch new runs against an accepted baseline: raise an alarm a few runs after a step, and never follow a slow drift.

The baseline is fixed when it is accepted. Later runs are compared only with it and never become part of it, so a
hundred small steps raise an alarm just like one large step.
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

NEEDED = 10  # runs of history that are needed to estimate noise
WINDOW = 50  # number of last runs in which the beginning of an alarm is searched


class AlarmLimits(NamedTuple):
    """Standard errors from the baseline that raise an alarm, by the number of runs since the assumed beginning."""

    two: float
    three: float
    more: float


WORSE, EITHER, BETTER = AlarmLimits(3.5, 3.15, 3.7), AlarmLimits(3.65, 3.35, 3.85), AlarmLimits(4.2, 4.2, 4.2)
"""A change for the worse should be reported after three runs, so three runs have the lowest limit. An improvement can
wait. Both have equally few false alarms. `EITHER` is for a metric without a direction.
"""

_EASED = 0.5  # reduction of the limit for three runs at a memory of one: the first of them carries the most information
_LONG, _LONGER = 8, 0.2  # runs since a beginning that need no more evidence, and the increase for each doubling
# a far run counts no more than this: otherwise it alone would raise an alarm with whatever follows
_CLIP, _MOST_CLIP = 2.7, 3.2
# largest factor by which far values of the baseline increase its spread: one of them must not hide later changes
_MOST_FAR = 1.5
_SAMPLE = 200  # last runs whose noise is stored
# minimum number of independent runs that a baseline counts as: more memory cannot be estimated from it
_INDEPENDENT = 5
_MISHAP = 2.0  # times as far as the second farthest
_FEWEST = 9  # values that ranks of noise need
_CAME_BACK = 0.5  # share of the step that may be left
_SMALLEST_LEVEL = 1e-300
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Baseline:
    """The accepted level and the noise around it: logarithms if `logs`, otherwise in the metric's unit."""

    level: float
    spread: float
    memory: float
    n: int
    logs: bool
    noise: tuple[float, ...] = ()
    """Deviation of each run that the previous run does not explain, in standard deviations, sorted. Empty: the noise is
    taken as normal.
    """


@dataclass(frozen=True, slots=True)
class LevelAlarm:
    """New runs no longer fit the baseline: detected at `at`, beginning at `since` (indexes of new runs)."""

    at: int
    since: int
    change: float | None  # relative to the baseline; None if its level is zero
    difference: float  # of the current level
    z: float
    worse: bool | None  # None if the metric has no direction


class AlarmNotice(NamedTuple):
    """The run at which an alarm is raised, its beginning, and the standard errors between the baseline and the runs
    since.
    """

    at: int
    since: int
    z: float


def learn(values: Sequence[float], *, floor: float = 0.01) -> Baseline | None:
    """Return the baseline at the end of a history: its last level, and its noise. None if there are too few runs."""
    history = find_changes(values, floor=floor)
    if len(values) < NEEDED or history.noise is None:
        return None
    ordered = finite(values)
    logs = min(ordered) > 0.0
    numbers = [math.log(value) for value in ordered] if logs else ordered
    off, level, n = _decompose(numbers, history, logs)
    # Few runs estimate their own spread and memory badly, and estimates that are too small cause false alarms: use high
    # ones.
    unsure = 1.0 / math.sqrt(len(ordered))
    memory = max(history.noise.raw_memory, 0.0) + (0.7 * unsure if history.noise.memory else 0.0)
    memory = min(memory, 0.9, (len(ordered) - _INDEPENDENT) / (len(ordered) + _INDEPENDENT))
    calm, full = _MOST_FAR * history.noise.spread, history.noise.full_spread
    shrunk = calm / full if calm < full else 1.0
    spread = math.sqrt(math.fsum(part * part for part in off) / len(off)) * (1.0 + 0.5 * unsure) * shrunk
    least = floor / 5.0 * (1.0 if logs else abs(level) or 1.0)
    baseline = Baseline(level, max(spread, least), memory, n, logs)
    # Noise below `least` is assumed to be that large.
    noise = _raw_shocks(replace(baseline, spread=spread), off, [])[-_SAMPLE:] if spread > least * 1e-6 else []
    return replace(baseline, noise=tuple(sorted(noise)))


def _decompose(numbers: Sequence[float], history: ChangeHistory, logs: bool) -> tuple[list[float], float, int]:
    """Return the deviation of each run, the level at the end, and the number of runs that determine it."""
    drifts = {drift.start: drift for drift in history.drifts}
    starts = {0, *drifts, *(drift.end for drift in history.drifts), *(change.index for change in history.changes)}
    off, level, known = list[float](), 0.0, 0
    for start, end in pairwise(sorted(starts | {len(numbers)})):
        piece, slope, known = numbers[start:end], 0.0, end - start
        level = _middle(piece)
        if drift := drifts.get(start):
            rise = math.log(drift.after / drift.before) if logs else drift.after - drift.before
            slope, known = rise / (end - start - 1), known // 4  # number of runs that determine the end of a line
        first = level - slope * (end - start - 1) / 2.0
        off += [number - first - slope * at for at, number in enumerate(piece)]
        level = first + slope * (end - start - 1)
    return off, level, known


def _middle(numbers: Sequence[float]) -> float:
    """Return the mean without the outer tenths, so that one far value in ten does not shift the level."""
    cut = len(numbers) // 10
    kept = sorted(numbers)[cut : len(numbers) - cut]
    return math.fsum(kept) / len(kept)


def watch(
    baseline: Baseline,
    values: Sequence[float],
    direction: Literal["higher", "lower"] | None = None,
    before: float | None = None,
) -> LevelAlarm | None:
    """Return the first alarm that `values` raise (the runs since the baseline was accepted, oldest first), with the
    current level. If the level came back to the baseline, return the first alarm since then; None if there is none.

    `before` is the run preceding `values`, if known: it shows how much the noise of the first one depends on it.
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
    """Return the first alarm, regardless of later runs; None if there is none.

    At each run, every beginning in the last runs is tried: how far are the runs since then from the baseline, in
    standard errors? Autocorrelated noise is whitened first, with the memory that was learned.
    """
    off = [_off(baseline, value) for value in finite(values)]
    steps = _shocks(baseline, off, [] if before is None else [_off(baseline, *finite([before]))])
    sides = {None: (EITHER, EITHER), "lower": (WORSE, BETTER), "higher": (BETTER, WORSE)}[direction]
    up, down = (_needed(side, baseline.memory) for side in sides)
    keep = 1.0 - baseline.memory
    # The level itself is uncertain: its error affects every later run.
    doubt = (1.0 + baseline.memory) / keep / baseline.n / (1.0 - baseline.memory**2)
    for at in range(len(steps)):
        first = max(0, at - WINDOW + 1)
        since, z, beyond = _farthest(steps[first : at + 1], keep, doubt, up, down)
        if beyond >= 0.0:
            return AlarmNotice(at, _begin(off[: at + 1], first, first + since), z)
    return None


def _raw_shocks(baseline: Baseline, off: Sequence[float], before: list[float]) -> list[float]:
    """Return the noise of each run that the previous run does not explain, in its standard deviations."""
    memory, error = baseline.memory, baseline.spread * math.sqrt(1.0 - baseline.memory**2)
    raw = [] if before else [own / baseline.spread for own in off[:1]]
    return raw + [(own - memory * last) / error for last, own in pairwise([*before, *off])]


def _shocks(baseline: Baseline, off: Sequence[float], before: list[float]) -> list[float]:
    """Return each run's rank among those of the baseline as a normal score, so the shape of the noise does not matter.

    Far runs count as nearer ones. With autocorrelated noise, the first run of a new level carries the most information,
    so its limit is higher.
    """
    clip = min(_CLIP + baseline.memory, _MOST_CLIP)
    scores = [_score(baseline.noise, shock) for shock in _raw_shocks(baseline, off, before)]
    return [min(max(score, -clip), clip) for score in scores]


def _score(noise: Sequence[float], shock: float) -> float:
    """Return the normal score for the rank of this shock.

    Beyond the second farthest value on its side, ranks have no more information. There the two farthest values estimate
    the tail; one at least twice as far as the other counts as an accident. No shock counts for more than in normal
    noise.
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
    """Return the standard errors that raise an alarm, by the number of runs since a beginning; a single run
    never does.
    """
    longer = [limits.more + _LONGER * math.log2(max(1.0, runs / _LONG)) for runs in range(4, WINDOW + 1)]
    return [math.inf, limits.two, limits.three - _EASED * memory, *longer]


def _farthest(
    steps: Sequence[float], keep: float, doubt: float, up: Sequence[float], down: Sequence[float]
) -> tuple[int, float, float]:
    """Return the beginning for which the last runs are farthest beyond a limit, their z value, and their distance
    beyond it.

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
    """Return the likeliest beginning of a step of the current size; no run counts for more than two such steps."""
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
    # A positive metric that became zero or negative has not just changed by some percent.
    return math.log(max(value, _SMALLEST_LEVEL)) - baseline.level
