"""Convert an ado space (`space.yaml`, or an operation that names it) into scenarios, one per experiment.

Mistakes are reported at their place in the space's own file, because a scenario made here is a view of that file.
"""

import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, ProblemsError, all_or_problems
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.plan.scenario_file import ScenarioFile, described_experiments, read_scenario, space_body
from benchhouse.plan.space import PointSpace as Points
from benchhouse.plan.space import VaryingKeys
from benchhouse.schema.ado import (
    OURS,
    AdoOperation,
    AdoSpace,
    Property,
    PropertyDomain,
    SpaceExperiment,
    WalkParameters,
)
from benchhouse.schema.scenario import MAX_AXIS_VALUES, Benchmark

_REFERENCE = {
    "actuatorIdentifier": "actuatorIdentifier",
    "experimentIdentifier": "identifier",
    "experimentVersion": "version",
    "parameterization": "parameterization",
}
"""The keys of an experiment in a space, and the corresponding keys in a description of the experiment."""
_FROZEN = ("experiment", "version", "workload", "axes")  # the part of a space that a benchmark takes
Inputs = Callable[[str, str | None], Collection[str] | None]
"""A function that returns the inputs of the experiment with that name and version; None if they are not known."""


@dataclass(frozen=True)
class SpaceFile:
    """A space with the text it came from, and the parameters of the operation, if any."""

    space: AdoSpace
    document: Document
    name: str
    walk: WalkParameters | None = None


def read_space(document: Document) -> SpaceFile:
    """Return the space in `document`, or the one that its operation names. Raise ProblemsError with all mistakes."""
    if "operation" not in document.data:
        return _space_file(document)
    operation = validated(document, AdoOperation)
    problems = _not_ours(operation, document)
    beside = Path(document.path).parent
    path = beside / operation.spaces[0]
    if not path.resolve().is_relative_to(beside.resolve()) or not path.is_file():
        message = f"there is no file '{operation.spaces[0]}' beside this one"
        expected = "the file of the space, e.g. space.yaml: the spaces of ado's own store are not read"
        problems.append(document.problem(("spaces", 0), message, expected))
    if problems:
        raise ProblemsError(problems)
    space = _space_file(load_yaml(path), operation.operation.parameters)
    _check_number(space, document)
    return space


def _space_file(document: Document, walk: WalkParameters | None = None) -> SpaceFile:
    plain = _plain_space(document)
    return SpaceFile(validated(plain, AdoSpace), plain, space_name(Path(document.path)), walk)


def space_name(path: Path) -> str:
    """Return the name for results of a space: its folder if the file has a standard name, otherwise the file."""
    stem = path.absolute().parent.name if path.stem in ("space", "operation") else path.stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:100] or "space"


def scenarios(
    file: SpaceFile, environ: Mapping[str, str], inputs: Inputs = lambda name, version: None
) -> list[ScenarioFile]:
    """Return one scenario per experiment of the space, over the same points.

    If there are several experiments, each takes the properties that are its own inputs (`inputs`); a property that none
    of them takes stays and is reported as a mistake.
    """
    several = len(file.space.experiments) > 1
    named = [(item.listed_name, item.experiment_version or None) for item in file.space.experiments]
    known = [inputs(*name) for name in named] if several else [None]
    every = {key for keys in known if keys is not None for key in keys}

    def make(index: int, item: SpaceExperiment) -> ScenarioFile:
        own = known[index]
        foreign = every - set(own) if own is not None else set[str]()
        name = f"{file.name}.{_label(named, index)}"[:100] if several else file.name
        view = _SpaceView(file, index, name)
        view.fill(item, foreign)
        return read_scenario(view.document(), environ, made=view.text())

    return all_or_problems(partial(make, index, item) for index, item in enumerate(file.space.experiments))


