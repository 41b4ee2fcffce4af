"""In which order metrics are told: the experiment's own, as its author put what matters first."""

from collections.abc import Iterable

from pydantic import ValidationError

from benchhouse.evidence.folder import read_metrics
from benchhouse.schema.layout import TrialFolder


def declared_order(folders: Iterable[TrialFolder]) -> dict[str, int]:
    """The place of each metric in these sealed trials, the first folder leading; evidence that is gone says nothing."""
    order: dict[str, int] = {}
    for folder in folders:
        try:
            measurements = read_metrics(folder).benchhouse.measurements
        except (OSError, ValidationError):
            continue
        for item in measurements:
            order.setdefault(item.metric, len(order))
    return order
