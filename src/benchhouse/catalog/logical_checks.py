"""Find mistakes in a logical benchmark, alone or together with the experiments of its bindings, with their places."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from benchhouse.catalog.ado import metric_name
from benchhouse.catalog.domains import apart, holds, same
from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.schema.ado import OURS, Property, PropertyDomain
from benchhouse.schema.nexus import Binding, LogicalFile
from benchhouse.schema.quoting import quote

Box = Mapping[str, PropertyDomain | None]
"""A region of an experiment's inputs."""
DIRECTIONS = ("higher", "lower")
_TOP = "logicalBenchmark"


def check_file(file: LogicalFile, document: Document, stem: str) -> list[Problem]:
    """Return every mistake that is visible in the file alone; `stem` is its name without `.yaml`."""
    checks = _FileChecks(file, document)
    checks.check_benchmark(stem)
    for index, binding in enumerate(file.bindings):
        checks.check_binding(binding, ("bindings", index))
    checks.check_overlap()
    return checks.problems


@dataclass
class _FileChecks:
    file: LogicalFile
    document: Document
    problems: list[Problem] = field(default_factory=list)

    def _add(self, loc: Loc, message: str, expected: str = "", suggestion: str = "") -> None:
        self.problems.append(self.document.problem(loc, message, expected, suggestion))

    def check_benchmark(self, stem: str) -> None:
        benchmark = self.file.logical_benchmark
        name = benchmark.benchmark_identifier
        if name != stem:
            expected = f"the file's name, {quote(stem)}"
            self._add((_TOP, "benchmarkIdentifier"), f"{quote(name)} stands in {stem}.yaml", expected)
        self._once([item.identifier for item in benchmark.properties], (_TOP, "properties"), "the property")
        self._once(benchmark.metrics, (_TOP, "metrics"), "the metric")
        for index, item in enumerate(benchmark.properties):
            if item.property_domain:
                self._check_domain(item.property_domain, (_TOP, "properties", index, "propertyDomain"))
        self._check_directions((benchmark.metadata or {}).get("directions", {}))
        if not self.file.bindings:
            self._add((), "no binding: no experiment answers it", "bindings: [...], at least one")

    def check_binding(self, binding: Binding, at: Loc) -> None:
        benchmark = self.file.logical_benchmark
        name = binding.benchmark_identifier
        if name != benchmark.benchmark_identifier:
            expected = quote(benchmark.benchmark_identifier)
            self._add((*at, "benchmarkIdentifier"), f"a binding of {quote(name)}, in another's file", expected)
        filters = [item.property.identifier for item in binding.static_filters]
        self._once(filters, (*at, "staticFilters"), "the filter of")
        self._check_properties(binding, (*at, "propertyMapping"))
        self._once([item.benchmark.identifier for item in binding.metric_mapping], (*at, "metricMapping"), "the metric")
        for index, item in enumerate(binding.metric_mapping):
            self._known(item.benchmark.identifier, benchmark.metrics, "metric", (*at, "metricMapping", index))

    def check_overlap(self) -> None:
        """Check that no two bindings take the same result, which would then count twice."""
        for (first, a), (second, b) in combinations(enumerate(self.file.bindings), 2):
            if _same_experiment(a, b) and _shared_metrics(a, b, self.file) and not _never_both(a, b):
                message = f"takes results that bindings[{first}] takes too, and each would count twice"
                expected = "static filters or predicates that tell the two apart, or other metrics"
                self._add(("bindings", second, "experiment"), message, expected)

    def _check_properties(self, binding: Binding, at: Loc) -> None:
        taken: dict[str, str] = {}
        direct = [item.benchmark.identifier for item in binding.property_mapping if item.benchmark]
        for index, item in enumerate(binding.property_mapping):
            here = (*at, index)
            parts = [item.benchmark, item.experiment, item.categorical_value, item.predicate]
            given = [part is not None for part in parts]
            if given not in ([True, True, False, False], [False, False, True, True]):
                expected = "{benchmark, experiment}, or {categoricalValue, predicate}"
                self._add(here, "this maps nothing, or two things at once", expected)
                continue
            if item.benchmark:
                name, kind = item.benchmark.identifier, "an input"
                self._property(name, (*here, "benchmark", "identifier"))
            else:
                assert item.categorical_value and item.predicate is not None
                name, kind = item.categorical_value.property.identifier, "regions"
                self._check_region(name, item.categorical_value.value, item.predicate, binding, here)
            if taken.setdefault(name, kind) != kind or (kind == "an input" and direct.count(name) > 1):
                self._add(here, f"the property {quote(name)} is mapped twice")
        self._check_categories(binding, at)

    def _check_region(self, name: str, value: Any, predicate: list[Property], binding: Binding, at: Loc) -> None:
        known = self._property(name, (*at, "categoricalValue", "property", "identifier"))
        if known and not holds(known.property_domain, value):
            values = known.property_domain.values if known.property_domain else None
            expected = f"one of {', '.join(map(str, values))}" if values else "a value of its domain"
            meant = did_you_mean(str(value), [str(item) for item in values or []]) or ""
            message = f"{quote(str(value))} is no value of {quote(name)}"
            self._add((*at, "categoricalValue", "value"), message, expected, meant)
        self._once([part.identifier for part in predicate], (*at, "predicate"), "the input")
        fixed = {item.property.identifier: item.value for item in binding.static_filters}
        for index, part in enumerate(predicate):
            here = (*at, "predicate", index)
            if part.property_domain is None:
                self._add(here, f"nothing is said of {quote(part.identifier)}", "propertyDomain: {values: [...]}")
                continue
            self._check_domain(part.property_domain, (*here, "propertyDomain"))
            if part.identifier in fixed and not holds(part.property_domain, fixed[part.identifier]):
                message = f"can't be: a static filter fixes {quote(part.identifier)} to {fixed[part.identifier]!r}"
                self._add((*here, "propertyDomain"), message, "a domain that holds it")

    def _check_categories(self, binding: Binding, at: Loc) -> None:
        """Check that no point is in the regions of two values of one property."""
        regions = [(index, item) for index, item in enumerate(binding.property_mapping) if item.categorical_value]
        for (first, a), (second, b) in combinations(regions, 2):
            assert a.categorical_value and b.categorical_value
            if a.categorical_value.property != b.categorical_value.property:
                continue
            # several regions of one value may overlap
            same_value = same(a.categorical_value.value, b.categorical_value.value)
            if not same_value and not _boxes_apart(_box(a.predicate or []), _box(b.predicate or [])):
                name, value = a.categorical_value.property.identifier, a.categorical_value.value
                message = f"overlaps propertyMapping[{first}]: a point could be {quote(name)} {value!r} too"
                self._add((*at, second, "predicate"), message, "regions that share no point")

    def _check_domain(self, domain: PropertyDomain, at: Loc) -> None:
        if domain.values is not None and not domain.values:
            self._add((*at, "values"), "no value can be in this domain", "at least one value")
        if domain.domain_range and domain.domain_range[0] >= domain.domain_range[1]:
            low, high = domain.domain_range
            message = f"no value is at least {low:g} and below {high:g}"
            self._add((*at, "domainRange"), message, "[FROM, TO], from up to but without TO")
        if domain.interval is not None and domain.values is not None:
            self._add((*at, "interval"), "values have no interval", "either of the two")
        if domain.variable_type == "CATEGORICAL_VARIABLE_TYPE" and domain.values is None:
            self._add(at, "a categorical domain without values", "values: [...]")
        if domain.variable_type is None and domain.values is None and domain.domain_range is None:
            self._add(at, "this domain says nothing", "values: [...], or domainRange: [FROM, TO]")

    def _check_directions(self, directions: Any) -> None:
        at = (_TOP, "metadata", "directions")
        if not isinstance(directions, dict):
            self._add(at, "directions are a mapping", "METRIC: higher, or METRIC: lower")
            return
        for name, direction in directions.items():
            self._known(str(name), self.file.logical_benchmark.metrics, "metric", (*at, name))
            if direction not in DIRECTIONS:
                meant = did_you_mean(str(direction), DIRECTIONS) or ""
                self._add((*at, name), f"{quote(str(direction))} is no direction", "one of higher, lower", meant)

    def _property(self, name: str, at: Loc) -> Property | None:
        known = {item.identifier: item for item in self.file.logical_benchmark.properties}
        self._known(name, known, "property", at)
        return known.get(name)

    def _known(self, name: str, names: Iterable[str], noun: str, at: Loc) -> None:
        names = list(names)
        if name not in names:
            plural = "properties" if noun == "property" else f"{noun}s"
            expected = f"one of {', '.join(names)}" if names else f"no {noun}: the benchmark has no {plural}"
            message = f"the benchmark has no {noun} {quote(name)}"
            self._add(at, message, expected, did_you_mean(name, names) or "")

    def _once(self, names: list[str], at: Loc, what: str) -> None:
        for index, name in enumerate(names):
            if name in names[:index]:
                self._add((*at, index), f"{what} {quote(name)} is given twice")