def domain_values(domain: PropertyDomain) -> list[Any]:
    """Return the values in ado's way: a range excludes its upper end. Raise ValueError if they cannot be counted."""
    if domain.values is not None:
        if not domain.values:
            raise ValueError("it has no values")
        return domain.values
    if domain.variable_type == "BINARY_VARIABLE_TYPE":
        return [False, True]
    if domain.domain_range is None:
        raise ValueError("it does not say which values it takes")
    if domain.interval is None:
        raise ValueError("a continuous range has no points to run")
    low, high, step = (Decimal(str(number)) for number in (*domain.domain_range, domain.interval))
    count = math.ceil((high - low) / step)
    if count < 1:
        raise ValueError("a range goes upward, and its upper end is not part of it: it is empty")
    if count > MAX_AXIS_VALUES:
        raise ValueError(f"a range has at most {MAX_AXIS_VALUES:,} values")
    exact = [low + index * step for index in range(count)]
    return [int(value) if value == value.to_integral_value() else float(value) for value in exact]


@dataclass
class _SpaceView:
    """A scenario under construction: its data, and the place in the space's file of each part."""

    file: SpaceFile
    index: int
    name: str
    workload: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    places: dict[Loc, Loc] = field(default_factory=dict)
    named: dict[Loc, Loc] = field(default_factory=dict)  # values in the file that become keys of the scenario
    problems: list[Problem] = field(default_factory=list)
    head: dict[str, Any] = field(default_factory=dict)

    def fill(self, item: SpaceExperiment, foreign: Collection[str]) -> None:
        here: Loc = ("experiments", self.index)
        self.head = {"scenario": self.name, "experiment": item.listed_name}
        if item.actuator_identifier != OURS:
            self.head["runtime"] = {"shared": True}  # as ado's engine does: a model is loaded once
        self.places = {("experiment",): (*here, "experimentIdentifier"), ("workload",): ("entitySpace",)}
        if item.experiment_version:
            self.head["version"] = item.experiment_version
            self.places["version",] = (*here, "experimentVersion")
        for number, given in enumerate(item.parameterization or []):
            at: Loc = (*here, "parameterization", number)
            name: Loc = (*at, "property", "identifier")
            self._put(given.property.identifier, [given.value], name, (*at, "value"))
        for number, prop in enumerate(self.file.space.entity_space):
            if prop.identifier not in foreign:
                self._vary(prop, ("entitySpace", number))
        if self.problems:
            raise ProblemsError(self.problems)
        if self.file.walk:
            self._walk(self.file.walk)

    def _vary(self, prop: Property, at: Loc) -> None:
        try:
            values = domain_values(prop.property_domain or PropertyDomain())
        except ValueError as error:
            expected = "propertyDomain: {values: [...]}, or a domainRange with an interval"
            message = f"'{prop.identifier}': {error}"
            self.problems.append(self.file.document.problem((*at, "propertyDomain"), message, expected))
            return
        listed = prop.property_domain is not None and prop.property_domain.values is not None
        place: Loc = (*at, "propertyDomain", *(("values",) if listed else ()))
        self._put(prop.identifier, values, (*at, "identifier"), place, listed=listed)

    def _put(self, key: str, values: list[Any], name: Loc, place: Loc, *, listed: bool = False) -> None:
        if key in self.grid or key in self.workload:
            self.problems.append(self.file.document.problem(name, f"'{key}' is given twice"))
            return
        spots = [(*place, number) if listed else place for number in range(len(values))]
        if len(values) == 1 and not isinstance(values[0], list | dict):  # these could be read as an axis
            self.workload[key] = values[0]
            self.places["workload", key] = spots[0]
            self.named["workload", key] = name
            return
        self.grid[key] = values
        self.places["axes", 0, "grid", key] = place
        self.named["axes", 0, "grid", key] = name
        if listed:
            self.places |= {("axes", 0, "grid", key, number): spot for number, spot in enumerate(spots)}

    def _walk(self, walk: WalkParameters) -> None:
        mixed = walk.sampler_config.mode.startswith("random")
        self.head |= {"order": "random"} if mixed else {}
        self.head |= {"parallel": walk.batch_size} if walk.batch_size > 1 else {}
        if walk.max_retries:
            self.head["retries"] = {"max_retries": walk.max_retries}
        points = Points(
            tuple(VaryingKeys((key,), tuple((value,) for value in values)) for key, values in self.grid.items())
        )
        if walk.number_entities == "all" or walk.number_entities >= points.raw_size:
            return
        chosen: Iterator[Any] = islice(points.points(), walk.number_entities)
        if mixed:  # a fixed seed, so that the plan can be reviewed
            indices = random.Random(0).sample(range(points.raw_size), walk.number_entities)
            chosen = map(points.point, sorted(indices))
        self.head["axes"] = [{"points": list(chosen)}]

    def data(self) -> dict[str, Any]:
        axes = [{"grid": self.grid}] if self.grid else []
        return {"axes": axes, **self.head, "workload": self.workload}

    def document(self) -> Document:
        return self.file.document.assemble((), self.data(), self.places, self.named)

    def text(self) -> str:
        """Return the scenario as the text that a run stores, so that it can be continued without this space."""
        return f"# made of {Path(self.file.document.path).name}, a space of ado\n{dump_yaml(self.data())}"


