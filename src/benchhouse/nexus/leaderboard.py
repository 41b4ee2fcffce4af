"""Leaderboards: all results in the warehouse that a binding maps to a logical benchmark, ranked by target."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from benchhouse.analysis.compare import CONFIDENCE, p_value
from benchhouse.analysis.ranking import FEW, RankedTarget, rank_targets, sentence
from benchhouse.catalog.domains import listed
from benchhouse.catalog.logical import Logical, LogicalResult, answer, by_experiment, fits_version, mapped_metric
from benchhouse.catalog.logical_checks import split_stat
from benchhouse.nexus import logical as logical_api
from benchhouse.plan.logical import read_where
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.nexus import Binding
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse, own
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT, TRIAL_FACT

# One row per bound point, with the outcomes of its trials. Values are queried only for points that are mapped.
INSTANCES = own(
    """
SELECT experiment, experiment_version, instance_digest, any_value(target_name) AS target_name,
       any_value(target) AS target, any_value(parameters) AS parameters,
       count(*) FILTER (outcome = 'invalid') AS invalid,
       count(*) FILTER (outcome NOT IN ('invalid', 'succeeded')) AS failed,
       count(*) FILTER (outcome = 'succeeded') AS succeeded
FROM trial_fact
WHERE NOT warmup AND list_contains(CAST($experiments AS VARCHAR[]), experiment)
GROUP BY experiment, experiment_version, instance_digest
ORDER BY experiment, experiment_version, instance_digest
""".strip()
)

# One row per point and metric: one row for each of 100,000 trials would be hundreds of megabytes.
VALUES = own(
    """
SELECT t.instance_digest, m.metric, m.stat, m.unit, m.direction, max(m.error_bound) AS error_bound,
       list(DISTINCT t.run_id) AS runs, list(t.trial_id ORDER BY t.run_id, t.trial_id) AS trials,
       list(m.value ORDER BY t.run_id, t.trial_id) AS "values"
FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = '' AND isfinite(m.value)
  AND list_contains(CAST($instances AS VARCHAR[]), t.instance_digest)
  AND list_contains(CAST($columns AS VARCHAR[]), m.metric || ' ' || m.stat)
