"""What of a logical benchmark doesn't fit the experiments that its bindings name, told with file and line."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchhouse.catalog.ado import metric_name
from benchhouse.catalog.nexus import OURS
from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.schema.nexus import Binding, LogicalFile
from benchhouse.schema.quoting import quote


@dataclass(frozen=True)
class MetricFacts:
    """What an experiment says of a metric."""

    unit: str
    direction: str | None


@dataclass(frozen=True)
class Facts:
    """What is known of an installed experiment; None where it leaves that open."""

    inputs: frozenset[str] | None
    metrics: Mapping[str, MetricFacts] | None


STATS = ("value", "mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max", "n")


def split_stat(identifier: str, metrics: Iterable[str]) -> tuple[str, str]:
    """Metric and statistic of `ttft.p99`; no statistic, or a metric that is called so: its value, or its mean."""
    if identifier not in metrics:
        for stat in sorted(STATS, key=len, reverse=True):
            if identifier.endswith(f".{stat}"):
                return identifier.removesuffix(f".{stat}"), stat
    return identifier, ""


def check_experiments(
    file: LogicalFile, document: Document, facts_of: Callable[[Binding], Facts | str], only: Binding | None = None
) -> list[Problem]:
    """What doesn't fit the bound experiments; one that is not installed is a problem too.

    `facts_of` tells of an experiment, or why nothing can be told. `only` looks at one binding, which runs without the
    others: whether they agree is not asked then.
    """
    problems: list[Problem] = []
    told: dict[str, dict[str, MetricFacts]] = {}
    complete = True
    for index, binding in enumerate(file.bindings):
        if only not in (None, binding):
            continue
        facts, at = facts_of(binding), ("bindings", index)
        if isinstance(facts, str):
            complete = False
            problems.append(document.problem((*at, "experiment", "experimentIdentifier"), facts))
            continue
        problems += _check_inputs(binding, facts, document, at)
        problems += _check_metrics(file, binding, facts, document, at, told)
    if only is None:
        problems += _check_agreement(file, document, told, complete=complete)
    return problems


def _check_inputs(binding: Binding, facts: Facts, document: Document, at: Loc) -> Iterator[Problem]:
    if facts.inputs is None:
        return
    asked: list[tuple[str, Loc]] = [(binding.target_mapping, (*at, "targetMapping"))]
    for index, fixed in enumerate(binding.static_filters):
        asked.append((fixed.property.identifier, (*at, "staticFilters", index, "property", "identifier")))
    for index, item in enumerate(binding.property_mapping):
        here = (*at, "propertyMapping", index)
        if item.experiment:
            asked.append((item.experiment.identifier, (*here, "experiment", "identifier")))
        for number, part in enumerate(item.predicate or []):
            asked.append((part.identifier, (*here, "predicate", number, "identifier")))
    for name, loc in asked:
        if not _has_input(name, facts.inputs):
            message = f"{binding.experiment.experiment_identifier} has no input {quote(name)}"
            known = sorted(facts.inputs - {"target.*"})
            yield document.problem(loc, message, f"one of {', '.join(known)}", did_you_mean(name, known) or "")


def _has_input(name: str, inputs: frozenset[str]) -> bool:
    """Whether the name, or the mapping that it leads into, is an input; `target.*` stands for any of a target's."""
    if name.startswith("target."):
        return "target.*" in inputs or ".".join(name.split(".")[:2]) in inputs
    bare = name.removeprefix("workload.")
    return bare in inputs or bare.partition(".")[0] in inputs


def _check_metrics(
    file: LogicalFile,
    binding: Binding,
    facts: Facts,
    document: Document,
    at: Loc,
    told: dict[str, dict[str, MetricFacts]],
) -> Iterator[Problem]:
    """Mapped metrics exist; those that exist are put into `told`, by metric and experiment."""
    if facts.metrics is None:
        return
    ours = binding.experiment.actuator_identifier == OURS
    mapped = {item.benchmark.identifier: item.experiment.identifier for item in binding.metric_mapping}
    mapped = mapped if ours else {name: metric_name(found) for name, found in mapped.items()}
    answered = False
    for name in file.logical_benchmark.metrics:
        metric, _ = split_stat(mapped.get(name, name), facts.metrics)
        if metric in facts.metrics:
            answered = True
            told.setdefault(name, {})[binding.experiment.experiment_identifier] = facts.metrics[metric]
    for index, item in enumerate(binding.metric_mapping):
        metric, _ = split_stat(mapped[item.benchmark.identifier], facts.metrics)
        if metric not in facts.metrics:
            message = f"{binding.experiment.experiment_identifier} has no metric {quote(metric)}"
            expected = f"one of {', '.join(facts.metrics)}" if facts.metrics else "none: it declares no metrics"
            loc = (*at, "metricMapping", index, "experiment", "identifier")
            yield document.problem(loc, message, expected, did_you_mean(metric, facts.metrics) or "")
    if not answered and not binding.metric_mapping:
        message = f"{binding.experiment.experiment_identifier} answers none of the metrics"
        yield document.problem((*at, "experiment"), message, "metricMapping: [...]")


def _check_agreement(
    file: LogicalFile, document: Document, told: Mapping[str, Mapping[str, MetricFacts]], *, complete: bool
) -> Iterator[Problem]:
    """One unit and one direction a metric, whoever measures it; `complete` where every experiment could be asked."""
    said = (file.logical_benchmark.metadata or {}).get("directions", {})
    for index, name in enumerate(file.logical_benchmark.metrics):
        at: Loc = ("logicalBenchmark", "metrics", index)
        found = told.get(name, {})
        units = {facts.unit: experiment for experiment, facts in found.items()}
        if len(units) > 1:
            listed = ", ".join(f"{unit} of {experiment}" for unit, experiment in units.items())
            yield document.problem(at, f"{quote(name)} has two units: {listed}", "metrics of one unit")
        ways = {facts.direction for facts in found.values() if facts.direction}
        if len(ways) > 1 or (name in said and ways - {said[name]}):
            listed = ", ".join(f"{facts.direction} of {experiment}" for experiment, facts in found.items())
            yield document.problem(at, f"which way {quote(name)} improves is in dispute: {listed}", "one direction")
        elif not ways and name not in said and complete:
            expected = f"metadata: {{directions: {{{name}: lower}}}}, or higher, below logicalBenchmark"
            yield document.problem(at, f"{quote(name)} has no direction, so nothing can be ranked by it", expected)
