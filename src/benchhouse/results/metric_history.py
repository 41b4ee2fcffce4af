"""The history of one metric of one case: a value a run, where its level changed, and what else changed there."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchhouse.analysis.changes import FLOOR, Change, Drift, Noise, find_changes
from benchhouse.analysis.online import Alarm, Baseline, watch
from benchhouse.documents.problems import did_you_mean
from benchhouse.results.circumstances import circumstances_of_sides
from benchhouse.results.metric_names import declared_order
from benchhouse.results.numbers import name_of, number, percent, plural
from benchhouse.results.refusals import INVALID_HINT, why_no_number
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

Row = Mapping[str, Any]
_LISTED = 8

CASES = """
SELECT t.benchmark_case_id, t.target_name, max(t.scenario) AS scenario, max(t.point) AS point,
       list(DISTINCT t.instance_digest ORDER BY t.instance_digest) AS instances,
       list(DISTINCT t.scenario ORDER BY t.scenario) AS scenarios, count(DISTINCT t.run_id) AS runs,
       max(t.experiment) AS experiment, max(t.experiment_version) AS version
FROM trial_fact t
WHERE t.outcome = 'succeeded' AND NOT t.warmup
GROUP BY t.benchmark_case_id, t.target_name
ORDER BY scenario, point, t.target_name, t.benchmark_case_id
""".strip()

VALUES = """
WITH grouped AS (
  SELECT t.run_id, min(t.started) AS started, m.metric, m.stat, m.unit, m.direction,
         list(m.value ORDER BY t.repetition, t.trial_id) AS "values"
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
    AND t.benchmark_case_id = $case_id AND t.target_name IS NOT DISTINCT FROM $target
  GROUP BY t.run_id, m.metric, m.stat, m.unit, m.direction
)
SELECT run_id, started, metric, stat, unit, direction, len("values") AS n, list_avg("values") AS mean,
       list_stddev_samp("values") AS stdev, list_min("values") AS min
FROM grouped ORDER BY started, run_id, metric, stat
""".strip()

REFUSED = """
SELECT t.run_id, m.metric, m.stat
FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
WHERE t.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
  AND t.benchmark_case_id = $case_id AND t.target_name IS NOT DISTINCT FROM $target
