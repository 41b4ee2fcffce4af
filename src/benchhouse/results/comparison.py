"""Compare the points of two runs, or of two selections of runs: match them, test them, and list what else changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchhouse.analysis.compare import HIDDEN, Interval, Pair, StatisticComparison, compare_many, hide_within
from benchhouse.analysis.outliers import Policy
from benchhouse.analysis.ranking import holm
from benchhouse.analysis.summary import shaky_quantiles, summarise
from benchhouse.results import matching, noise_persistence
from benchhouse.results.incomparable_numbers import Incomparable, definitions, list_incomparable
from benchhouse.results.invalid_trials import INVALID_HINT
from benchhouse.results.matching import Matched, MatchPoint
from benchhouse.results.metric_names import MetricName, parse_metrics
from benchhouse.results.numbers import (
    HEADLINE_STATS,
    MINUS,
    NONE,
    SEED,
    change_texts,
    headline_stats,
    mean_interval,
    name_of,
    plural,
    quantity,
    stat_place,
)
from benchhouse.results.paired_rounds import choose_rounds, pair_rounds, without_outliers
from benchhouse.results.run_conditions import PLACE
from benchhouse.results.table_cells import ref_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.quoting import shortened

Row = Mapping[str, Any]
_LISTED = 8


@dataclass(frozen=True)
class ComparisonSide:
    """One side of a comparison: a run, or the points of it that a selector picks."""

    name: str
    rows: Sequence[Row]
    """Rows of the points query."""
    keys: Collection[str] = ()
    """Keys fixed by the selector: they do not distinguish points."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Circumstances by name: experiment version, git commit, host, package lock digest."""
    trials: Sequence[Row] = ()
    """Rows of trial_fact behind `rows`; without them, repetitions are not paired."""
    refused: Sequence[Row] = ()
    """Numbers of its points that are INVALID in every trial, as rows of their query."""
    tried: Sequence[Row] = ()
    """Rows of trial_fact of all trials of its points, without warm-ups."""


@dataclass(frozen=True)
class CompareOptions:
    """What is compared, and how. With `paired` None, repetitions are paired if the trials of both sides alternated."""

    metrics: tuple[str, ...] = ()
    confidence: float = 0.95
    every: bool = False
    outliers: Policy = "keep"
    paired: bool | None = None


DEFAULTS = CompareOptions()


@dataclass(frozen=True)
class PointRow:
    """One metric and stat of one matched point for A and B; the change is B relative to A."""

    point: str
    metric: str
    stat: str
    unit: str
    direction: Direction | None
    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    change: float | None
    change_interval: tuple[float, float] | None
    difference: float
    difference_interval: tuple[float, float] | None
    hedges_g: float | None
    cliffs_delta: float
    p_value: float | None
    p_adjusted: float | None
    """After Holm's correction for all rows of the table."""
    verdict: str
    method: str
    sentence: str
    shaky: bool
    """Whether it is a percentile for which a side has too few samples within a trial."""
    trials_a: list[str]
    trials_b: list[str]
    error_bound_a: float | None = None
    """How far a value of A can be off, in the metric's unit: the largest of its trials. None if no trial reports it."""
    error_bound_b: float | None = None
    doubt: str = ""
    """Why the interval is only a spread, if a side shows that; otherwise empty."""
    memory: float | None = 0.0
    """Correlation of noise from trial to trial, by earlier runs, if one side ran after the other; intervals are widened
    for it. None: unknown, because there are too few earlier runs.
    """
    interval_a: tuple[float, float] | None = None
    """Interval of the mean of A alone, from its trials."""
    interval_b: tuple[float, float] | None = None
    ref_a: str = ""
    """The reference of A's number for `bench trace`, as all its trials give it."""
    ref_b: str = ""

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def name_marked(self) -> str:
        """The name, with a leading `~` if it can't be trusted."""
        return ("~" if self.shaky else "") + self.name

    @property
    def bounds_text(self) -> str:
        """Text such as `latency p99: A can be off by 1.4 ms, B by 0.3 ms`."""
        a, b = (quantity(bound or 0.0, self.unit) for bound in (self.error_bound_a, self.error_bound_b))
        return f"{self.name}: A can be off by {a}, B by {b}"

    @property
    def effect_text(self) -> str:
        return NONE if self.hedges_g is None else f"{self.hedges_g:+.2f}".replace("-", MINUS) if self.hedges_g else "0"

    @property
    def change_text(self) -> str:
        """The change with its interval, relative if that is meaningful, otherwise in the unit of the metric."""
        ends = self.change_interval, self.difference_interval
        change, interval = change_texts(self.change, ends[0], self.difference, ends[1], self.unit)
        return change + (f" ({interval})" if interval else "")


@dataclass(frozen=True)
class Difference:
    """One thing that differs between the sides."""

    dimension: str
    a: str
    b: str