GROUP BY t.instance_digest, m.metric, m.stat, m.unit, m.direction
ORDER BY t.instance_digest, m.metric, m.stat, m.unit, m.direction NULLS FIRST
""".strip()
)

_SURE = 0.01
_TABLES = (TRIAL_FACT.name, MEASUREMENT_FACT.name)
_MOST_KNOWN = 32
_known: dict[str, "Leaderboard"] = {}
"""Leaderboards by their query and the digests of all files that were read, so that changed files are not served."""


@dataclass
class _Gathered:
    """All values of one metric for one target, at one combination of the properties."""

    values: dict[str, float] = field(default_factory=dict)  # by trial
    by_source: dict[str, list[float]] = field(default_factory=dict)  # by experiment, its name and version
    runs: set[str] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)
    error_bound: float | None = None  # the largest possible error of a value; None if no experiment declares one


@dataclass(frozen=True)
class RankedRow:
    """One line of a board."""

    standing: RankedTarget
    experiments: list[str]
    disagree: bool  # whether two experiments surely differ
    runs: list[str]
    trials: list[str]
    points: int  # different instances that are pooled
    invalid: int
    failed: int

    @property
    def against_best(self) -> str:
        """Difference from the best, with its interval: `+12.3% (+10.1% to +14.6%)`, or in the metric's unit.

        The unit is used if there is no share. Empty if nothing is compared.
        """
        compared = self.standing.against_best
        if compared is None:
            return ""
        if compared.change is not None and (compared.change_interval or not compared.difference_interval):
            value, interval, form = compared.change, compared.change_interval, "+.1%"
        else:
            value, interval, form = compared.difference, compared.difference_interval, "+.4g"
        ends = [format(end, form) for end in interval or ()]
        text = format(value, form) + (f" ({' to '.join(ends)})" if ends and ends[0] != ends[1] else "")
        return text.replace("-", "−")  # the sign that `bench compare` uses

    def as_dict(self, named: int | None = None) -> dict[str, Any]:
        standing, summary, beside = self.standing, self.standing.summary, self.standing.against_best
        return {
            "rank": standing.rank,
            "target": standing.target,
            "n": summary.n,
            "mean": summary.mean,
            "median": summary.p50,
            "stdev": summary.stdev,
            "min": summary.min,
            "max": summary.max,
            "change": beside.change if beside else None,
            "change_interval": beside.change_interval if beside else None,
            "difference": beside.difference if beside else None,
            "difference_interval": beside.difference_interval if beside else None,
            "verdict": standing.verdict,
            "surely_better": list(standing.better),
            "experiments": self.experiments,
            "experiments_disagree": self.disagree,
            "points": self.points,
            "invalid": self.invalid,
            "failed": self.failed,
            "runs": self.runs[:named],
            "trials": self.trials[:named],
        }


@dataclass(frozen=True)
class Board:
    """One metric at one combination of the properties: ranked, or refused with a reason."""

    properties: dict[str, Any]
    metric: str
    unit: str
    direction: str
    rows: list[RankedRow]
    sentence: str
    refused: str = ""

    @property
    def title(self) -> str:
        """The metric and properties, such as `time_ms at load=heavy`."""
        place = " ".join(f"{name}={value}" for name, value in self.properties.items())
        return f"{self.metric} at {place}" if place else self.metric

    def as_dict(self, named: int | None = None) -> dict[str, Any]:
        names = ("properties", "metric", "unit", "direction", "sentence", "refused")
        return {name: getattr(self, name) for name in names} | {"standings": [row.as_dict(named) for row in self.rows]}


@dataclass(frozen=True)
class Leaderboard:
    """All boards of a logical benchmark, and what was left out of them."""

    benchmark: str
    target: str
    boards: list[Board]
    notes: list[str]
    queries: list[str]  # query_spec_digest of each query
    experiments: list[str]  # experiments that answer it

    def as_dict(self, named: int | None = None) -> dict[str, Any]:
        """Return all boards as a dictionary. Each row names at most `named` runs and trials; all if it is None."""
        boards = [board.as_dict(named) for board in self.boards]
        return {name: getattr(self, name) for name in ("benchmark", "target", "notes", "queries")} | {"boards": boards}


@dataclass(frozen=True)
class _Taken:
    """A bound point of the warehouse that answers the benchmark."""

    binding: Binding
    answer: LogicalResult
    row: Mapping[str, Any]

    @property
    def case(self) -> str:
        return canonical_json(list(self.answer.properties)).decode()

    @property
    def source(self) -> str:
        return f"{self.row['experiment']} {self.row['experiment_version']}".strip()


def leaderboard(
    workspace: WorkspaceFolder,
    name: str,
    where: Mapping[str, str],
    nexus: str | Path | None = None,
    confidence: float = CONFIDENCE,
    experiment: str | None = None,
) -> Leaderboard:
    """Rank the targets of a logical benchmark over all that was collected here, or only what `experiment` measured."""
    logical = logical_api.find(workspace, name, nexus)
    wanted = read_where(logical, where)
    bindings = by_experiment(logical_api.bindings_to(logical, experiment))
    with Warehouse.open(workspace) as warehouse:
        digests = warehouse.catalog.digests(_TABLES)
        asked = repr((workspace.root, digests, logical.file, bindings, wanted, confidence, experiment))
        key = hashlib.sha256(asked.encode()).hexdigest()
        if known := _known.get(key):
            return known
        instances = warehouse.query(INSTANCES, {"experiments": sorted(bindings)}, name="leaderboard instances")
        taken, unmapped = _take(logical, bindings, instances.dicts(), wanted)
        columns = sorted({column for item in taken for column in _columns(logical, item.binding)})
        picked = sorted({item.row["instance_digest"] for item in taken})
        values = warehouse.query(VALUES, {"instances": picked, "columns": columns}, name="leaderboard values")
        unchanged = warehouse.catalog.digests(_TABLES) == digests
    boards = _boards(logical, taken, values.dicts(), confidence)
    notes = [
        f"not of this benchmark: {_trials(count)} of {source}, {reason}"
        for (source, reason), count in sorted(unmapped.items())
    ]
    ranked = Leaderboard(
        benchmark=logical.name,
        target=logical.file.logical_benchmark.target.identifier,
        boards=boards,
        notes=[*_doubts(boards), *_left_out(taken), *notes],
        queries=[instances.spec.digest(), values.spec.digest()],
        experiments=sorted({item.experiment.experiment_identifier for item in logical.file.bindings}),
    )
    if unchanged:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = ranked
    return ranked


def _take(
    logical: Logical, bindings: Mapping[str, list[Binding]], rows: Iterable[Mapping[str, Any]], where: Mapping[str, Any]
) -> tuple[list[_Taken], Counter[tuple[str, str]]]:
    """Return the points that answer the benchmark, and the number of other trials by experiment and reason."""
    taken: list[_Taken] = []
    unmapped: Counter[tuple[str, str]] = Counter()
    for row in rows:
        target, parameters = json.loads(row["target"]), json.loads(row["parameters"])
        reasons: list[str] = []
        matched = False
        for binding in bindings[row["experiment"]]:
            if not fits_version(binding.experiment.experiment_version, row["experiment_version"]):
                continue
            point = answer(logical, binding, row["target_name"], target, parameters)
            if isinstance(point, str):
                reasons.append(point)
            elif point is not None:
                matched = True
                properties = dict(zip(logical.properties, point.properties, strict=True))
                if all(properties[name] == value for name, value in where.items()):
                    taken.append(_Taken(binding, point, row))
        if reasons and not matched:
            unmapped[row["experiment"], reasons[0]] += row["succeeded"]
    return taken, unmapped


def _columns(logical: Logical, binding: Binding) -> Iterable[str]:
    """Yield the columns that a metric may have: the statistic is a part of its name, or it is its value or mean."""
    for name in logical.metrics:
        mapped = mapped_metric(binding, name)
        metric, stat = split_stat(mapped, ())
        yield from (f"{mapped} value", f"{mapped} mean", *([f"{metric} {stat}"] if stat else []))


def _boards(logical: Logical, taken: list[_Taken], values: list[dict[str, Any]], confidence: float) -> list[Board]:
    by_instance = grouped(values, itemgetter("instance_digest"))
    boards = []
    for case in dict.fromkeys(item.case for item in taken):
        members = [item for item in taken if item.case == case]
        properties = dict(zip(logical.properties, members[0].answer.properties, strict=True))
        for metric in logical.metrics:
            board = _board(logical, metric, properties, members, by_instance, confidence)
            boards += [board] if board else []
    return sorted(boards, key=lambda board: _place(logical, board))


def _place(logical: Logical, board: Board) -> list[tuple[int, float, str]]:
    """Return a sort key: values in the order of the file, and those that it does not list by size, then by alphabet."""
    place = []
    for item in logical.file.logical_benchmark.properties:
        value, values = board.properties[item.identifier], listed(item.property_domain) or []
        known = values.index(value) if value in values else len(values)
        place.append((known, value if isinstance(value, int | float) else math.inf, str(value)))
    return [*place, (logical.metrics.index(board.metric), 0.0, "")]


def _board(
    logical: Logical,
    metric: str,
    properties: dict[str, Any],
    members: list[_Taken],
    values: Mapping[str, list[dict[str, Any]]],
    confidence: float,
) -> Board | None:
    by_target: dict[str, _Gathered] = {}
    units: dict[str, set[str]] = {}
    directions: dict[str, set[str]] = {}
    for member in members:
        for row in _headline(values.get(member.row["instance_digest"], []), mapped_metric(member.binding, metric)):
            units.setdefault(row["unit"], set()).add(member.source)
            if row["direction"]:
                directions.setdefault(row["direction"], set()).add(member.source)
            gathered = by_target.setdefault(member.answer.target, _Gathered())
            gathered.values |= zip(row["trials"], row["values"], strict=True)
            gathered.by_source.setdefault(member.source, []).extend(row["values"])
            gathered.runs.update(row["runs"])
            gathered.instances.add(row["instance_digest"])
            gathered.error_bound = max(filter(None, (gathered.error_bound, row["error_bound"])), default=None)
    if not by_target:
        return None
    direction = logical.directions.get(metric) or (next(iter(directions)) if len(directions) == 1 else "")
    refused = _refusal(logical, metric, units, directions)
    if refused or direction not in ("higher", "lower"):
        unit = next(iter(units)) if len(units) == 1 else ""
        return Board(properties, metric, unit, direction, [], "", refused)
    better: Literal["higher", "lower"] = "higher" if direction == "higher" else "lower"
    samples = {name: list(item.values.values()) for name, item in by_target.items()}
    bounds = {name: item.error_bound for name, item in by_target.items()}
    standings = rank_targets(samples, better, confidence, bounds)
    rows = [_row(standing, by_target[standing.target], members) for standing in standings]
    return Board(properties, metric, next(iter(units)), direction, rows, sentence(standings))


def _headline(values: Iterable[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """Return the rows with one number per trial: the named statistic, or otherwise the value, or the mean of many."""
    values = list(values)
    name, stat = split_stat(wanted, {item["metric"] for item in values})
    stats = (stat,) if stat else ("value", "mean")
    return [item for item in values if item["metric"] == name and item["stat"] in stats]


def _refusal(logical: Logical, metric: str, units: Mapping[str, set[str]], directions: Mapping[str, set[str]]) -> str:
    """Return why the values can't share a board, or ''. Different units or directions are never averaged."""
    if len(units) > 1:
        return f"the unit differs: {_by_source(units)}"
    declared = logical.directions.get(metric)
    if len(directions) > 1 or (declared and set(directions) - {declared}):
        here = f", {declared} in {logical.name}.yaml" if declared else ""
        return f"which way is better differs: {_by_source(directions)}{here}"
    if not directions and not declared:
        return (
            f"nobody says which way is better; say it in {logical.name}.yaml: "
            f"metadata: {{directions: {{{metric}: lower}}}}"
        )
    return ""