def _same_experiment(a: Binding, b: Binding) -> bool:
    versions = {item.experiment.experiment_version.partition(".")[0] for item in (a, b)}
    return a.experiment.listed_name == b.experiment.listed_name and (len(versions) == 1 or "" in versions)


def _shared_metrics(a: Binding, b: Binding, file: LogicalFile) -> bool:
    """Return whether both answer one metric; a binding without mapped metrics answers all."""
    every = set(file.logical_benchmark.metrics)
    mine, theirs = ({item.benchmark.identifier for item in side.metric_mapping} or every for side in (a, b))
    return bool(mine & theirs)


def _never_both(a: Binding, b: Binding) -> bool:
    return any(
        all(_boxes_apart(box, other) for box in mine for other in theirs)
        for mine in _alternatives(a)
        for theirs in _alternatives(b)
    )


def _alternatives(binding: Binding) -> Iterator[list[Box]]:
    """Yield what a point must satisfy to be taken: one region of each list."""
    yield [{item.property.identifier: PropertyDomain(values=[item.value]) for item in binding.static_filters}]
    regions: dict[str, list[Box]] = {}
    for item in binding.property_mapping:
        if item.categorical_value:
            regions.setdefault(item.categorical_value.property.identifier, []).append(_box(item.predicate or []))
    yield from regions.values()