def _not_ours(operation: AdoOperation, document: Document) -> list[Problem]:
    """Return problems for features that only ado has, rather than leaving them out silently."""
    body, problems = operation.operation, list[Problem]()
    if body.module.operator_name != "random_walk":
        loc: Loc = ("operation", "module", "operatorName")
        message = f"the operator '{body.module.operator_name}' chooses its points as it goes: only ado can run it"
        problems.append(document.problem(loc, message, "random_walk; or: ado create operation -f FILE"))
    if body.parameters.sampler_config.sampler_type != "generator":
        loc = ("operation", "parameters", "samplerConfig", "samplerType")
        problems.append(document.problem(loc, "a selector takes points from ado's own store", "generator"))
    return problems


def _check_number(space: SpaceFile, document: Document) -> None:
    number = space.walk.number_entities if space.walk else "all"
    if number != "all" and number < 1:
        loc: Loc = ("operation", "parameters", "numberEntities")
        raise ProblemsError([document.problem(loc, "no point is asked for", "all, or at least 1")])


def _label(named: list[tuple[str, str | None]], index: int) -> str:
    """Return a label that distinguishes an experiment of a space from the others, valid as part of a folder's name."""
    name, version = named[index]
    same_name = [other for other, _ in named].count(name) > 1
    label = f"{name}-{version}" if same_name and version else name
    label += f"-{index + 1}" if named.count(named[index]) > 1 else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label)


def _plain_space(document: Document) -> Document:
    """Return the output of `ado get space` (wrapped, with full experiments) as a view in the shape of a space."""
    body = space_body(document.data)
    home: Loc = () if body is document.data else ("config",)
    described = described_experiments(document.data)
    if not home and not described:
        return document
    data = dict(body)
    places: dict[Loc, Loc] = {(key,): (*home, key) for key in data}
    if described:
        listed: Loc = (*home, "experiments", "experiments")
        data["experiments"] = [_reference(item) for item in described["experiments"]]
        places["experiments",] = listed
        for number, item in enumerate(data["experiments"]):
            for key in item if isinstance(item, dict) else ():
                places["experiments", number, key] = (*listed, number, _REFERENCE[key])
    return document.assemble(home, data, places)


def _reference(experiment: Any) -> Any:
    if not isinstance(experiment, dict):
        return experiment
    return {ours: experiment[theirs] for ours, theirs in _REFERENCE.items() if theirs in experiment}


def benchmark_of_space(document: Document, name: str, environ: Mapping[str, str]) -> tuple[Benchmark, Document]:
    """Return the benchmark of that name, and a view of the space's file in its shape."""
    space = read_space(document)
    if len(space.space.experiments) > 1:
        message = "a space of several experiments can't be used by name"
        raise ProblemsError([document.problem(("experiments",), message, "a space for each experiment")])
    (file,) = scenarios(space, environ)
    data = {"benchmark": name} | {key: file.document.data[key] for key in _FROZEN if key in file.document.data}
    view = Document(document.path, document.text, data, file.document.positions)
    return Benchmark.model_validate(data), view
