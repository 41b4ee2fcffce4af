"""From a scenario's workload, targets and axes to a Space: which keys vary, over what, and where each value stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from benchhouse.plan.space import Block, Space
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.problems import Problem, did_you_mean
from benchhouse.schema.scenario import AxisBlock, Range, Scenario, axis_values
from benchhouse.schema.yamltext import Document

Loc = tuple[str | int, ...]
TARGETS = "target"  # the axis whose values are whole targets


@dataclass
class Draft:
    """A scenario taken apart: what is fixed, what varies, and where in the file each of it stands."""

    experiment: Experiment | None
    document: Document
    target: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    places: dict[str, list[Loc]] = field(default_factory=dict)  # axis -> the place of each of its values
    problems: list[Problem] = field(default_factory=list)

    def add(self, keys: tuple[str, ...], rows: list[tuple[Any, ...]], places: Mapping[str, list[Loc]]) -> None:
        for key in keys:
            if key in self.places:
                self.problems.append(self.document.problem(places[key][0], f"'{key}' varies twice", key=True))
        self.blocks.append(Block(keys, tuple(rows)))
        self.places.update(places)

    def space(self, exclude: list[dict[str, Any]]) -> Space:
        known = {key for block in self.blocks for key in block.keys}
        rules = []
        for index, rule in enumerate(exclude):
            named = {self.qualify(key): _as_tuple(value) for key, value in rule.items()}
            for key in rule:
                if self.qualify(key) not in known:
                    message = f"'{key}' does not vary, so nothing can be excluded by it"
                    guess = did_you_mean(key, known) or ""
                    expected = f"one of {', '.join(sorted(known))}" if known else "an axis"
                    self.problems.append(
                        self.document.problem(("exclude", index, key), message, expected, guess, key=True)
                    )
            rules.append(named)
        return Space(tuple(self.blocks), tuple(rules))

    def qualify(self, key: str) -> str:
        """The full name of an axis: `target.x` for a field of the target, plain `x` for a workload parameter."""
        if key.startswith("target."):
            return key
        bare = key.removeprefix("workload.")
        if bare == key and bare in fields_of(self.target_model) and bare not in fields_of(self.workload_model):
            return f"target.{bare}"
        return bare

    @property
    def target_model(self) -> type[BaseModel] | None:
        return self.experiment.target_model if self.experiment else None

    @property
    def workload_model(self) -> type[BaseModel] | None:
        return self.experiment.workload_model if self.experiment else None


def draft(scenario: Scenario, workload: Mapping[str, Any], axes: list[AxisBlock], base: Draft) -> Draft:
    """Fill `base` with the scenario's targets, fixed values and axes, in the order of the file."""
    _targets(scenario, base)
    for key, value in workload.items():
        name = base.qualify(key)
        _place(base, name, value, ("workload", key))
    for index, block in enumerate(axes):
        _block(base, block, ("axes", index))
    for block_keys in (block.keys for block in base.blocks):
        for key in block_keys:
            fixed = base.target if key.startswith("target.") else base.parameters
            if key.removeprefix("target.") in fixed:
                place = base.places[key][0][:-1]
                base.problems.append(base.document.problem(place, f"'{key}' is both fixed and varied", key=True))
    return base


def _targets(scenario: Scenario, base: Draft) -> None:
    if scenario.targets:
        whole = [_named(target) for target in scenario.targets]
        places: list[Loc] = [("targets", index) for index in range(len(whole))]
        base.add((TARGETS,), [(target,) for target in whole], {TARGETS: places})
    elif scenario.target is not None:
        for key, value in _named(scenario.target).items():
            loc: Loc = ("target", key) if isinstance(scenario.target, dict) else ("target",)
            _place(base, f"target.{key}", value, loc)


def _place(base: Draft, name: str, value: Any, loc: Loc) -> None:
    """Put one key of the workload or target where it belongs: an axis or a fixed value."""
    inner = name.removeprefix("target.")
    model = base.target_model if name.startswith("target.") else base.workload_model
    if isinstance(value, list) and not accepts_list(model, inner):
        if not value:
            base.problems.append(base.document.problem(loc, f"the axis '{inner}' is empty", "at least one value"))
            return
        base.add((name,), [(item,) for item in value], {name: [(*loc, index) for index in range(len(value))]})
    elif isinstance(value, dict) and set(value) == {"range"}:
        try:
            values = Range.model_validate(value["range"]).values()
        except ValidationError as error:
            message = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
            expected = "{from: 1, to: 64, factor: 2} or with step or count instead of factor"
            base.problems.append(base.document.problem((*loc, "range"), message, expected))
            return
        base.add((name,), [(item,) for item in values], {name: [(*loc, "range")] * len(values)})
    elif name.startswith("target."):
        base.target[inner] = value
    else:
        base.parameters[inner] = value


def _block(base: Draft, block: AxisBlock, loc: Loc) -> None:
    if block.points:
        keys = tuple(base.qualify(key) for key in block.points[0])
        rows = [tuple(point.values()) for point in _aligned(block.points)]
        places: dict[str, list[Loc]] = {
            base.qualify(key): [(*loc, "points", index, key) for index in range(len(rows))] for key in block.points[0]
        }
        base.add(keys, rows, places)
        return
    form, columns = ("grid", block.grid) if block.grid else ("zip", block.zip or {})
    values = {key: axis_values(given) for key, given in columns.items()}
    spots = {key: _spots((*loc, form, key), columns[key], len(values[key])) for key in columns}
    if form == "zip":
        keys = tuple(base.qualify(key) for key in values)
        rows = list(zip(*values.values(), strict=True))
        base.add(keys, rows, {base.qualify(key): spots[key] for key in values})
        return
    for key, column in values.items():
        base.add((base.qualify(key),), [(item,) for item in column], {base.qualify(key): spots[key]})


def _spots(loc: Loc, given: Any, count: int) -> list[Loc]:
    return [loc] * count if isinstance(given, Range) else [(*loc, index) for index in range(count)]


def _aligned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: point[key] for key in points[0]} for point in points]


def _named(target: dict[str, Any] | str) -> dict[str, Any]:
    return {"name": target} if isinstance(target, str) else dict(target)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def fields_of(model: type[BaseModel] | None) -> set[str]:
    return set(model.model_fields) if model else set()


def accepts_list(model: type[BaseModel] | None, name: str) -> bool:
    """Whether a list is a plain value of that field rather than an axis over it."""
    if model is None or name not in model.model_fields:
        return False

    def top(hint: Any) -> bool:
        origin = get_origin(hint)
        if origin in (list, tuple, set, frozenset) or hint in (list, tuple, set):
            return True
        return origin is not dict and any(top(part) for part in get_args(hint) if origin is not None)

    return top(model.model_fields[name].annotation)
