"""Convert rows of the warehouse to the input of playbooks: one case per point, joined on the trials behind its
numbers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from benchhouse.analysis.compare import StatisticComparison, compare
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, MemberNumber, SeriesReading, Signal
from benchhouse.analysis.ranking import holm
from benchhouse.results.comparison import ComparisonTable, PointRow
from benchhouse.results.numbers import SEED, name_of
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse, own

Row = Mapping[str, Any]
Values = Mapping[tuple[str, str, str], float]
"""Keyed by trial, metric, and stat."""
_NAME = ("metric", "stat", "unit", "direction")
_FEWEST_PEERS = 3  # with two hosts, it is unknown which one is abnormal
_PART = re.compile(r"(rank|shard|worker|node)[:_ ]?(.+)")

SLICES = own(
    """
SELECT trial_id, node_name, rank_id, scope, series, kind, unit, phase, avg, min, max, growth
FROM telemetry_slice_fact
WHERE list_contains(CAST($trials AS VARCHAR[]), trial_id) AND (phase = 'steady' OR phase = 'trial')
ORDER BY scope, series, phase, trial_id
""".strip()
)

PARTS = own(
    """
SELECT m.trial_id, m.metric, m.stat, m.unit, m.direction, m.value, m.scope, m."window"
FROM measurement_fact m
WHERE list_contains(CAST($trials AS VARCHAR[]), m.trial_id) AND m.direction IS NOT NULL
  AND m.outcome = 'succeeded'
  AND (m.scope <> 'trial' OR m."window" <> '') AND (m.stat = 'value' OR m.stat = 'mean' OR m.stat = 'p50')
ORDER BY m.metric, m.stat, m."window", m.scope, m.trial_id
""".strip()
)


class Gathered:
    """All data of two runs about the points of a comparison, read once."""

    def __init__(self, warehouse: Warehouse, table: ComparisonTable, base: str, run_id: str) -> None:
        runs = [base, run_id]
        self.facts: dict[str, Row] = {row["trial_id"]: row for row in queries.trials(warehouse, runs).dicts()}
        self.values: dict[tuple[str, str, str], float] = {
            (trial, row["metric"], row["stat"]): value
            for row in queries.points(warehouse, runs).dicts()
            for trial, value in zip(row["trials"], row["values"], strict=True)
        }
        trials = {"trials": sorted({trial for row in table.rows for trial in (*row.trials_a, *row.trials_b)})}
        self._slices = warehouse.query(SLICES, trials, runs=runs, name="why-slices").dicts()
        self._parts = warehouse.query(PARTS, trials, runs=runs, name="why-parts").dicts()

    def case(self, point: str, rows: Sequence[PointRow], reasons: Mapping[str, int]) -> ComparedPoint:
        """Return the case of one point; `rows` are its compared numbers."""
        base, now = set(rows[0].trials_a), set(rows[0].trials_b)
        return ComparedPoint(
            point=point,
            numbers=[_number(row, {name: getattr(row, name) for name in _NAME}, row.p_adjusted) for row in rows],
            signals=_signals(self._slices, base, now),
            members=[*_members(self._parts, self.facts, base, now), *_hosts(rows, self.facts, self.values)],
            wait=_wait(self.facts, base, now),
            slowness={row.name: _slowness(row, self.values) for row in rows if row.direction in ("higher", "lower")},
            reasons=dict(reasons),
        )


def correct_waits(cases: Sequence[ComparedPoint], compared: int) -> list[ComparedPoint]:
    """Return the cases with each wait's p-value corrected (Holm) for all waits and the `compared` other numbers."""
    waits = {at: case.wait for at, case in enumerate(cases) if case.wait is not None}
    known = {str(at): wait.p_adjusted for at, wait in waits.items() if wait.p_adjusted is not None}
    adjusted = holm(known, family=compared + len(waits))
    return [
        case.model_copy(update={"wait": waits[at].model_copy(update={"p_adjusted": adjusted[str(at)]})})
        if str(at) in adjusted
        else case
        for at, case in enumerate(cases)
    ]


def _number(
    compared: PointRow | StatisticComparison, name: Mapping[str, Any], p_adjusted: float | None
) -> ComparedNumber:
    low, high = compared.change_interval or (None, None)
    return ComparedNumber(
        **name,
        base=compared.mean_a,
        now=compared.mean_b,
        change=compared.change,
        low=low,
        high=high,
        verdict=compared.verdict,
        p_adjusted=p_adjusted,
        n_base=compared.n_a,
        n_now=compared.n_b,
        ref_base=compared.ref_a if isinstance(compared, PointRow) else "",
        ref_now=compared.ref_b if isinstance(compared, PointRow) else "",
    )