GROUP BY t.run_id, m.metric, m.stat HAVING bool_and(m.outcome = 'invalid')
ORDER BY min(t.started), t.run_id, m.metric, m.stat
""".strip()
"""Runs in which a figure is INVALID in every trial: they have no value of it."""

WITHOUT_NUMBER = """
SELECT run_id, list(DISTINCT outcome) AS outcomes FROM trial_fact
WHERE NOT warmup AND benchmark_case_id = $case_id AND target_name IS NOT DISTINCT FROM $target
GROUP BY run_id HAVING NOT bool_or(outcome = 'succeeded')
ORDER BY min(started), run_id
""".strip()
"""Runs that tried the case, and in which no trial gave a number."""

NEWEST = """
SELECT scenario, trial_id FROM trial_fact
WHERE outcome = 'succeeded' AND NOT warmup AND benchmark_case_id = $case_id AND target_name IS NOT DISTINCT FROM $target
ORDER BY started DESC LIMIT 1
""".strip()


@dataclass(frozen=True)
class Case:
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


@dataclass(frozen=True)
class LevelChange:
    """One change of level, told with the runs around it."""

    run_before: str
    run_after: str
    before: float
    after: float
    change: float | None
    interval: tuple[float, float] | None
    z: float
    verdict: str
    differs: list[tuple[str, str, str]]
    """What else is not the same in the run before and the run after: name, before, after."""


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
    """What `bench history` shows."""

    case: Case
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

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def values(self) -> list[float]:
        return [run.mean for run in self.runs]


def list_cases(warehouse: Warehouse) -> list[Case]:
    """All of them; at least one."""
    cases = [Case(**row) for row in warehouse.query(CASES, name="cases").dicts()]
    if not cases:
        raise BenchError("no trial has succeeded in this workspace yet", hint="See: bench status, bench run SCENARIO")
    return cases


def find_case(warehouse: Warehouse, token: str) -> Case:
    """A case by id (or its beginning), instance digest, scenario, or scenario/point; says what there is otherwise."""
    cases = list_cases(warehouse)
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
    raise BenchError(f"no case {token!r} here" + (f"; did you mean {guess!r}?" if guess else ""), hint=hint)


def _label_among(case: Case, listed: Sequence[Case]) -> str:
    """With its id where that picks it: targets of one workload share theirs."""
    alone = sum(other.benchmark_case_id == case.benchmark_case_id for other in listed) == 1
    twins = [other for other in listed if (other.label, other.target_name) == (case.label, case.target_name)]
    version = f" {case.version}" if len({other.version for other in twins}) > 1 else ""
    return f"{case.label}{version} ({case.benchmark_case_id[:8]})" if alone else f"{case.label}{version}"


def _begins(case: Case, token: str) -> bool:
    return len(token) >= 4 and any(name.startswith(token) for name in (case.benchmark_case_id, *case.instances))


def gather(
    warehouse: Warehouse, case: Case, metric: str | None, stat: str | None, *, floor: float = FLOOR
) -> MetricHistory:
    """The history of a metric of a case, by default of its first headline one, with its changes."""
    parameters = {"case_id": case.benchmark_case_id, "target": case.target_name}
    rows = warehouse.query(VALUES, parameters, name="history").dicts()
    refused = warehouse.query(REFUSED, parameters, name="history, refused").dicts()
    order = declared_order(_newest(warehouse, parameters)) if metric is None else {}
    metric, stat = _choose(sorted(rows, key=lambda row: order.get(row["metric"], len(order))), metric, stat, refused)
    mine = [row for row in rows if (row["metric"], row["stat"]) == (metric, stat)]
    _refuse_mixed(mine, metric, stat)
    told = ("n", "mean", "stdev", "min")
    runs = [RunValue(row["run_id"], str(row["started"]), *(row[name] for name in told)) for row in mine]
    detected = find_changes([run.mean for run in runs], floor=floor)
    direction = mine[0]["direction"]
    changes = []
    for change in detected.changes:
        around = runs[change.index - 1].run_id, runs[change.index].run_id
        verdict = _verdict(change, direction)
        levels = change.before, change.after
        differs = _differs(warehouse, case, *around)
        changes.append(LevelChange(*around, *levels, change.change, _interval(change), change.z, verdict, differs))
    drifts = [
        SlowChange(runs[drift.start].run_id, runs[drift.end - 1].run_id, drift.end - drift.start, drift.before,
                   drift.after, drift.change, _interval(drift), _verdict(drift, direction))
        for drift in detected.drifts
    ]  # fmt: skip
    few = f"{plural(len(runs), 'run')} {'is' if len(runs) == 1 else 'are'} too few"
    notes = [] if detected.noise is not None else [f"{few} to tell a change from noise: 10 or more are needed."]
    if invalid := [row["run_id"] for row in refused if (row["metric"], row["stat"]) == (metric, stat)]:
        notes.append(f"Left out, as it is INVALID in every trial: {shortened(invalid, _LISTED)}.")
    gone = warehouse.query(WITHOUT_NUMBER, parameters, name="history, without number").dicts()
    if named := [f"{row['run_id']} ({why_no_number(row['outcomes'])})" for row in gone]:
        notes.append(f"Left out, as no trial gave a valid number: {shortened(named, _LISTED)}.")
    unit, noise = mine[0]["unit"], detected.noise
    return MetricHistory(case, metric, stat, unit, direction, runs, changes, noise, floor, notes, drifts)


def _interval(change: Change | Drift) -> tuple[float, float] | None:
    return (change.low, change.high) if change.low is not None and change.high is not None else None


def _newest(warehouse: Warehouse, parameters: Mapping[str, Any]) -> list[TrialFolder]:
    """The evidence that says which metric its experiment puts first."""
    rows = warehouse.query(NEWEST, dict(parameters), name="newest trial").dicts()
    return [folder for row in rows if (folder := warehouse.workspace.trial(row["scenario"], row["trial_id"])).sealed]


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
    """Numbers in different units are not one history."""
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


def _verdict(change: Change | Drift, direction: str | None) -> str:
    """The word that the interval allows."""
    word = "different"
    if direction is not None:
        word = "better" if (change.after > change.before) == (direction == "higher") else "worse"
    interval = _interval(change)
    return f"perhaps {word}" if interval and interval[0] <= 0.0 <= interval[1] else word


def _differs(warehouse: Warehouse, case: Case, before: str, after: str) -> list[tuple[str, str, str]]:
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


def alarm_since(history: MetricHistory, baseline: Baseline, last_run: str) -> tuple[Alarm | None, list[RunValue]]:
    """What the runs after `last_run` say against an accepted baseline, and these runs."""
    known = [at for at, run in enumerate(history.runs) if run.run_id == last_run]
    later = history.runs[known[-1] + 1 :] if known else [run for run in history.runs if run.run_id > last_run]
    before = history.runs[known[-1]].mean if known else None
    return watch(baseline, [run.mean for run in later], history.direction, before), later
