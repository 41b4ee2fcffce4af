"""Build the space of points from a scenario's workload, targets, and axes, with the file position of each value."""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, ProblemList, ProblemsError, did_you_mean
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.plan.input_fields import accepts_list, accepts_mapping, fields_of
from benchhouse.plan.space import PointSpace, VaryingKeys
from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.input_paths import has_paths, hint_at, rebase_paths
from benchhouse.schema.quoting import describe, quote, shorten
from benchhouse.schema.resources import AskedResources, Resources, spelt, value_of
from benchhouse.schema.scenario import AxisBlock, Defined, Ranged, Scenario, axis_size, axis_values

TARGETS = "target"  # name of the axis whose values are whole targets
RESOURCES = "resources."  # prefix of axes over the resources of a trial


@dataclass(frozen=True)
class ValuePosition:
    """The document and location of a value; a scenario and the benchmark that it uses are two files."""

    document: Document
    loc: Loc

    def at(self, *parts: str | int) -> "ValuePosition":
        return ValuePosition(self.document, (*self.loc, *parts))

    @property
    def folder(self) -> Path:
        """The folder of the file that contains the value."""
        return Path(self.document.path).absolute().parent

    def problem(self, message: str, expected: str = "", suggestion: str = "", key: bool = False) -> Problem:
        return self.document.problem(self.loc, message, expected, suggestion, key=key)


@dataclass(frozen=True)
class Axis:
    """The positions of an axis: of its key, and of its value in each row of its block."""

    key: ValuePosition
    values: list[ValuePosition]
    block: int