def _slowness(row: PointRow, values: Values) -> dict[str, float]:
    sign = 1.0 if row.direction == "lower" else -1.0
    return {trial: sign * values[trial, row.metric, row.stat] for trial in row.trials_b}


def _signals(slices: Iterable[Row], base: set[str], now: set[str]) -> list[Signal]:
    """Return one signal per scope and series: over the steady phase if both sides have one, otherwise over the whole
    trial.
    """
    trials = base | now
    own = (row for row in slices if row["trial_id"] in trials)
    signals = []
    for (scope, series, unit), group in grouped(own, itemgetter("scope", "series", "unit")).items():
        phases = grouped(group, itemgetter("phase"))
        steady, whole = phases.get("steady", []), phases.get("trial", [])
        sides = [{row["trial_id"] for row in steady} & side for side in (base, now)]
        rows = steady if all(sides) or not whole else whole
        signals.append(
            Signal(
                scope=scope,
                series=series,
                unit=unit,
                kind=rows[0]["kind"],
                phase=rows[0]["phase"],
                rank=rows[0]["rank_id"],
                base=[_reading(row) for row in rows if row["trial_id"] in base],
                now=[_reading(row) for row in rows if row["trial_id"] in now],
            )
        )
    return signals


def _reading(row: Row) -> SeriesReading:
    return SeriesReading(
        trial_id=row["trial_id"],
        node=row["node_name"] or "",
        avg=row["avg"],
        low=row["min"],
        peak=row["max"],
        growth=row["growth"],
    )


def _members(parts: Iterable[Row], facts: Mapping[str, Row], base: set[str], now: set[str]) -> list[MemberNumber]:
    """Return numbers of each rank, shard, or node, recorded with a window or scope such as `rank:3`."""
    trials = base | now
    members: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in parts:
        match = _PART.fullmatch(row["window"] or row["scope"])
        if match and row["trial_id"] in trials:
            members.setdefault((match[1], match[2], row["metric"], row["stat"]), []).append(row)
    return [
        MemberNumber(
            kind=kind,
            name=name if kind == "node" else f"{kind} {name}",
            metric=name_of(metric, stat),
            unit=rows[0]["unit"],
            direction=rows[0]["direction"],
            base=[_of_member(row, facts) for row in rows if row["trial_id"] in base],
            now=[_of_member(row, facts) for row in rows if row["trial_id"] in now],
        )
        for (kind, name, metric, stat), rows in members.items()
    ]


def _of_member(row: Row, facts: Mapping[str, Row]) -> SeriesReading:
    return SeriesReading(trial_id=row["trial_id"], node=facts[row["trial_id"]]["host"] or "", avg=row["value"])


def _hosts(rows: Sequence[PointRow], facts: Mapping[str, Row], values: Values) -> list[MemberNumber]:
    """Return the point's own numbers by the host that ran the trial; empty for fewer than three hosts."""
    if len({facts[trial]["host"] for row in rows for trial in row.trials_b}) < _FEWEST_PEERS:
        return []
    members = []
    for row in rows:
        if row.direction not in ("higher", "lower"):
            continue
        readings = [
            [SeriesReading(trial_id=t, node=facts[t]["host"], avg=values[t, row.metric, row.stat]) for t in trials]
            for trials in (row.trials_a, row.trials_b)
        ]
        base, now = (grouped(side, lambda reading: reading.node) for side in readings)
        about: dict[str, Any] = {"kind": "node", "metric": row.name, "unit": row.unit, "direction": row.direction}
        members += [MemberNumber(name=host, **about, base=base.get(host, []), now=own) for host, own in now.items()]
    return members


def _wait(facts: Mapping[str, Row], base: set[str], now: set[str]) -> ComparedNumber | None:
    """Return the time between submission and start, with its uncorrected p-value; None if it is unknown."""
    sides = [
        [row["queue_s"] for trial in sorted(side) if (row := facts[trial])["queue_s"] is not None]
        for side in (base, now)
    ]
    if min(map(len, sides)) < 2:
        return None
    compared = compare(*sides, direction="lower", seed=SEED)
    return _number(compared, dict(zip(_NAME, ("queue_s", "value", "s", "lower"), strict=True)), compared.p_value)
