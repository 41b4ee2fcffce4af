"""Numbers that are not compared because their definitions differ: shown side by side, with the reason."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchhouse.results.matching import Matched, MatchPoint
from benchhouse.results.numbers import HEADLINE_STATS, quantity
from benchhouse.schema.imported import OWN

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Incomparable:
    """Metrics of one point that correspond on both sides but are not the same; `because` is the difference."""

    point: str
    metric_a: str
    metric_b: str
    stats_a: dict[str, float]
    stats_b: dict[str, float]
    unit_a: str
    unit_b: str
    because: str

    @property
    def text(self) -> str:
        a, b = (
            f"{metric} " + ", ".join(f"{stat} {quantity(value, unit)}".removeprefix("value ") for stat, value in stats)
            for metric, stats, unit in (
                (self.metric_a, self.stats_a.items(), self.unit_a),
                (self.metric_b, self.stats_b.items(), self.unit_b),
            )
        )
        return f"side by side, not compared: {self.point}: {a} | {b}. {self.because}"


def definitions(trials: Iterable[Row]) -> dict[str, str]:
    """Return how other tools define the metrics of these trials, by metric; trials that ran here have no entry."""
    defined: dict[str, str] = {}
    for row in trials:
        custom = row.get("custom") or ""
        if '"imported"' in custom:
            defined |= json.loads(custom).get("imported", {}).get("definitions", {})
    return defined


def list_incomparable(pairs: Sequence[Matched], defined: Mapping[str, str]) -> list[Incomparable]:
    """List pairs such as `wall_ms@hyperfine` and our own `wall_ms`, or that of another tool."""
    rows: list[Incomparable] = []
    for a, b in pairs if defined else ():
        of_a, of_b = _by_metric(a), _by_metric(b)
        alike = [
            (x, y) for x in of_a for y in of_b
            if x != y and x.partition(OWN)[0] == y.partition(OWN)[0] and {x, y} & defined.keys()
        ]  # fmt: skip
        label = a.label if a.label == b.label else f"{a.label} → {b.label}"
        for x, y in alike:
            because = "; ".join(f"{name}: {defined[name]}" for name in (x, y) if name in defined)
            (stats_a, unit_a), (stats_b, unit_b) = of_a[x], of_b[y]
            rows.append(Incomparable(label, x, y, stats_a, stats_b, unit_a, unit_b, because))
    return rows


def _by_metric(point: MatchPoint) -> dict[str, tuple[dict[str, float], str]]:
    metrics: dict[str, tuple[dict[str, float], str]] = {}
    for (metric, stat), row in point.rows.items():
        if stat in HEADLINE_STATS:
            metrics.setdefault(metric, ({}, row["unit"]))[0][stat] = row["mean"]
    return metrics
