"""Make a scenario of a logical benchmark: a binding, targets, and property values become an experiment's inputs.

A value that is mapped to a region is run at one point of it: the first value of each list, the lower end of each range.
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
class LogicalSelection:
    """The part of a logical benchmark that is to be run."""

    targets: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)  # property -> value, as typed
    settings: Mapping[str, str] = field(default_factory=dict)  # inputs that the binding leaves open, as typed
    repetitions: int = 1


def make_scenario(
    logical: Logical, binding: Binding, experiment: str, version: str, asked: LogicalSelection
) -> dict[str, Any]:
    """Return the scenario as the data of its file. Raise BenchError if a property needs a value or no point fits."""
    if not asked.targets:
        raise BenchError(f"'{logical.name}' ranks targets, and none is given", "say what to measure: --target NAME")
    where = read_where(logical, asked.where)
    combinations = _combinations(logical, binding, where)
    points = [point for values in combinations if (point := _point(binding, values)) is not None]
    if not points:
        values = ", ".join(f"{name}={value}" for name, value in where.items()) or "any value of its properties"
        message = f"the binding to {binding.experiment.experiment_identifier} has no point with {values}"
        raise BenchError(message, "another value, or another --experiment")
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
    axes: list[dict[str, Any]] = [{"points": varied}] if varied else []
    mapping, inputs = binding.target_mapping, fixed | settings
    if mapping != WHOLE_TARGET and len(asked.targets) == 1:
        inputs |= {mapping: asked.targets[0]}
    elif mapping != WHOLE_TARGET:
        axes.insert(0, {"points": [{mapping: name} for name in asked.targets]})
    target, workload = _placed(inputs)
    if mapping == WHOLE_TARGET:
        named = [{"name": name, **target} if target else name for name in asked.targets]
        scenario |= {"target": named[0]} if len(named) == 1 else {"targets": named}
    elif target:
        scenario["target"] = target
    scenario |= {key: value for key, value in (("workload", workload), ("axes", axes)) if value}
    return scenario | {"repetitions": asked.repetitions}


def read_where(logical: Logical, where: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of properties from typed text; raise BenchError for an unknown property or value."""
    known = {item.identifier: item for item in logical.file.logical_benchmark.properties}
    if name := next((name for name in where if name not in known), None):
        hint = f"{guess_hint(name, known)}it has: {', '.join(known) or 'none'}"
        raise BenchError(f"'{logical.name}' has no property {quote(name)}", hint)
    return {name: _typed(known[name], text) for name, text in where.items()}


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
    """Return every combination of the properties' values; a property without a chosen value takes all of them."""
    choices: list[Sequence[Any]] = []
    for item in logical.file.logical_benchmark.properties:
        values = [where[item.identifier]] if item.identifier in where else listed(item.property_domain)
        if values is None:
            values = [value for value, _ in regions_of(binding, item.identifier)]
        if not values:
            hint = f"say one: --where {item.identifier}=VALUE"
            raise BenchError(f"'{item.identifier}' has no list of values to take", hint)
        choices.append(values)
    return (dict(zip(logical.properties, values, strict=True)) for values in product(*choices))


def _point(binding: Binding, properties: Mapping[str, Any]) -> Inputs | None:
    """Return the experiment's inputs for these properties; None if the binding has no such point."""
    domains: dict[str, list[PropertyDomain]] = {}
    for fixed in binding.static_filters:
        domains.setdefault(fixed.property.identifier, []).append(PropertyDomain(values=[fixed.value]))
    for name, value in properties.items():
        regions = regions_of(binding, name)
        if not regions:
            domains.setdefault(mapped_input(binding, name), []).append(PropertyDomain(values=[value]))
            continue
        predicate = next((predicate for region, predicate in regions if region == value), None)
        if predicate is None:
            return None
        for part in predicate:
            domains.setdefault(part.identifier, []).append(part.property_domain or PropertyDomain())
    inputs = {name: stand_in(choices) for name, choices in domains.items()}
    return None if any(value is MISSING for value in inputs.values()) else inputs


def _split(logical: Logical, points: Sequence[Inputs]) -> tuple[Inputs, list[Inputs]]:
    """Return the inputs that are the same at every point, and the points of the others."""
    if any(point.keys() != points[0].keys() for point in points):
        raise BenchError(
            f"the values of {', '.join(logical.properties)} are regions of different inputs",
            "run one of them at a time: --where PROPERTY=VALUE",
        )
    varied = [name for name in points[0] if any(point[name] != points[0][name] for point in points)]
    fixed = {name: value for name, value in points[0].items() if name not in varied}
    rows = [{name: point[name] for name in varied} for point in points] if varied else []
    return fixed, [row for number, row in enumerate(rows) if row not in rows[:number]]


def _placed(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs by name as the mappings `target` and `workload` of a scenario."""
    target, workload = Inputs(), Inputs()
    for name, value in inputs.items():
        here = target if name.startswith("target.") else workload
        *outer, last = name.removeprefix("target." if here is target else "workload.").split(".")
        for part in outer:
            here = here.setdefault(part, {})
        here[last] = value
    return target, workload
