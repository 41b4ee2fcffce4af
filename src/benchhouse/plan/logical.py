"""A logical benchmark as a scenario: one binding, targets, and values of its properties become an experiment's inputs.

A value that stands for a region is run at one point of it: the first value of each list, the lower end of each range.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from benchhouse.catalog.domains import MISSING, holds, listed, stand_in
from benchhouse.catalog.logical import WHOLE_TARGET, Logical, mapped_input, regions_of
from benchhouse.documents.problems import guess_hint
from benchhouse.documents.yaml_reader import resolve_plain
from benchhouse.schema.ado import Property, PropertyDomain
from benchhouse.schema.errors import BenchError
from benchhouse.schema.nexus import Binding
from benchhouse.schema.quoting import quote

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What is to be run of a logical benchmark."""

    targets: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)  # property -> value, as typed
    settings: Mapping[str, str] = field(default_factory=dict)  # inputs that the binding leaves open, as typed
    repetitions: int = 1


def make_scenario(logical: Logical, binding: Binding, experiment: str, version: str, asked: Asked) -> dict[str, Any]:
    """The scenario as its file would say it. Raises where a property needs a value, or no point has those asked."""
    if not asked.targets:
        raise BenchError(f"'{logical.name}' ranks targets, and none is given", "say what to measure: --target NAME")
    where = read_where(logical, asked.where)
    found = (_point(binding, combination) for combination in _combinations(logical, binding, where))
    points = [point for point in found if point is not None]
    if not points:
        said = ", ".join(f"{name}={value}" for name, value in where.items()) or "any value of its properties"
        name = binding.experiment.experiment_identifier
        raise BenchError(f"the binding to {name} has no point with {said}", "another value, or another --experiment")
    fixed, varied = _split(logical, points)
    scenario: dict[str, Any] = {
        "scenario": logical.name,
        "description": f"Logical benchmark {logical.name}, by its binding to {experiment}.",
        "experiment": experiment,
        "version": version,
    }
    settings = {name: resolve_plain(text) for name, text in asked.settings.items()}
    if taken := (fixed.keys() | (varied[0].keys() if varied else set())) & settings.keys():
        raise BenchError(f"{quote(min(taken))} is fixed by the binding", "set only what it leaves open")
    target, workload = _placed(fixed | settings)
    axes: list[dict[str, Any]] = [{"points": varied}] if varied else []
    if binding.target_mapping == WHOLE_TARGET:
        named = [{"name": name, **target} if target else name for name in asked.targets]
        scenario |= {"target": named[0]} if len(named) == 1 else {"targets": named}
    elif len(asked.targets) == 1:
        inner_target, inner = _placed(fixed | settings | {binding.target_mapping: asked.targets[0]})
        target, workload = inner_target, inner
        scenario |= {"target": target} if target else {}
    else:
        scenario |= {"target": target} if target else {}
        axes.insert(0, {"points": [{binding.target_mapping: name} for name in asked.targets]})
    scenario |= {"workload": workload} if workload else {}
    scenario |= {"axes": axes} if axes else {}
    return scenario | {"repetitions": asked.repetitions}


def read_where(logical: Logical, where: Mapping[str, str]) -> dict[str, Any]:
    """Values of properties, from what was typed; a name or a value that the benchmark has not is refused."""
    known = {item.identifier: item for item in logical.file.logical_benchmark.properties}
    found: dict[str, Any] = {}
    for name, text in where.items():
        if name not in known:
            hint = guess_hint(name, known)
            raise BenchError(
                f"'{logical.name}' has no property {quote(name)}", f"{hint}it has: {', '.join(known) or 'none'}"
            )
        found[name] = _typed(known[name], text)
    return found


def _typed(known: Property, text: str) -> Any:
    values = listed(known.property_domain)
    for value in values or []:
        if text == str(value) or (isinstance(value, bool) and text == str(value).lower()):
            return value
    read = resolve_plain(text)
    if not holds(known.property_domain, read):
        hint = guess_hint(text, [str(value) for value in values or []])
        expected = f"it has: {', '.join(map(str, values))}" if values else "see its propertyDomain"
        raise BenchError(f"{quote(text)} is no value of '{known.identifier}'", f"{hint}{expected}")
    return read


def _combinations(logical: Logical, binding: Binding, where: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Every combination of the properties' values; one that was not said takes each of its values in turn."""
    choices: list[Sequence[Any]] = []
    for item in logical.file.logical_benchmark.properties:
        values = [where[item.identifier]] if item.identifier in where else listed(item.property_domain)
        if values is None:
            values = [value for value, _ in regions_of(binding, item.identifier)]
        if not values:
            raise BenchError(
                f"'{item.identifier}' has no list of values to take", f"say one: --where {item.identifier}=VALUE"
            )
        choices.append(values)
    return (dict(zip(logical.properties, values, strict=True)) for values in product(*choices))


def _point(binding: Binding, properties: Mapping[str, Any]) -> Inputs | None:
    """The experiment's inputs at these properties; None where the binding has no such point."""
    domains: dict[str, list[PropertyDomain]] = {}
    for fixed in binding.static_filters:
        domains.setdefault(fixed.property.identifier, []).append(PropertyDomain(values=[fixed.value]))
    for name, value in properties.items():
        regions = [
            item
            for item in binding.property_mapping
            if item.categorical_value and item.categorical_value.property.identifier == name
        ]
        if not regions:
            domains.setdefault(mapped_input(binding, name), []).append(PropertyDomain(values=[value]))
            continue
        chosen = next(
            (item for item in regions if item.categorical_value and item.categorical_value.value == value), None
        )
        if chosen is None:
            return None
        for part in chosen.predicate or []:
            domains.setdefault(part.identifier, []).append(part.property_domain or PropertyDomain())
    inputs = {name: stand_in(found) for name, found in domains.items()}
    return None if any(value is MISSING for value in inputs.values()) else inputs


def _split(logical: Logical, points: Sequence[Inputs]) -> tuple[Inputs, list[Inputs]]:
    """What is the same at every point, and the points of what is not."""
    if any(point.keys() != points[0].keys() for point in points):
        raise BenchError(
            f"the values of {', '.join(logical.properties)} are regions of different inputs",
            "run one of them at a time: --where PROPERTY=VALUE",
        )
    varied = [name for name in points[0] if any(point[name] != points[0][name] for point in points)]
    fixed = {name: value for name, value in points[0].items() if name not in varied}
    rows: list[Inputs] = []
    for point in points:
        row = {name: point[name] for name in varied}
        if row not in rows:
            rows.append(row)
    return fixed, rows if varied else []


def _placed(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs by name as the mappings `target` and `workload` of a scenario."""
    target: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    for name, value in inputs.items():
        here, bare = workload, name.removeprefix("workload.")
        if name.startswith("target."):
            here, bare = target, name.removeprefix("target.")
        *outer, last = bare.split(".")
        for part in outer:
            here = here.setdefault(part, {})
        here[last] = value
    return target, workload
