"""A metric as people type it: `qps`, or with one statistic of it: `ttft.mean`, `latency.p99`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from benchhouse.documents.problems import did_you_mean
from benchhouse.results.numbers import HEADLINE_STATS
from benchhouse.schema.errors import BenchError
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse


@dataclass(frozen=True)
class MetricName:
    """A metric, and the statistic that was asked for; None: those that tell it best."""

    metric: str
    stat: str | None = None

    def __str__(self) -> str:
        return self.metric if self.stat is None else f"{self.metric}.{self.stat}"


def parse_metrics(texts: Iterable[str], known: Mapping[str, Collection[str]]) -> list[MetricName]:
    """`known` are the statistics of each metric; a metric that has a dot in its own name comes first."""
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
    """None where there is no such metric, or it has no such statistic."""
    if text in known:
        return MetricName(text)
    for at in range(len(text) - 1, 0, -1):
        metric, stat = text[:at], text[at + 1 :]
        if text[at] in ". " and stat in known.get(metric, ()):
            return MetricName(metric, stat)
    return None


def headline_columns(warehouse: Warehouse, run: str) -> list[tuple[str, str]]:
    """Metrics and statistics that a comparison may show by default: reading all of them takes twice as long."""
    rows = queries.columns(warehouse, [run]).dicts()
    return [(row["metric"], row["stat"]) for row in rows if row["stat"] in HEADLINE_STATS]