def _box(predicate: Iterable[Property]) -> Box:
    return {item.identifier: item.property_domain for item in predicate}


def _boxes_apart(a: Box, b: Box) -> bool:
    return any(apart(a[name], b[name]) for name in a.keys() & b.keys())


@dataclass(frozen=True)
class MetricFacts:
    """The declaration of a metric by an experiment."""

    unit: str
    direction: str | None


@dataclass(frozen=True)
class Facts:
    """The known facts of an installed experiment; None if it leaves them open."""

    inputs: frozenset[str] | None
    metrics: Mapping[str, MetricFacts] | None


STATS = ("value", "mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max", "n")


def split_stat(identifier: str, metrics: Iterable[str]) -> tuple[str, str]:
    """Return the metric and statistic of `ttft.p99`. Without a statistic, or for a metric of that name, it is empty."""
    if identifier not in metrics:
        for stat in sorted(STATS, key=len, reverse=True):
            if identifier.endswith(f".{stat}"):
                return identifier.removesuffix(f".{stat}"), stat
    return identifier, ""


def check_experiments(
    file: LogicalFile, document: Document, facts_of: Callable[[Binding], Facts | str], only: Binding | None = None
) -> list[Problem]:
    """Return what does not fit the bound experiments; one that is not installed is a problem too.

    `facts_of` returns the facts of an experiment, or why there are none. `only` restricts the check to one binding,
    which runs without the others; their agreement is then not checked.
    """
    problems: list[Problem] = []
    measured: dict[str, dict[str, MetricFacts]] = {}
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
        problems += _check_metrics(file, binding, facts, document, at, measured)
    if only is None:
        problems += _check_agreement(file, document, measured, complete=complete)
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
    """Return whether the name, or the mapping that contains it, is an input; `target.*` stands for any of a target."""
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
    measured: dict[str, dict[str, MetricFacts]],
) -> Iterator[Problem]:
    """Check that mapped metrics exist, and add existing ones to `measured`, by metric and experiment."""
    if facts.metrics is None:
        return
    ours = binding.experiment.actuator_identifier == OURS
    mapped = {item.benchmark.identifier: item.experiment.identifier for item in binding.metric_mapping}
    mapped = mapped if ours else {name: metric_name(output) for name, output in mapped.items()}
    answered = False
    for name in file.logical_benchmark.metrics:
        metric, _ = split_stat(mapped.get(name, name), facts.metrics)
        if metric in facts.metrics:
            answered = True
            measured.setdefault(name, {})[binding.experiment.experiment_identifier] = facts.metrics[metric]
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
    file: LogicalFile, document: Document, measured: Mapping[str, Mapping[str, MetricFacts]], *, complete: bool
) -> Iterator[Problem]:
    """Check that each metric has one unit and one direction; `complete` means that all experiments are known."""
    given = (file.logical_benchmark.metadata or {}).get("directions", {})
    for index, name in enumerate(file.logical_benchmark.metrics):
        at: Loc = ("logicalBenchmark", "metrics", index)
        by_experiment = measured.get(name, {})
        units = {facts.unit: experiment for experiment, facts in by_experiment.items()}
        if len(units) > 1:
            listed = ", ".join(f"{unit} of {experiment}" for unit, experiment in units.items())
            yield document.problem(at, f"{quote(name)} has two units: {listed}", "metrics of one unit")
        ways = {facts.direction for facts in by_experiment.values() if facts.direction}
        if len(ways) > 1 or (name in given and ways - {given[name]}):
            listed = ", ".join(f"{facts.direction} of {experiment}" for experiment, facts in by_experiment.items())
            yield document.problem(at, f"which way {quote(name)} improves is in dispute: {listed}", "one direction")
        elif not ways and name not in given and complete:
            expected = f"metadata: {{directions: {{{name}: lower}}}}, or higher, below logicalBenchmark"
            yield document.problem(at, f"{quote(name)} has no direction, so nothing can be ranked by it", expected)
