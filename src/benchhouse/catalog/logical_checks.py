"""What can be wrong with a logical benchmark by itself, told with file and line."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from benchhouse.catalog.domains import apart, holds, same
from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.schema.ado import Property, PropertyDomain
from benchhouse.schema.nexus import Binding, LogicalFile
from benchhouse.schema.quoting import quote

Box = Mapping[str, PropertyDomain | None]
"""A region of an experiment's inputs."""
DIRECTIONS = ("higher", "lower")
_TOP = "logicalBenchmark"


def check_file(file: LogicalFile, document: Document, stem: str) -> list[Problem]:
    """Every mistake that can be seen in the file alone; `stem` is its name without `.yaml`."""
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

    def say(self, loc: Loc, message: str, expected: str = "", suggestion: str = "") -> None:
        self.problems.append(self.document.problem(loc, message, expected, suggestion))

    def check_benchmark(self, stem: str) -> None:
        benchmark = self.file.logical_benchmark
        name = benchmark.benchmark_identifier
        if name != stem:
            self.say(
                (_TOP, "benchmarkIdentifier"), f"{quote(name)} stands in {stem}.yaml", f"the file's name, {quote(stem)}"
            )
        self._once([item.identifier for item in benchmark.properties], (_TOP, "properties"), "the property")
        self._once(benchmark.metrics, (_TOP, "metrics"), "the metric")
        for index, item in enumerate(benchmark.properties):
            if item.property_domain:
                self._check_domain(item.property_domain, (_TOP, "properties", index, "propertyDomain"))
        self._check_directions((benchmark.metadata or {}).get("directions", {}))
        if not self.file.bindings:
            self.say((), "no binding: no experiment answers it", "bindings: [...], at least one")

    def check_binding(self, binding: Binding, at: Loc) -> None:
        benchmark = self.file.logical_benchmark
        name = binding.benchmark_identifier
        if name != benchmark.benchmark_identifier:
            expected = quote(benchmark.benchmark_identifier)
            self.say((*at, "benchmarkIdentifier"), f"a binding of {quote(name)}, in another's file", expected)
        filters = [item.property.identifier for item in binding.static_filters]
        self._once(filters, (*at, "staticFilters"), "the filter of")
        self._check_properties(binding, (*at, "propertyMapping"))
        self._once([item.benchmark.identifier for item in binding.metric_mapping], (*at, "metricMapping"), "the metric")
        for index, item in enumerate(binding.metric_mapping):
            self._known(item.benchmark.identifier, benchmark.metrics, "metric", (*at, "metricMapping", index))

    def check_overlap(self) -> None:
        """A result that two bindings take would count twice."""
        for (first, a), (second, b) in combinations(enumerate(self.file.bindings), 2):
            if _same_experiment(a, b) and _shared_metrics(a, b, self.file) and not _never_both(a, b):
                message = f"takes results that bindings[{first}] takes too, and each would count twice"
                expected = "static filters or predicates that tell the two apart, or other metrics"
                self.say(("bindings", second, "experiment"), message, expected)

    def _check_properties(self, binding: Binding, at: Loc) -> None:
        taken: dict[str, str] = {}
        for index, item in enumerate(binding.property_mapping):
            here = (*at, index)
            direct, region = item.benchmark and item.experiment, item.categorical_value and item.predicate is not None
            parts = (item.benchmark, item.experiment, item.categorical_value, item.predicate)
            if bool(direct) == bool(region) or sum(part is not None for part in parts) != 2:
                expected = "{benchmark, experiment}, or {categoricalValue, predicate}"
                self.say(here, "this maps nothing, or two things at once", expected)
                continue
            if item.benchmark:
                name, kind = item.benchmark.identifier, "an input"
                self._property(name, (*here, "benchmark", "identifier"))
            else:
                assert item.categorical_value and item.predicate is not None
                name, kind = item.categorical_value.property.identifier, "regions"
                self._check_region(name, item.categorical_value.value, item.predicate, binding, here)
            if taken.setdefault(name, kind) != kind or (kind == "an input" and self._count(binding, name) > 1):
                self.say(here, f"the property {quote(name)} is mapped twice")
        self._check_categories(binding, at)

    def _check_region(self, name: str, value: Any, predicate: list[Property], binding: Binding, at: Loc) -> None:
        known = self._property(name, (*at, "categoricalValue", "property", "identifier"))
        if known and not holds(known.property_domain, value):
            values = known.property_domain.values if known.property_domain else None
            expected = f"one of {', '.join(map(str, values))}" if values else "a value of its domain"
            meant = did_you_mean(str(value), [str(item) for item in values or []]) or ""
            message = f"{quote(str(value))} is no value of {quote(name)}"
            self.say((*at, "categoricalValue", "value"), message, expected, meant)
        self._once([part.identifier for part in predicate], (*at, "predicate"), "the input")
        fixed = {item.property.identifier: item.value for item in binding.static_filters}
        for index, part in enumerate(predicate):
            here = (*at, "predicate", index)
            if part.property_domain is None:
                self.say(here, f"nothing is said of {quote(part.identifier)}", "propertyDomain: {values: [...]}")
                continue
            self._check_domain(part.property_domain, (*here, "propertyDomain"))
            if part.identifier in fixed and not holds(part.property_domain, fixed[part.identifier]):
                message = f"can't be: a static filter fixes {quote(part.identifier)} to {fixed[part.identifier]!r}"
                self.say((*here, "propertyDomain"), message, "a domain that holds it")

    def _check_categories(self, binding: Binding, at: Loc) -> None:
        """A point that lies in the regions of two values of one property would be both."""
        regions = [(index, item) for index, item in enumerate(binding.property_mapping) if item.categorical_value]
        for (first, a), (second, b) in combinations(regions, 2):
            assert a.categorical_value and b.categorical_value
            if a.categorical_value.property != b.categorical_value.property:
                continue
            if same(a.categorical_value.value, b.categorical_value.value):
                continue  # two regions of one value
            if not _boxes_apart(_box(a.predicate or []), _box(b.predicate or [])):
                name, value = a.categorical_value.property.identifier, a.categorical_value.value
                message = f"overlaps propertyMapping[{first}]: a point could be {quote(name)} {value!r} too"
                self.say((*at, second, "predicate"), message, "regions that share no point")

    def _check_domain(self, domain: PropertyDomain, at: Loc) -> None:
        if domain.values is not None and not domain.values:
            self.say((*at, "values"), "no value can be in this domain", "at least one value")
        if domain.domain_range and domain.domain_range[0] >= domain.domain_range[1]:
            low, high = domain.domain_range
            message = f"no value is at least {low:g} and below {high:g}"
            self.say((*at, "domainRange"), message, "[FROM, TO], from up to but without TO")
        if domain.interval is not None and domain.values is not None:
            self.say((*at, "interval"), "values have no interval", "either of the two")
        if domain.variable_type == "CATEGORICAL_VARIABLE_TYPE" and domain.values is None:
            self.say(at, "a categorical domain without values", "values: [...]")
        if domain.variable_type is None and domain.values is None and domain.domain_range is None:
            self.say(at, "this domain says nothing", "values: [...], or domainRange: [FROM, TO]")

    def _check_directions(self, said: Any) -> None:
        at = (_TOP, "metadata", "directions")
        if not isinstance(said, dict):
            self.say(at, "directions are a mapping", "METRIC: higher, or METRIC: lower")
            return
        for name, direction in said.items():
            self._known(str(name), self.file.logical_benchmark.metrics, "metric", (*at, name))
            if direction not in DIRECTIONS:
                meant = did_you_mean(str(direction), DIRECTIONS) or ""
                self.say((*at, name), f"{quote(str(direction))} is no direction", "one of higher, lower", meant)

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
            self.say(at, message, expected, did_you_mean(name, names) or "")

    def _once(self, names: list[str], at: Loc, what: str) -> None:
        for index, name in enumerate(names):
            if name in names[:index]:
                self.say((*at, index), f"{what} {quote(name)} is given twice")

    @staticmethod
    def _count(binding: Binding, name: str) -> int:
        return sum(
            item.benchmark is not None and item.benchmark.identifier == name for item in binding.property_mapping
        )


def _same_experiment(a: Binding, b: Binding) -> bool:
    one, other = a.experiment, b.experiment
    versions = {item.experiment_version.partition(".")[0] for item in (one, other)}
    named = (one.actuator_identifier, one.experiment_identifier) == (
        other.actuator_identifier,
        other.experiment_identifier,
    )
    return named and (len(versions) == 1 or "" in versions)


def _shared_metrics(a: Binding, b: Binding, file: LogicalFile) -> bool:
    """Whether both answer one metric; one that maps none answers all."""
    every = set(file.logical_benchmark.metrics)
    one, other = ({item.benchmark.identifier for item in side.metric_mapping} or every for side in (a, b))
    return bool(one & other)


def _never_both(a: Binding, b: Binding) -> bool:
    """Whether no point can be taken by both."""
    return any(
        all(_boxes_apart(one, other) for one in mine for other in theirs)
        for mine in _alternatives(a)
        for theirs in _alternatives(b)
    )


def _alternatives(binding: Binding) -> Iterator[list[Box]]:
    """What a point must satisfy to be taken: of each list, one region."""
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
