"""OpenMetrics 1.0 text with the time of each point.

`promtool tsdb create-blocks-from openmetrics` imports it into Prometheus as history.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from benchhouse.schema.exported import DocumentExporter, ExportedDocument, ExportedRun, ExportedStatistic
from benchhouse.schema.hot_metrics import result_name

_LABELS = ("run_id", "scenario", "point", "instance")


@dataclass(eq=False)  # the registry uses it as a key
class _Families(Collector):
    """All statistics of a run by Prometheus names; those whose name is taken are in `left_out`."""

    run: ExportedRun

    def __post_init__(self) -> None:
        self.left_out: list[str] = []
        self._families: dict[str, GaugeMetricFamily] = {}
        self._owners: dict[str, str] = {}

    def collect(self) -> Iterator[Metric]:
        self._families, self._owners, self.left_out = {}, {}, []
        run = self.run
        about = InfoMetricFamily("benchhouse_run", "The run that the numbers are of.")
        facts = {
            "run_id": run.run_id, "scenario": run.scenario, "experiment": run.experiment,
            "experiment_version": run.experiment_version, "executor": run.executor, "git_commit": run.git_commit,
        }  # fmt: skip
        about.add_metric([], facts, timestamp=max(point.ended.timestamp() for point in run.points))
        yield about
        for point in run.points:
            labels = (run.run_id, run.scenario, point.name, point.instance_digest)
            for figure in point.figures:
                self._add(figure, labels, point.ended.timestamp())
        yield from self._families.values()

    def _add(self, figure: ExportedStatistic, labels: tuple[str, ...], at_s: float) -> None:
        """Add the mean, the ends of its interval, and the number of trials."""
        name, factor, unit = result_name(figure.metric, figure.stat, figure.unit)
        stem, end = (name.removesuffix(f"_{unit}"), f"_{unit}") if unit else (name, "")
        low, high = figure.interval or (None, None)
        better = f"; {figure.direction} is better" if figure.direction else ""
        whole = f"{figure.metric}.{figure.stat}"
        told = f"{figure.name}, mean over the trials of a point{better}. bench trace RUN_ID:instance=INSTANCE:{whole}"
        parts = [
            (name, unit, figure.mean * factor, told),
            (f"{stem}_trials", "", float(figure.n), f"Trials behind {figure.name}."),
            (f"{stem}_ci_low{end}", unit, low and low * factor, f"Lower end of the 95% interval of {figure.name}."),
            (f"{stem}_ci_high{end}", unit, high and high * factor, f"Upper end of the 95% interval of {figure.name}."),
        ]
        owner = f"{whole} in {figure.unit}"
        taken = [own for part, *_ in parts if (own := self._owners.setdefault(part, owner)) != owner]
        if taken:  # a_b and a.b are the same name there
            self.left_out.append(f"{owner}: in OpenMetrics it would be called as {taken[0]} is")
            return
        for part, of, value, text in parts:
            family = self._families.setdefault(part, GaugeMetricFamily(part, text, labels=_LABELS, unit=of))
            if value is not None:
                family.add_metric(labels, value, timestamp=at_s)


def render(run: ExportedRun) -> ExportedDocument:
    families, registry = _Families(run), CollectorRegistry()
    registry.register(families)
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    return ExportedDocument(text, tuple(dict.fromkeys(families.left_out)))


OPENMETRICS = DocumentExporter("OpenMetrics 1.0 text with times, for Prometheus", render)