@dataclass(frozen=True)
class ComparisonTable:
    """The output of `bench compare`. Nothing is dropped: unmatched points and metrics are listed."""

    a: str
    b: str
    rows: list[PointRow]
    only_a: list[str]
    only_b: list[str]
    unmatched_metrics: list[str]
    invalid_metrics: list[str]
    """Texts about numbers that are INVALID in every trial of a side."""
    differences: list[Difference]
    exploratory: bool
    """More than one thing changed: no change has a single known cause."""
    confidence: float
    seed: int
    notes: list[str]
    beside: list[Incomparable]

    @property
    def several_points(self) -> bool:
        """Whether a row must name its point."""
        numbers = {(row.metric, row.stat) for row in self.rows}
        return len({row.point for row in self.rows}) > 1 or len(numbers) < len(self.rows)

    def regressions(self, *, corrected: bool = False) -> list[PointRow]:
        """Return rows that are worse in B; with `corrected`, those that hold up after Holm's correction."""
        worse = [row for row in self.rows if row.verdict == "worse"]
        limit = 1.0 - self.confidence
        return [row for row in worse if not corrected or (row.p_adjusted is not None and row.p_adjusted <= limit)]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_runs(
    a: ComparisonSide,
    b: ComparisonSide,
    options: CompareOptions = DEFAULTS,
    order: Mapping[str, int] | None = None,
    earlier: noise_persistence.Earlier = lambda columns: (),
) -> ComparisonTable:
    """Compare B with A: the headline statistics of each metric, or all statistics; `order` is that of the metrics.

    If the trials of both sides alternated, repetitions are compared in pairs; `options.paired` forces it. Raise
    BenchError if there is nothing to compare.
    """
    points_a, points_b = matching.points_of(a.rows), matching.points_of(b.rows)
    if not points_a or not points_b:
        empty = a.name if not points_a else b.name
        raise BenchError(f"{empty} has no successful trial to compare", hint="See why: bench status, bench report")
    pairs, only_a, only_b = matching.match(points_a, points_b, {*a.keys, *b.keys})
    if not pairs:
        labels = [shortened(list(dict.fromkeys(map(_full_label, points))), _LISTED) for points in (only_a, only_b)]
        raise BenchError(
            f"nothing to compare: no point of {a.name} belongs to one of {b.name}",
            hint=f"{a.name} has {labels[0]}\n{b.name} has {labels[1]}\n"
            "Pick points of each: bench compare RUN:key=value RUN:key=value",
        )
    numbers, unmatched = _pairs_of_numbers(pairs, a, b, options, order or {})
    beside = list_incomparable(pairs, definitions((*a.trials, *b.trials)))
    invalid = _invalid_metrics(pairs, a, b, options)
    if not numbers and invalid:
        raise BenchError(f"nothing to compare: {shortened(invalid, _LISTED)}", hint=INVALID_HINT)
    if not numbers and not beside:
        names = [list(dict.fromkeys(name_of(*key) for pair in pairs for key in pair[at].rows)) for at in (0, 1)]
        raise BenchError(
            f"nothing to compare: the points of {a.name} and {b.name} have no metric in common",
            hint=f"{a.name} has {shortened(names[0], _LISTED)}\n{b.name} has {shortened(names[1], _LISTED)}",
        )
    confidence, (numbers, outlier_notes) = options.confidence, without_outliers(numbers, options.outliers)
    trials = {row["trial_id"]: row for side in (a, b) for row in side.trials}
    rounds, pairing_notes = choose_rounds(numbers, trials or None, options.paired) if numbers else (None, [])
    memories: list[float | None] = [0.0] * len(numbers)
    if rounds:
        compared = [pair_rounds(x, y, rounds, confidence) for _, x, y in numbers]
    else:
        memories = noise_persistence.memories([(x, y) for _, x, y in numbers], trials, earlier)
        values = [
            Pair(x["values"], y["values"], x["direction"], memory or 0.0)
            for (_, x, y), memory in zip(numbers, memories, strict=True)
        ]
        compared = compare_many(values, confidence=confidence, seed=SEED)
    compared = [
        hide_within(result, x.get("error_bound"), y.get("error_bound"))
        for (_, x, y), result in zip(numbers, compared, strict=True)
    ]
    p_values = {str(at): result.p_value for at, result in enumerate(compared) if result.p_value is not None}
    adjusted = holm(p_values)
    rows = [
        _with_sides(_row(pair, x, y, result, adjusted.get(str(at)), (a.name, b.name), memory), x, y, confidence)
        for at, ((pair, x, y), result, memory) in enumerate(zip(numbers, compared, memories, strict=True))
    ]
    differences = _differences(pairs, a.facts, b.facts)
    return ComparisonTable(
        a=a.name,
        b=b.name,
        rows=rows,
        only_a=[point.label for point in only_a],
        only_b=[point.label for point in only_b],
        unmatched_metrics=unmatched,
        invalid_metrics=invalid,
        differences=differences,
        exploratory=len(_causes(differences)) > 1,
        confidence=confidence,
        seed=SEED,
        notes=[*outlier_notes, *pairing_notes, *_notes(rows, differences, confidence), *(row.text for row in beside)],
        beside=beside,
    )