@dataclass
class Draft:
    """A scenario split into fixed and varying keys, with the position of each in its files."""

    experiment: Experiment | None
    folder: Path = Path()  # base of relative paths
    scenario: Document | None = None  # its paths start in `folder`; those of a benchmark, in the benchmark's own folder
    target: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, ValuePosition] = field(default_factory=dict)  # by full name, see `qualify`
    axes: dict[str, Axis] = field(default_factory=dict)
    blocks: list[VaryingKeys] = field(default_factory=list)
    rules: list[Mapping[int, frozenset[int]]] = field(default_factory=list)
    problems: ProblemList = field(default_factory=ProblemList)
    nested: dict[str, Loc] = field(default_factory=dict)  # axes over a key inside a mapping: the path to that key
    spoilt: set[str] = field(default_factory=set)  # keys that are present but too faulty to be checked
    only_counts: bool = False  # count the blocks without building them
    points: int = 1  # number of points of all blocks together
    sizes: list[tuple[int, ValuePosition]] = field(
        default_factory=list
    )  # rows of each block, and its position in the file
    _encoded: dict[str, dict[bytes, list[int]]] = field(default_factory=dict)  # rows by value, for rules

    @property
    def target_model(self) -> type[BaseModel] | None:
        return self.experiment.target_model if self.experiment else None

    @property
    def workload_model(self) -> type[BaseModel] | None:
        return self.experiment.workload_model if self.experiment else None

    @property
    def space(self) -> PointSpace:
        return PointSpace(tuple(self.blocks), tuple(self.rules))

    def put_together(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return put_together(self.target, self.parameters, point, self.nested)

    def model(self, name: str) -> type[BaseModel] | None:
        """Return the model of the target, workload, or resources that the key with this full name belongs to."""
        if name.startswith(RESOURCES):
            return Resources
        return self.target_model if name.startswith("target.") else self.workload_model

    def qualify(self, key: str) -> str:
        """Return the full name of a key: `target.x` for a field of the target, plain `x` for a workload parameter."""
        if key.startswith("target."):
            return key
        if key.startswith(RESOURCES) and "resources" not in fields_of(self.workload_model):
            return RESOURCES + spelt(key.removeprefix(RESOURCES))
        bare = key.removeprefix("workload.")
        head = bare.partition(".")[0]
        ours, theirs = fields_of(self.workload_model), fields_of(self.target_model)
        if bare == key and not ours.keys() & {bare, head} and theirs.keys() & {bare, head}:
            return f"target.{bare}"
        return bare

    def path(self, name: str) -> Loc:
        """Return the path of the key with this full name inside the target or workload."""
        return self.nested.get(name, (name.removeprefix("target.").removeprefix(RESOURCES),))

    def count(self, rows: int, place: ValuePosition) -> bool:
        """Count the rows of a block before any of them is built. Return whether the block is to be added."""
        stop_if_cancelled()
        self.points *= rows
        self.sizes.append((rows, place))
        return not self.only_counts

    def refuse_too_many_points(self, most: int) -> None:
        """Raise ProblemsError, at the largest block, if the blocks have more points than `most`."""
        if self.points > most:
            _, place = max(self.sizes, key=lambda item: item[0])
            raise ProblemsError([place.problem(*too_many_points(self.points, most), key=True)])

    def has_number_axis(self) -> bool:
        """Return whether a result can be plotted along an axis: targets vary, or numbers do."""
        columns = [column for block in self.blocks for column in zip(*block.rows, strict=True)]
        return TARGETS in self.axes or any(len({*filter(_is_number, column)}) > 1 for column in columns)

    def add_resources(self, asked: AskedResources | None, home: ValuePosition) -> None:
        """Add the resources of a scenario: each list becomes an axis."""
        given = home.document.value(("resources",)) if asked else None
        for key, value in given.items() if isinstance(given, dict) else ():
            name, place = self.qualify(RESOURCES + key), home.at("resources", key)
            if isinstance(value, list):
                if self.count(len(value), place):
                    spots = [place.at(index) for index in range(len(value))]
                    self._add_block({RESOURCES + key: place}, [(item,) for item in value], {RESOURCES + key: spots})
            else:
                self.fixed[name] = place

    def add_targets(self, scenario: Scenario, home: ValuePosition) -> None:
        if scenario.targets:
            where = home.at("targets")
            if self.count(len(scenario.targets), where):
                places = [where.at(index) for index in range(len(scenario.targets))]
                self._add_block({TARGETS: where}, [(item,) for item in scenario.targets], {TARGETS: places})
        elif isinstance(scenario.target, str):
            self._fix("target.name", scenario.target, home.at("target"))
        else:
            for key, value in (scenario.target or {}).items():
                self._place(f"target.{key}", value, home.at("target", key))

    def add(self, defined: Defined, workload: Mapping[str, Any], home: ValuePosition) -> None:
        """Add the workload and the axes of a scenario or benchmark, in the order of the file."""
        for key, value in workload.items():
            self._place(self.qualify(key), value, home.at("workload", key))
        for index, block in enumerate(defined.axes):
            self._add_axes(block, home.at("axes", index))

    def add_rules(self, exclude: Iterable[Mapping[str, Any]], home: ValuePosition) -> None:
        """Turn `exclude` into rows of blocks; a rule that cannot match is reported as a problem."""
        for index, rule in enumerate(exclude):
            stop_if_cancelled()
            place = home.at("exclude", index)
            if not rule:
                self.problems.append(place.problem("an empty rule would exclude everything", "AXIS: VALUE"))
            gone: dict[int, frozenset[int]] = {}
            for key, value in rule.items():
                if matched := self._rows(key, value, place.at(key)):
                    block, rows = matched
                    gone[block] = gone.get(block, rows) & rows
            if gone:
                self.rules.append(gone)

    def _rows(self, key: str, value: Any, place: ValuePosition) -> tuple[int, frozenset[int]] | None:
        name = self.qualify(key)
        inner = name.removeprefix("target.") if name != TARGETS else "name"
        whole = name not in self.axes and TARGETS in self.axes and name.startswith("target.")
        axis = self.axes.get(TARGETS if whole else name)
        if axis is None:
            expected = f"one of {', '.join(sorted(self.axes))}" if self.axes else "an axis"
            message = f"'{key}' does not vary, so nothing can be excluded by it"
            self.problems.append(place.problem(message, expected, did_you_mean(key, self.axes) or "", key=True))
            return None
        block = self.blocks[axis.block]
        column = block.column(TARGETS if whole else name)
        if whole or (name == TARGETS and not isinstance(value, dict)):
            column = [target[inner] if inner in target else inside(target, inner.split(".")) for target in column]
        if name not in self._encoded:
            encoded = self._encoded[name] = {}
            for row, item in enumerate(column):
                encoded.setdefault(canonical_json(item), []).append(row)
        values = self._encoded[name]
        is_any_of = isinstance(value, list) and canonical_json(value) not in values
        rows: set[int] = set()
        for number, item in enumerate(value if is_any_of else [value]):
            wanted = canonical_json(item)
            matching = values.get(wanted, [])
            if not matching:
                shown = shorten(", ".join(text.decode() for text in islice(values, 20)))
                message = f"'{key}' never is {shorten(wanted.decode())}, so this rule excludes nothing"
                where = place.at(number) if is_any_of else place
                self.problems.append(where.problem(message, f"one of {shown}"))
            rows.update(matching)
        return axis.block, frozenset(rows)

    def check_clashes(self) -> None:
        """Report keys that are both fixed and varied, or that two axes vary."""
        for name, axis in self.axes.items():
            stop_if_cancelled()
            if name.startswith(RESOURCES):
                self.problems += [self._set_and_varied(name, axis)] if name in self.fixed else []
                continue
            in_target = name.startswith("target.")
            taken = resolvable_depth(self.target if in_target else self.parameters, self.path(name))
            others = self.axes if name in self.nested else ()
            wider = next((other for other in others if name.startswith(f"{other}.")), None)
            if wider not in (None, TARGETS):
                self.problems.append(axis.key.problem(f"'{name}' varies, and so does all of '{wider}'", key=True))
            elif taken is None and name not in self.fixed:
                continue
            elif taken is None or taken == self.path(name):
                self.problems.append(self._set_and_varied(name, axis))
            else:
                message = f"'{name}' can't vary: '{'.'.join(map(str, taken))}' is fixed, and not to a mapping"
                self.problems.append(axis.key.problem(message, key=True))
        whole = self.axes.get(TARGETS)
        if whole is None:
            return
        for target, place in zip(self.whole_targets(), whole.values, strict=True):
            stop_if_cancelled()
            for name in (*self.axes, *self.fixed):
                taken = resolvable_depth(target, self.path(name)) if name.startswith("target.") else None
                if taken:
                    other = "varied by an axis" if name in self.axes else "fixed under `target:`"
                    message = f"'{'.'.join(map(str, taken))}' is set by this target and {other}"
                    self.problems.append(place.at(*taken).problem(message, key=True))

    def whole_targets(self) -> list[dict[str, Any]]:
        """Return the targets, one per row of the block in which they vary; empty if they do not vary."""
        axis = self.axes.get(TARGETS)
        return self.blocks[axis.block].column(TARGETS) if axis else []

    def _set_and_varied(self, name: str, axis: Axis) -> Problem:
        """Return the problem, at the axis, that names the line which also sets the value."""
        path = self.path(name)
        given = self.fixed.get(name)
        if given is None:
            head = f"target.{path[0]}" if name.startswith("target.") else str(path[0])
            given = self.fixed[head].at(*path[1:])
        line, _ = given.document.position(given.loc, key=True)
        where = f"line {line}" if given.document.path == axis.key.document.path else f"{given.document.path}:{line}"
        message = f"'{name}' is varied here, and given a value in {where}"
        return axis.key.problem(message, f"only one of them: remove '{name}' from {where}, or this axis", key=True)

    def forgive(self, dropped: Set[str]) -> None:
        """Ignore missing keys that may have been in a part of the file that was dropped because of an error."""
        given = self.fixed.keys() | self.axes.keys()
        if dropped & {"target", "targets", "workload", "axes"}:
            self.spoilt |= {"target.", *(f"target.{key}" for key in fields_of(self.target_model))} - given
        if dropped & {"workload", "axes"}:
            self.spoilt |= {"", *fields_of(self.workload_model)} - given

    def _place(self, name: str, value: Any, place: ValuePosition) -> None:
        """Add one key of the workload or target as an axis or as a fixed value."""
        inner, model = name.removeprefix("target."), self.model(name)
        if name == TARGETS:  # a workload key of this name; whole targets vary under `targets:` or among the axes
            self._fix(name, value, place)
        elif isinstance(value, list) and not accepts_list(model, inner):
            if not value:
                self.problems.append(place.problem(f"the axis '{inner}' is empty", "at least one value"))
                self.spoilt.add(name)
                return
            if self.count(len(value), place):
                values = [place.at(index) for index in range(len(value))]
                self._add_block({name: place}, [(item,) for item in value], {name: values})
        elif isinstance(value, dict) and set(value) == {"range"}:
            try:
                ranged = Ranged.model_validate(value)
            except ValidationError as error:
                view = place.document.assemble(place.loc, value, {("range",): place.at("range").loc})
                self.problems += from_pydantic(error, view, Ranged)
                self.spoilt.add(name)
                return
            if self.count(ranged.range.size, place):
                numbers = ranged.range.values()
                spots = {name: [place.at("range")] * len(numbers)}
                self._add_block({name: place}, [(item,) for item in numbers], spots)
        elif _looks_like_a_range(value) and inner in fields_of(model) and not accepts_mapping(model, inner):
            given = ", ".join(f"{key}: {item}" for key, item in value.items())
            expected = f"a value; for a range write {{range: {{{given}}}}}"
            self.problems.append(place.problem(f"'{inner}' takes no mapping", expected))
            self.spoilt.add(name)
        else:
            self._fix(name, value, place)

    def _fix(self, name: str, value: Any, place: ValuePosition) -> None:
        if name in self.fixed:
            self.problems.append(place.problem(f"'{name}' is given twice", key=True))
        self.fixed[name] = place
        value = self._rebased(name, value, place)
        if name.startswith("target."):
            self.target[name.removeprefix("target.")] = value
        else:
            self.parameters[name] = value

    def _add_axes(self, block: AxisBlock, place: ValuePosition) -> None:
        if block.points:
            if not self.count(len(block.points), place):
                return
            names = list(block.points[0])
            rows = [tuple(point[name] for name in names) for point in block.points]
            spots = {name: [place.at("points", index, name) for index in range(len(rows))] for name in names}
            self._add_block({name: spots[name][0] for name in names}, rows, spots)
        elif block.zip:
            if not self.count(min(map(axis_size, block.zip.values())), place):
                return
            columns = {key: axis_values(given) for key, given in block.zip.items()}
            keys = {key: place.at("zip", key) for key in columns}
            spots = {key: _spots(keys[key], given) for key, given in block.zip.items()}
            self._add_block(keys, list(zip(*columns.values(), strict=True)), spots)
        else:
            for key, given in (block.grid or {}).items():
                where = place.at("grid", key)
                if self.count(axis_size(given), where):
                    self._add_block({key: where}, [(item,) for item in axis_values(given)], {key: _spots(where, given)})

    def _add_block(
        self, keys: Mapping[str, ValuePosition], rows: list[tuple[Any, ...]], values: Mapping[str, list[ValuePosition]]
    ) -> None:
        names = {key: self.qualify(key) for key in keys}
        twice = [key for key, name in names.items() if name in self.axes]
        self.problems += [keys[key].problem(f"'{names[key]}' varies twice", key=True) for key in twice]
        if twice:
            return
        if whole := [key for key, name in names.items() if name == TARGETS and name in fields_of(self.workload_model)]:
            message = "a workload's own 'target' can't vary: among the axes that name means whole targets"
            self.problems.append(keys[whole[0]].problem(message, "targets: [...] for these", key=True))
            return
        for key, name in names.items():
            if self._is_nested(name):
                self.nested[name] = tuple(name.removeprefix("target.").split("."))
            self.axes[name] = Axis(keys[key], values[key], len(self.blocks))
        rows = [
            tuple(
                self._meant(key, name, value, values[key][number])
                for (key, name), value in zip(names.items(), row, strict=True)
            )
            for number, row in enumerate(rows)
        ]
        self.blocks.append(VaryingKeys(tuple(names.values()), tuple(rows)))
        if self.blocks[-1].keys == (TARGETS,):
            (places,) = values.values()
            self._refuse_names_twice(places)

    def _refuse_names_twice(self, places: list[ValuePosition]) -> None:
        earlier: set[str] = set()
        for target, place in zip(self.whole_targets(), places, strict=True):
            name = target.get("name")
            if isinstance(name, str) and name in earlier:
                self.problems.append(place.at("name").problem(f"the target {quote(name)} is named twice"))
            elif isinstance(name, str):
                earlier.add(name)

    def _meant(self, key: str, name: str, value: Any, place: ValuePosition) -> Any:
        """Return a value of an axis in the form in which the scenario's own file would write it."""
        if name == TARGETS:
            if not isinstance(value, str | dict):
                self.problems.append(
                    place.problem(f"{describe(value)} is no target", "a name, or the keys of a target")
                )
                return {}
            return whole_target(value)
        if not name.startswith(RESOURCES):
            return self._rebased(name, value, place)
        if name.removeprefix(RESOURCES) not in Resources.model_fields:
            return value  # its unknown name is reported elsewhere
        try:
            return value_of(key.removeprefix(RESOURCES), value)
        except ValueError as error:
            self.problems.append(place.problem(str(error)))
            return value

    def _rebased(self, name: str, value: Any, place: ValuePosition) -> Any:
        """Return the value with paths relative to a benchmark's file rewritten relative to the scenario's folder."""
        model = self.model(name)
        if self.scenario is None or place.document.path == self.scenario.path or not (model and has_paths(model)):
            return value
        return rebase_paths(hint_at(model, self.path(name)), value, place.folder, self.folder)

    def _is_nested(self, name: str) -> bool:
        """Return whether a dotted name leads into a mapping: a field that accepts one, or a key fixed to one."""
        inner = name.removeprefix("target.")
        head, dot, _ = inner.partition(".")
        in_target, model = inner != name, self.model(name)
        if name == TARGETS or not dot or inner in fields_of(model):
            return False
        if head in fields_of(model):
            return accepts_mapping(model, head)
        holders = [self.target if in_target else self.parameters]
        holders += self.whole_targets() if in_target else []
        return any(isinstance(holder.get(head), dict) for holder in holders)


def too_many_points(points: int, most: int) -> tuple[str, str]:
    """Return the message about a plan with more points than are allowed, and what is expected instead."""
    digits = round(points.bit_length() * math.log10(2))
    count = f"{points:,}" if digits < 20 else f"about 10^{digits}"
    return (
        f"this scenario has {count} points before `exclude`, more than the {most:,} that may be planned",
        "fewer values, or a higher limit: `planning` in workspace.yaml (max_points, reader_max_points)",
    )


def put_together(
    target: Mapping[str, Any], parameters: Mapping[str, Any], point: Mapping[str, Any], nested: Mapping[str, Loc]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return target and workload at one point of the space; `nested` has the paths of axes that lead into mappings."""
    whole, workload = dict(target), dict(parameters)
    for key, value in point.items():
        if key.startswith(RESOURCES):
            continue
        if key == TARGETS:
            whole |= value
        elif key in nested:
            _set_inside(whole if key.startswith("target.") else workload, nested[key], value)
        elif key.startswith("target."):
            whole[key.removeprefix("target.")] = value
        else:
            workload[key] = value
    return whole, workload


def resources_at(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources that vary, by field, with their values at one point of the space."""
    return {key.removeprefix(RESOURCES): value for key, value in point.items() if key.startswith(RESOURCES)}


def _set_inside(holder: dict[str, Any], path: Loc, value: Any) -> None:
    """Set the value at `path`; the mappings on the way are copied because the other points share them."""
    here: dict[Any, Any] = holder
    for part in path[:-1]:
        inner = here.get(part)
        here[part] = dict(inner) if isinstance(inner, dict) else {}
        here = here[part]
    here[path[-1]] = value


def inside(data: Any, path: Iterable[str | int]) -> Any:
    """Return the value at `path` in nested mappings, or None if there is none."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def resolvable_depth(data: Mapping[str, Any], path: Loc) -> Loc | None:
    """Return the part of `path` that ends at a value or at something other than a mapping; None if the path is free."""
    here: Any = data
    for depth, part in enumerate(path):
        if not isinstance(here, dict):
            return path[:depth]
        if part not in here:
            return None
        here = here[part]
    return path


def _looks_like_a_range(value: Any) -> bool:
    return isinstance(value, dict) and {"from", "to"} <= set(value) <= {"from", "to", "step", "factor", "count"}


def _spots(place: ValuePosition, given: Any) -> list[ValuePosition]:
    count = len(axis_values(given))
    return [place.at(index) for index in range(count)] if isinstance(given, list) else [place] * count


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_target(target: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a target as a mapping; plain text becomes its name."""
    return {"name": target} if isinstance(target, str) else dict(target)
