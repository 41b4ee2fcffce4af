"""Logical benchmarks: `benchmarks/<id>.yaml` of a nexus, each answered by several experiments through bindings.

Our own benchmark files may be in the same folder; files with `logicalBenchmark:` are logical benchmarks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.catalog.ado import metric_name
from benchhouse.catalog.domains import MISSING, holds, look_up, same
from benchhouse.catalog.logical_checks import check_file
from benchhouse.documents.document import Document
from benchhouse.documents.problems import ProblemsError, guess_hint
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.ado import OURS, Property
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.nexus import Binding, LogicalFile, is_logical

FOLDER = "benchmarks"
WHOLE_TARGET = "target"  # as `targetMapping`: the trial's target, by its name


@dataclass(frozen=True)
class Logical:
    """A logical benchmark and the file that defines it."""

    file: LogicalFile
    document: Document

    @property
    def name(self) -> str:
        return self.file.logical_benchmark.benchmark_identifier

    @property
    def properties(self) -> list[str]:
        return [item.identifier for item in self.file.logical_benchmark.properties]

    @property
    def metrics(self) -> list[str]:
        return self.file.logical_benchmark.metrics

    @property
    def directions(self) -> dict[str, str]:
        """The better direction of each metric, if the file states it: `metadata: {directions: {METRIC: lower}}`."""
        directions: dict[str, str] = (self.file.logical_benchmark.metadata or {}).get("directions", {})
        return directions


@dataclass(frozen=True)
class Unreadable:
    """A file that should hold a logical benchmark but does not."""

    path: str
    error: BenchError
    logical: Logical | None = None  # set if its structure is valid and only its content is not


@dataclass(frozen=True)
class LogicalResult:
    """The place of a bound experiment's result in the logical benchmark: its target and its properties."""

    target: str
    properties: tuple[Any, ...]  # in the order of the file


def read_logical(path: Path) -> Logical | Unreadable:
    """Read one file. Every mistake that is visible without the experiments is in `Unreadable`, with its place."""
    try:
        return _read(load_yaml(path), path.stem)
    except BenchError as error:
        return Unreadable(str(path), error)


def list_logical(*roots: Path) -> tuple[list[Logical], list[Unreadable]]:
    """Return the logical benchmarks below these folders, and the unreadable files separately."""
    good: list[Logical] = []
    broken: list[Unreadable] = []
    for root in dict.fromkeys(roots):
        for path in sorted((root / FOLDER).glob("*.yaml")):
            try:
                if not path.resolve().is_relative_to(root.resolve()):
                    raise BenchError(f"{path}: this link leads out of {root}", "copy the file there")
                document = load_yaml(path)
                read = _read(document, path.stem) if is_logical(document.data) else None
            except BenchError as error:
                read = Unreadable(str(path), error)
            if isinstance(read, Unreadable):
                broken.append(read)
            elif read:
                good.append(read)
    return good, broken


def find_logical(name: str, *roots: Path) -> Logical:
    good, broken = list_logical(*roots)
    if mine := next((item for item in broken if Path(item.path).stem == name), None):
        raise mine.error
    matches = [item for item in good if item.name == name]
    if len(matches) > 1:
        places = " and ".join(item.document.path for item in matches)
        raise BenchError(f"the logical benchmark '{name}' is defined twice: {places}", "rename one of them")
    if matches:
        return matches[0]
    hint = guess_hint(name, [item.name for item in good])
    folders = " or ".join(str(root / FOLDER) for root in dict.fromkeys(roots))
    there = f"there are: {', '.join(item.name for item in good)}" if good else f"there is none in {folders}"
    raise NotFoundError(f"no logical benchmark named '{name}'", f"{hint}{there}")


def fits_version(wanted: str, found: str) -> bool:
    """Return whether a result of version `found` answers a binding to `wanted`: in SemVer, only MAJOR must match."""
    if not wanted or wanted == found:
        return True
    majors = [version.partition(".")[0] for version in (wanted, found)]
    return majors[0] == majors[1] and majors[0].isdecimal()


def answer(
    logical: Logical, binding: Binding, target_name: str, target: Mapping[str, Any], parameters: Mapping[str, Any]
) -> LogicalResult | str | None:
    """Return the place of an instance of the bound experiment: None if a filter excludes it, or why it has none."""
    for fixed in binding.static_filters:
        if not same(look_up(fixed.property.identifier, target, parameters), fixed.value):
            return None
    name: Any = target_name
    if binding.target_mapping != WHOLE_TARGET:
        name = look_up(binding.target_mapping, target, parameters)
    if name is MISSING:
        return f"no input '{binding.target_mapping}', which is the target"
    values = []
    for wanted in logical.file.logical_benchmark.properties:
        value = _property(binding, wanted.identifier, target, parameters)
        if value is MISSING:
            return f"no value of '{wanted.identifier}'"
        if not holds(wanted.property_domain, value):
            return f"'{wanted.identifier}' is outside of its domain"
        values.append(value)
    return LogicalResult(str(name), tuple(values))


def mapped_input(binding: Binding, name: str) -> str:
    """Return the experiment's input for a property; without a mapping, it has the same name."""
    pairs = ((item.benchmark, item.experiment) for item in binding.property_mapping)
    return next((theirs.identifier for ours, theirs in pairs if ours and theirs and ours.identifier == name), name)


def mapped_metric(binding: Binding, name: str) -> str:
    """Return the experiment's metric for one of the benchmark; without a mapping, it has the same name."""
    mapped = {item.benchmark.identifier: item.experiment.identifier for item in reversed(binding.metric_mapping)}
    metric = mapped.get(name, name)
    return metric if binding.experiment.actuator_identifier == OURS else metric_name(metric)


def regions_of(binding: Binding, name: str) -> list[tuple[Any, list[Property]]]:
    """Return the values of a property that stand for regions of the experiment's inputs, each with its predicate."""
    return [
        (item.categorical_value.value, item.predicate or [])
        for item in binding.property_mapping
        if item.categorical_value and item.categorical_value.property.identifier == name
    ]


def _property(binding: Binding, name: str, target: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    regions = regions_of(binding, name)
    if not regions:
        return look_up(mapped_input(binding, name), target, parameters)
    for value, predicate in regions:
        inputs = [(part.property_domain, look_up(part.identifier, target, parameters)) for part in predicate]
        if all(item is not MISSING and holds(domain, item) for domain, item in inputs):
            return value
    return MISSING


def _read(document: Document, stem: str) -> Logical | Unreadable:
    file = validated(document, LogicalFile)
    logical = Logical(file, document)
    problems = check_file(file, document, stem)
    return Unreadable(document.path, ProblemsError(problems), logical) if problems else logical


def by_experiment(bindings: Iterable[Binding]) -> dict[str, list[Binding]]:
    """Group bindings by the name of their experiment here."""
    grouped: dict[str, list[Binding]] = {}
    for binding in bindings:
        grouped.setdefault(binding.experiment.listed_name, []).append(binding)
    return grouped