def _full_label(point: MatchPoint) -> str:
    return point.label if point.target_name in point.label else f"{point.target_name} {point.label}"


Numbers = tuple[Matched, Row, Row]
"""One statistic of a matched point, as A has it and as B has it."""


def _pairs_of_numbers(
    pairs: list[Matched], a: ComparisonSide, b: ComparisonSide, options: CompareOptions, order: Mapping[str, int]
) -> tuple[list[Numbers], list[str]]:
    """Return the statistics that both sides have, and the names of those that only one has."""
    numbers: list[Numbers] = []
    alone: dict[str, None] = {}
    known: dict[str, set[str]] = {}
    refused = _refused_of(pairs, a, b)
    for metric, stat in [
        *(key for pair in pairs for point in pair for key in point.rows),
        *(key[2:] for key in refused),
    ]:
        known.setdefault(metric, set()).add(stat)
    wanted = [MetricName(metric) for metric in known] if not options.metrics else parse_metrics(options.metrics, known)
    last = len(order)
    wanted.sort(key=lambda name: (order.get(name.metric, last), name.metric, stat_place(name.stat or "")))
    for pair in pairs:
        for name in wanted:
            metric = name.metric
            of_a, of_b = (
                {stat: point.rows[metric, stat] for stat in known[metric] if (metric, stat) in point.rows}
                for point in pair
            )
            stats = of_a.keys() | of_b.keys()
            if name.stat:
                stats &= {name.stat}
            for stat in sorted(stats, key=stat_place) if options.every or name.stat else headline_stats(stats):
                if any(
                    (side.name, point.digest, metric, stat) in refused for side, point in zip((a, b), pair, strict=True)
                ):
                    continue
                if stat not in of_a or stat not in of_b:
                    alone[f"{name_of(metric, stat)} (only in {a.name if stat in of_a else b.name})"] = None
                    continue
                _check_same(of_a[stat], of_b[stat], a.name, b.name)
                numbers.append((pair, of_a[stat], of_b[stat]))
    return numbers, list(alone)


def _refused_of(pairs: list[Matched], a: ComparisonSide, b: ComparisonSide) -> dict[tuple[str, str, str, str], None]:
    """Return numbers of matched points that are INVALID in every trial: side, instance, metric, and stat, in order."""
    matched = [{pair[at].digest for pair in pairs} for at in (0, 1)]
    return {
        (side.name, row["instance_digest"], row["metric"], row["stat"]): None
        for side, digests in zip((a, b), matched, strict=True)
        for row in side.refused
        if row["instance_digest"] in digests
    }


def _invalid_metrics(pairs: list[Matched], a: ComparisonSide, b: ComparisonSide, options: CompareOptions) -> list[str]:
    """Return, in words, those of them that would otherwise be compared."""
    named = {name.rpartition(".")[::2] for name in options.metrics} | {(name, "") for name in options.metrics}
    texts = dict[str, None]()
    for side, _, metric, stat in _refused_of(pairs, a, b):
        if {(metric, stat), (metric, "")} & named if named else options.every or stat in HEADLINE_STATS:
            texts[f"{name_of(metric, stat)} is INVALID in every trial of {side}"] = None
    return list(texts)


def _check_same(x: Row, y: Row, name_a: str, name_b: str) -> None:
    for what in ("unit", "direction"):
        if x[what] != y[what]:
            raise BenchError(
                f"{name_of(x['metric'], x['stat'])} can't be compared: its {what} is {x[what]} in {name_a} "
                f"and {y[what]} in {name_b}",
                hint="Leave the metric out with --metric, or run both with the same version of the experiment.",
            )


def _row(
    pair: Matched,
    x: Row,
    y: Row,
    result: StatisticComparison,
    adjusted: float | None,
    names: tuple[str, str],
    memory: float | None,
) -> PointRow:
    a, b = pair
    apart = f"; {noise_persistence.APART}" if memory is None else ""
    label = a.label if a.label == b.label else f"{a.label} → {b.label}"
    return PointRow(
        point=label,
        metric=x["metric"],
        stat=x["stat"],
        unit=x["unit"],
        direction=x["direction"],
        n_a=result.n_a,
        n_b=result.n_b,
        mean_a=result.mean_a,
        mean_b=result.mean_b,
        change=result.change,
        difference=result.difference,
        hedges_g=result.hedges_g,
        cliffs_delta=result.cliffs_delta,
        p_value=result.p_value,
        verdict=result.verdict,
        method=result.method,
        change_interval=_ends(result.change_interval),
        difference_interval=_ends(result.difference_interval),
        p_adjusted=adjusted,
        sentence=f"{label}, {name_of(x['metric'], x['stat'])}: {result.sentence(*names)}{apart}",
        shaky=any(_shaky(side) for side in (x, y)),
        trials_a=list(x["trials"]),
        trials_b=list(y["trials"]),
        error_bound_a=x.get("error_bound"),
        error_bound_b=y.get("error_bound"),
        doubt=result.doubt,
        memory=memory,
    )