def _by_source(sources: Mapping[str, set[str]]) -> str:
    return "; ".join(f"{what} of {', '.join(sorted(names))}" for what, names in sorted(sources.items()))


def _row(standing: RankedTarget, gathered: _Gathered, members: list[_Taken]) -> RankedRow:
    mine = {item.row["instance_digest"]: item.row for item in members if item.answer.target == standing.target}
    return RankedRow(
        standing=standing,
        experiments=sorted(gathered.by_source),
        disagree=_disagree(gathered.by_source),
        runs=sorted(gathered.runs),
        trials=list(gathered.values),
        points=len(gathered.instances),
        invalid=sum(row["invalid"] for row in mine.values()),
        failed=sum(row["failed"] for row in mine.values()),
    )


def _doubts(boards: Iterable[Board]) -> list[str]:
    """Return what a reader must know before trusting a board, each note once for all metrics that it concerns."""
    notes: dict[str, None] = {}
    for board in boards:
        for row in board.rows:
            name, n = row.standing.target, row.standing.summary.n
            if n < FEW:
                notes[f"few repetitions: {name} has {n}; {FEW} or more give a sharper answer"] = None
            if row.standing.against_best and row.standing.against_best.doubt:
                notes[f"{name} against the best: {row.standing.against_best.doubt}"] = None
            if row.points > len(row.experiments):
                notes[f"{name} pools {row.points} different points; filter or bind what they differ in"] = None
            if row.disagree:
                by = " and ".join(row.experiments)
                notes[f"{by} disagree about {name} ({board.title}): its mean mixes them; see --experiment"] = None
            elif len(row.experiments) > 1:
                notes[f"{name} pools what was measured by {' and by '.join(row.experiments)}"] = None
    return list(notes)


def _disagree(by_source: Mapping[str, list[float]]) -> bool:
    """Return whether two experiments surely differ about one target: at 1% error for all pairs together."""
    pairs = list(combinations(by_source.values(), 2))
    return any((p := p_value(a, b)) is not None and p * len(pairs) <= _SURE for a, b in pairs)


def _left_out(taken: Iterable[_Taken]) -> list[str]:
    """Return notes about trials without valid measurements, also for targets that are therefore on no board."""
    invalid, failed = Counter[str](), Counter[str]()
    for row, target in {item.row["instance_digest"]: (item.row, item.answer.target) for item in taken}.values():
        invalid[target] += row["invalid"]
        failed[target] += row["failed"]
    notes = [f"left out: {_trials(n)} of {target}, INVALID by their own check" for target, n in invalid.items() if n]
    return notes + [f"left out: {_trials(n)} of {target} that failed" for target, n in failed.items() if n]


def _trials(count: int) -> str:
    return f"{count} trial" if count == 1 else f"{count} trials"
