"""In which order metrics are told: the experiment's own, as its author put what matters first."""

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from benchhouse.evidence.folder import read_metrics
from benchhouse.results.numbers import headline_stats
from benchhouse.schema.experiment import Role
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement


def declared_order(folders: Iterable[TrialFolder]) -> dict[str, int]:
    """The place of each metric in these sealed trials, the first folder leading; evidence that is gone says nothing."""
    order: dict[str, int] = {}
    for item in _measurements(folders):
        order.setdefault(item.metric, len(order))
    return order


def declared_primary(folders: Iterable[TrialFolder]) -> list[str]:
    """What the experiment says matters, as `metric.stat`, the first readable trial leading: of each primary metric its
    value or centre; where none is declared, of the first metric that has a direction."""
    for folder in folders:
        try:
            extras = read_metrics(folder).benchhouse
        except (OSError, ValidationError):
            continue
        rows = [row for row in extras.measurements if not row.window and row.scope == "trial" and row.direction]
        stats: dict[str, list[str]] = {}
        for row in rows:
            stats.setdefault(row.metric, []).append(row.stat)
        names = [name for name in extras.primary if name in stats] or list(stats)[:1]
        return [f"{name}.{next(iter(headline_stats(stats[name])), stats[name][0])}" for name in names]
    return []


def declared_roles(folders: Iterable[TrialFolder]) -> dict[Role, str]:
    """The metric that fills each role in these sealed trials, the first folder leading."""
    roles: dict[Role, str] = {}
    for item in _measurements(folders):
        if item.role:
            roles.setdefault(item.role, item.metric)
    return roles


def _measurements(folders: Iterable[TrialFolder]) -> Iterator[Measurement]:
    for folder in folders:
        try:
            yield from read_metrics(folder).benchhouse.measurements
        except (OSError, ValidationError):
            continue