def _with_sides(row: PointRow, x: Row, y: Row, confidence: float) -> PointRow:
    """Return the row with the interval of each side alone, and its reference."""
    intervals = [mean_interval(*_moments(side["values"]), confidence=confidence) for side in (x, y)]
    refs = [ref_of(side["run_id"], side["instance_digest"], side["metric"], side["stat"]) for side in (x, y)]
    return replace(row, interval_a=intervals[0], interval_b=intervals[1], ref_a=refs[0], ref_b=refs[1])


def _moments(values: Sequence[float]) -> tuple[float, float | None, int, float]:
    """Return mean, standard deviation, n, and minimum."""
    summary = summarise(values)
    return summary.mean, summary.stdev, summary.n, summary.min


def _shaky(row: Row) -> bool:
    samples = row.get("samples")
    return bool(samples and row["n"]) and row["stat"] in shaky_quantiles(int(samples / row["n"]))


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return (interval.lo, interval.hi) if interval else None


def _differences(pairs: list[Matched], facts_a: Mapping[str, str], facts_b: Mapping[str, str]) -> list[Difference]:
    """Return what differs between the sides: the target, each parameter, and each circumstance, by name."""
    differences: dict[str, tuple[dict[str, None], dict[str, None]]] = {}

    def note(dimension: str, a: str, b: str) -> None:
        if a != b:
            sides = differences.setdefault(dimension, ({}, {}))
            sides[0][a] = None
            sides[1][b] = None

    for a, b in pairs:
        if a.target != b.target:
            renamed = a.target_name != b.target_name
            note("target", *(point.target_name if renamed else matching.as_text(point.target) for point in (a, b)))
        if a.parameters != b.parameters and a.experiment == b.experiment:
            of_a, of_b = matching.leaves(a.parameters), matching.leaves(b.parameters)
            for key in sorted(of_a.keys() | of_b.keys()):
                note(f"parameter {key}", matching.one_line(of_a.get(key)), matching.one_line(of_b.get(key)))
        note("experiment", a.experiment, b.experiment)
    for name in [*facts_a, *(name for name in facts_b if name not in facts_a)]:
        note(name, facts_a.get(name) or "unknown", facts_b.get(name) or "unknown")
    return [Difference(name, ", ".join(list(x)[:4]), ", ".join(list(y)[:4])) for name, (x, y) in differences.items()]


def _causes(differences: Iterable[Difference]) -> list[str]:
    """Return the possible causes of a change in a number."""
    return [item.dimension for item in differences if item.dimension != PLACE]


def _notes(rows: list[PointRow], differences: list[Difference], confidence: float) -> list[str]:
    notes = []
    if rows and all(set(row.trials_a) == set(row.trials_b) for row in rows):
        notes.append("A and B are the same trials.")
    if rows and len(causes := _causes(differences)) > 1:
        names = ", ".join(causes)
        notes.append(f"Exploratory: {len(causes)} things changed at once ({names}); no change has one cause.")
    tested = sum(row.p_value is not None for row in rows)
    if tested > 1:
        chance = (1.0 - confidence) * tested
        often = f"{chance:.2g}" if chance < 10 else f"{chance:,.0f}"
        notes.append(
            f"{plural(tested, 'comparison')} at {confidence * 100:g}%: about {often} would look different "
            "by chance alone; p_adjusted of --json corrects for that."
        )
    if doubted := [f"{row.name}: {row.doubt}" for row in rows if row.doubt]:
        notes.append(f"{shortened(list(dict.fromkeys(doubted)), _LISTED)}.")
    notes += noise_persistence.notes([(row.name, row.memory) for row in rows])
    if hidden := [row.bounds_text for row in rows if row.verdict == HIDDEN]:
        told = "; ".join(hidden[:_LISTED]) + (f"; and {len(hidden) - _LISTED} more" if len(hidden) > _LISTED else "")
        notes.append(f"Within error bounds: both sides together can be off by more than the difference ({told}).")
    if any(row.verdict == "too few repetitions" for row in rows):
        notes.append("Some rows have one trial on a side; repetitions: 5 or more makes them comparable.")
    return notes
