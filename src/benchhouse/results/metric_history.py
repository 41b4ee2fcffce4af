"""The history of one metric of one case: one value per run, where its level changed, and what else changed there."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from benchhouse.analysis.changes import FLOOR, Drift, LevelShift, Noise, find_changes
from benchhouse.analysis.changes import ChangeHistory as Found
from benchhouse.analysis.online import Baseline, LevelAlarm, watch
from benchhouse.documents.problems import did_you_mean
from benchhouse.results.invalid_trials import INVALID_HINT, missing_number_reason
from benchhouse.results.metric_names import declared_order
from benchhouse.results.numbers import mean_interval, name_of, number, percent, plural, stat_place
from benchhouse.results.run_conditions import circumstances_of_sides
from benchhouse.results.table_cells import ref_of
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.summaries import Summaries

Row = Mapping[str, Any]
_LISTED = 8


@dataclass(frozen=True)
class HistoryCase:
    """One benchmark case of one target, over all runs."""

    benchmark_case_id: str
    target_name: str
    scenario: str
    point: str
    runs: int
    instances: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)
    experiment: str = ""
    version: str = ""

    @property
    def label(self) -> str:
        return "/".join(filter(None, (self.scenario, self.point or self.target_name)))


@dataclass(frozen=True)
class RunValue:
    """The mean over the trials of one run."""

    run_id: str
    started: str
    n: int
    mean: float
    stdev: float | None
    min: float
    interval: tuple[float, float] | None
    """The 95% interval of the mean; None for a single trial."""
    ref: str
    """Reference for `bench trace`."""


@dataclass(frozen=True)
class LevelChange:
    """One change of level, with the runs before and after it."""

    run_before: str
    run_after: str
    before: float
    after: float
    change: float | None
    interval: tuple[float, float] | None
    z: float
    verdict: str
    differs: list[tuple[str, str, str]]
    """What else differs between the run before and the run after: name, before, after."""


@dataclass(frozen=True)
class SlowChange:
    """A drift: a level that rose or fell along a line from one run to another."""

    first_run: str
    last_run: str
    runs: int
    before: float
    after: float
    change: float | None
    interval: tuple[float, float] | None
    verdict: str

    @property
    def sentence(self) -> str:
        interval = f" ({percent(self.interval[0])} to {percent(self.interval[1])})" if self.interval else ""
        change = "" if self.change is None else f": {percent(self.change)}{interval} in {plural(self.runs, 'run')}"
        ends = f"{number(self.before)} at {self.first_run} to {number(self.after)} at {self.last_run}"
        return f"slow drift from {ends}{change}, {self.verdict}"


@dataclass(frozen=True)
class MetricHistory:
    """The output of `bench history`."""

    case: HistoryCase
    metric: str
    stat: str
    unit: str
    direction: Direction | None
    runs: list[RunValue]
    changes: list[LevelChange]
    noise: Noise | None
    floor: float
    notes: list[str]
    drifts: list[SlowChange] = field(default_factory=list)
    recorded: list[tuple[str, str]] = field(default_factory=list)
    """Metrics and statistics that have a history for the case."""
    left_out: list[str] = field(default_factory=list)
    """Runs that tried the case but have no valid number of this metric."""

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def values(self) -> list[float]:
        return [run.mean for run in self.runs]


def list_cases(summaries: Summaries) -> list[HistoryCase]:
    """Return all cases, at least one. Raise NotFoundError if there are none."""
    cases = [HistoryCase(**row) for row in summaries.cases()]
    if not cases:
        raise NotFoundError(
            "no trial has succeeded in this workspace yet", hint="See: bench status, bench run SCENARIO"
        )
    return cases


def find_case(summaries: Summaries, token: str) -> HistoryCase:
    """Find a case by id (or its beginning), instance digest, scenario, or scenario/point. Raise an error that lists the
    cases if none or several match.
    """
    cases = list_cases(summaries)
    scenario, slash, rest = token.partition("/")
    named = [case for case in cases if scenario in case.scenarios]
    if slash and rest:
        picked = [case for case in named if rest in (case.point, case.target_name) or _begins(case, rest)]
    else:
        whole = [case for case in named if case.label == case.scenario]  # a case without a point has no longer name
        picked = whole or named or [case for case in cases if _begins(case, token)]
    if len(picked) == 1:
        return picked[0]
    listed = picked or named or cases
    hint = "There are " + shortened([_label_among(case, listed) for case in listed], _LISTED)
    if picked:
        first = picked[0]
        alike = sum(case.label == first.label for case in picked) > 1
        name = first.benchmark_case_id[:8] if alike else shlex.quote(first.label)
        raise BenchError(
            f"{token!r} fits {len(picked)} cases", hint=f"{hint}\nName one, such as:  bench history {name}"
        )
    guess = did_you_mean(token, [*(case.label for case in cases), *(case.scenario for case in cases)])
    raise NotFoundError(f"no case {token!r} here" + (f"; did you mean {guess!r}?" if guess else ""), hint=hint)


def _label_among(case: HistoryCase, listed: Sequence[HistoryCase]) -> str:
    """Return the label, with the id if that identifies the case: targets of one workload share an id."""
    alone = sum(other.benchmark_case_id == case.benchmark_case_id for other in listed) == 1
    twins = [other for other in listed if (other.label, other.target_name) == (case.label, case.target_name)]
    version = f" {case.version}" if len({other.version for other in twins}) > 1 else ""
    return f"{case.label}{version} ({case.benchmark_case_id[:8]})" if alone else f"{case.label}{version}"


def _begins(case: HistoryCase, token: str) -> bool:
    return len(token) >= 4 and any(name.startswith(token) for name in (case.benchmark_case_id, *case.instances))


def gather(
    summaries: Summaries,
    case: HistoryCase,
    metric: str | None,
    stat: str | None,
    *,
    floor: float = FLOOR,
    circumstances: bool = True,
) -> MetricHistory:
    """Return the history of a metric of a case, by default of its first headline metric, with its changes.

    Without `circumstances`, changes do not list what else differs, which takes as long as all the rest.
    """
    key = case.benchmark_case_id, case.target_name
    warehouse = summaries.warehouse
    measured, gone = summaries.recorded(*key), summaries.without_number(*key)
    newest = summaries.newest_trial(*key) if metric is None else None
    refused = [row for row in measured if row["refused"]]
    rows = [row for row in measured if not row["refused"]]
    order = declared_order(_evidence(warehouse, newest)) if newest else {}
    metric, stat = _choose(sorted(rows, key=lambda row: order.get(row["metric"], len(order))), metric, stat, refused)
    values = summaries.values(*key, metric, stat)
    mine = [row for row in values if row["n"]]
    _refuse_mixed(mine, metric, stat)
    runs = [_run_value(row, metric, stat) for row in mine]
    detected = _changes(tuple(run.mean for run in runs), floor)
    direction = mine[0]["direction"]
    changes = []
    for change in detected.changes:
        around = runs[change.index - 1].run_id, runs[change.index].run_id
        verdict = _verdict(change, direction)
        levels = change.before, change.after
        differs = _differs(warehouse, case, *around) if circumstances else []
        changes.append(LevelChange(*around, *levels, change.change, _interval(change), change.z, verdict, differs))
    drifts = [
        SlowChange(runs[drift.start].run_id, runs[drift.end - 1].run_id, drift.end - drift.start, drift.before,
                   drift.after, drift.change, _interval(drift), _verdict(drift, direction))
        for drift in detected.drifts
    ]  # fmt: skip
    few = f"{plural(len(runs), 'run')} {'is' if len(runs) == 1 else 'are'} too few"
    notes = [] if detected.noise is not None else [f"{few} to tell a change from noise: 10 or more are needed."]
    invalid = [row["run_id"] for row in values if not row["n"]]
    if invalid:
        notes.append(f"Left out, as it is INVALID in every trial: {shortened(invalid, _LISTED)}.")
    if named := [f"{run_id} ({missing_number_reason(outcomes)})" for run_id, outcomes in gone]:
        notes.append(f"Left out, as no trial gave a valid number: {shortened(named, _LISTED)}.")
    unit, noise = mine[0]["unit"], detected.noise
    recorded = sorted({(row["metric"], row["stat"]) for row in rows}, key=lambda key: (key[0], stat_place(key[1])))
    left_out = sorted({*invalid, *(run_id for run_id, _ in gone)})
    return MetricHistory(
        case, metric, stat, unit, direction, runs, changes, noise, floor, notes, drifts, recorded, left_out
    )


def _run_value(row: Row, metric: str, stat: str) -> RunValue:
    n, mean, stdev, least = (row[name] for name in ("n", "mean", "stdev", "min"))
    instance = row["instances"][0] if len(row["instances"]) == 1 else None  # instances can differ in their services
    ref = ref_of(row["run_id"], instance, metric, stat)
    interval = mean_interval(mean, stdev, n, least)
    return RunValue(row["run_id"], row["started"], n, mean, stdev, least, interval, ref)


def _interval(change: LevelShift | Drift) -> tuple[float, float] | None:
    return (change.low, change.high) if change.low is not None and change.high is not None else None


@lru_cache(maxsize=256)
def _changes(values: tuple[float, ...], floor: float) -> Found:
    """Find changes; cached, because it is a pure function of the values."""
    return find_changes(values, floor=floor)


def _evidence(warehouse: Warehouse, newest: tuple[str, str]) -> list[TrialFolder]:
    """Return the sealed evidence that declares which metric of its experiment is the first."""
    folder = warehouse.workspace.trial(*newest)
    return [folder] if folder.sealed else []


def _choose(rows: Sequence[Row], metric: str | None, stat: str | None, refused: Sequence[Row]) -> tuple[str, str]:
    known = {row["metric"] for row in rows}
    valid, invalid = (
        [key for row in some if metric in (None, (key := (row["metric"], row["stat"]))[0]) and stat in (None, key[1])]
        for some in (rows, refused)
    )
    if invalid and not valid:
        name = name_of(*invalid[0])
        raise BenchError(f"{name} has no history: it is INVALID in every trial of every run", hint=INVALID_HINT)
    if metric is None:
        first = next((row for row in rows if row["stat"] in ("value", "mean") and row["direction"]), rows[0])
        metric = first["metric"]
    elif metric not in known:
        guess = did_you_mean(metric, sorted(known))
        raise BenchError(
            f"no metric {metric!r} here" + (f"; did you mean {guess!r}?" if guess else ""),
            hint=f"There are {', '.join(sorted(known))}",
        )
    stats = [row["stat"] for row in rows if row["metric"] == metric]
    if stat is None:
        stat = next((name for name in ("value", "mean", "p50") if name in stats), stats[0])
    elif stat not in stats:
        raise BenchError(f"{metric} has no {stat}", hint=f"It has {', '.join(sorted(set(stats)))}")
    return str(metric), str(stat)


def _refuse_mixed(rows: Sequence[Row], metric: str, stat: str) -> None:
    """Raise an error for numbers in different units or directions, which are not one history."""
    for what in ("unit", "direction"):
        kinds: dict[Any, str] = {}
        for row in rows:
            kinds.setdefault(row[what], row["run_id"])
        if len(kinds) > 1:
            listed = ", ".join(f"{kind} since {run}" for kind, run in kinds.items())
            raise BenchError(
                f"{name_of(metric, stat)} is not one history: its {what} changed ({listed})",
                hint="A metric whose meaning changes needs a new name; compare the runs of each kind by themselves.",
            )
    if len({row["run_id"] for row in rows}) < len(rows):
        raise BenchError(
            f"{name_of(metric, stat)} has two values in one run", hint="See: bench query, measurement_fact"
        )


def _verdict(change: LevelShift | Drift, direction: str | None) -> str:
    """Return the verdict that the interval allows."""
    word = "different"
    if direction is not None:
        word = "better" if (change.after > change.before) == (direction == "higher") else "worse"
    interval = _interval(change)
    return f"perhaps {word}" if interval and interval[0] <= 0.0 <= interval[1] else word


def _differs(warehouse: Warehouse, case: HistoryCase, before: str, after: str) -> list[tuple[str, str, str]]:
    sides = [
        [
            row
            for row in queries.trials(warehouse, [run]).dicts()
            if (row["benchmark_case_id"], row["target_name"]) == (case.benchmark_case_id, case.target_name)
        ]
        for run in (before, after)
    ]
    of_before, of_after = (
        facts | {"target": ", ".join(sorted({row["target"] for row in trials})[:2])}
        for facts, trials in zip(circumstances_of_sides(warehouse, sides), sides, strict=True)
    )
    return [(name, value, of_after[name]) for name, value in of_before.items() if value != of_after[name]]


def alarm_since(history: MetricHistory, baseline: Baseline, last_run: str) -> tuple[LevelAlarm | None, list[RunValue]]:
    """Return the alarm that the runs after `last_run` raise against an accepted baseline, and these runs."""
    known = [at for at, run in enumerate(history.runs) if run.run_id == last_run]
    later = history.runs[known[-1] + 1 :] if known else [run for run in history.runs if run.run_id > last_run]
    before = history.runs[known[-1]].mean if known else None
    return watch(baseline, [run.mean for run in later], history.direction, before), later
