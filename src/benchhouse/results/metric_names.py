"""Metrics as people type them (`qps`, or one statistic: `ttft.mean`), and in the order of their experiment."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from pydantic import ValidationError

from benchhouse.documents.problems import did_you_mean
from benchhouse.evidence.folder import read_metrics
from benchhouse.results.numbers import HEADLINE_STATS, headline_stats
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Role
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse


@dataclass(frozen=True)
class MetricName:
    """A metric, and the requested statistic; None means those that describe the metric best."""

    metric: str
    stat: str | None = None

    def __str__(self) -> str:
        return self.metric if self.stat is None else f"{self.metric}.{self.stat}"


def parse_metrics(texts: Iterable[str], known: Mapping[str, Collection[str]]) -> list[MetricName]:
    """Parse metrics; `known` has the statistics of each metric. A metric with a dot in its own name takes
    precedence.
    """
    names, missing = list[MetricName](), list[str]()
    for text in texts:
        name = parse_metric(text, known)
        if name is None:
            missing.append(text)
        elif name not in names:
            names.append(name)
    if missing:
        guess = did_you_mean(missing[0].partition(".")[0], known)
        meant = f"did you mean '{guess}'?" if guess and guess not in missing else ""
        stats = known.get(missing[0].rpartition(".")[0])
        if stats:
            meant = f"it has {', '.join(sorted(stats))}"
        raise BenchError(f"no metric {', '.join(missing)} here; there are {', '.join(sorted(known)) or 'none'}", meant)
    return names


def parse_metric(text: str, known: Mapping[str, Collection[str]]) -> MetricName | None:
    """Parse one metric; None if there is no such metric, or it has no such statistic."""
    if text in known:
        return MetricName(text)
    for at in range(len(text) - 1, 0, -1):
        metric, stat = text[:at], text[at + 1 :]
        if text[at] in ". " and stat in known.get(metric, ()):
            return MetricName(metric, stat)
    return None


def columns_of(warehouse: Warehouse, runs: Sequence[str], metrics: Sequence[str]) -> list[tuple[str, str]] | None:
    """Return metrics and statistics that a comparison of `metrics` may show, by default the headline statistics of all.
    Reading all columns takes several times as long. None (all) if a name matches no metric of any run.
    """
    present = [(row["metric"], row["stat"]) for row in queries.columns(warehouse, runs).dicts()]
    if not metrics:
        return [column for column in present if column[1] in HEADLINE_STATS]
    known = {metric: [stat for _, stat in own] for metric, own in grouped(present, itemgetter(0)).items()}
    names = [parse_metric(text, known) for text in metrics]
    wanted = {name.metric for name in names if name}
    return None if None in names else [column for column in present if column[0] in wanted]


def declared_order(folders: Iterable[TrialFolder]) -> dict[str, int]:
    """Return the place of each metric in these sealed trials, the first folder first; missing evidence is skipped."""
    order: dict[str, int] = {}
    for item in _measurements(folders):
        order.setdefault(item.metric, len(order))
    return order


def declared_primary(folders: Iterable[TrialFolder]) -> list[str]:
    """Return what the experiment declares as primary, as `metric.stat`, from the first readable trial: the value or
    center of each primary metric; if none is declared, of the first metric with a direction.
    """
    for folder in folders:
        try:
            extras = read_metrics(folder).benchhouse
        except (OSError, ValidationError):
            continue
        rows = [row for row in extras.measurements if not row.window and row.scope == "trial" and row.direction]
        stats = {name: [row.stat for row in own] for name, own in grouped(rows, lambda row: row.metric).items()}
        names = [name for name in extras.primary if name in stats] or list(stats)[:1]
        return [f"{name}.{next(iter(headline_stats(stats[name])), stats[name][0])}" for name in names]
    return []


def declared_roles(folders: Iterable[TrialFolder]) -> dict[Role, str]:
    """Return the metric for each role in these sealed trials; the first folder takes precedence."""
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
