"""Check every value of a draft against the experiment's inputs, so that all mistakes are reported at once, in place."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from benchhouse.documents.document import Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.documents.validation_errors import from_pydantic
from benchhouse.plan.axes import RESOURCES, TARGETS, Draft, ValuePosition, resources_at
from benchhouse.plan.input_fields import accepts_mapping, fields_of, only_model
from benchhouse.plan.space import VaryingKeys
from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.errors import BenchError
from benchhouse.schema.input_paths import resolve_paths, restore_paths
from benchhouse.schema.quoting import quote
from benchhouse.schema.secrets import is_secret_key

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_KEPT = 20_000
"""The largest number of points whose checked inputs a plan keeps; a larger plan computes them again."""
Meaning = tuple[dict[str, Any], bytes]
"""Parameters as the experiment receives them, and their canonical JSON."""


def normal(model: type[BaseModel] | None, data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return `data` validated by the model, with defaults, as JSON that the model can read; secrets stay references.

    The model gets relative paths as absolute ones in `folder`; the returned paths are relative again.
    """
    if model is None:
        return data
    resolved, written = resolve_paths(model, data, folder)
    dumped = model.model_validate(resolved).model_dump(mode="json", by_alias=True, round_trip=True)
    if written:
        dumped = restore_paths(dumped, written)
    for key in dumped.keys() & data.keys():
        if is_secret_key(key):
            dumped[key] = data[key]
    return dumped


def check_values(draft: Draft, home: ValuePosition) -> list[Meaning]:
    """Check the fixed values, then every value of every axis, one at a time; report into `draft.problems`.

    Two rows of a block with the same meaning (`1` and `1.0`, `60` and `1m`) would count one instance twice. Returns the
    workload at each point if it is known after the check: if only one axis, of the workload, varies.
    """
    rows = next(draft.space.rows(), (0,) * len(draft.blocks))
    first = draft.space.at(rows)
    places = {name: axis.values[rows[axis.block]] for name, axis in draft.axes.items()}
    _check_names(draft)
    _check_point(draft, home, first, places, None)
    _check_reading_back(draft, first)
    kept: list[Meaning] = []
    for block, checked in zip(draft.blocks, rows, strict=True):
        meant: dict[bytes, int] = {}
        sides = _sides(block)
        alone = sides == (False, True, False) and len(draft.blocks) == 1
        keeps = alone and not draft.rules and len(block.rows) <= MOST_KEPT
        for number, row in enumerate(block.rows):
            stop_if_cancelled()
            point = first | dict(zip(block.keys, row, strict=True))
            inputs, meaning = _meaning(draft, point, sides)
            if keeps and meaning:
                kept.append((inputs[0], meaning[1:-1]))
            if not meaning:
                at = places | {key: draft.axes[key].values[number] for key in block.keys}
                before = len(draft.problems)
                if number != checked:
                    _check_point(draft, home, point, at, set(block.keys))
                if len(draft.problems) > before:
                    continue
                # A combination that does not fit; it is reported elsewhere.
                meaning = canonical_json([*draft.put_together(point), resources_at(point)])
            earlier = meant.setdefault(meaning, number)
            # Two targets of one name are already reported.
            named = block.keys == (TARGETS,) and "name" in row[0]
            if earlier != number and not (named and row[0]["name"] == block.rows[earlier][0].get("name")):
                place, other = (draft.axes[block.keys[0]].values[which] for which in (number, earlier))
                line, column = other.document.position(other.loc)
                draft.problems.append(place.problem(f"this means the same as the value at {line}:{column}"))
    return kept


def _sides(block: VaryingKeys) -> tuple[bool, bool, bool]:
    """Return whether a block has keys of the target, of the workload, and of the resources."""
    in_target = [key == TARGETS or key.startswith("target.") for key in block.keys]
    given = [key.startswith(RESOURCES) for key in block.keys]
    return any(in_target), sum(in_target) + sum(given) < len(block.keys), any(given)


def _check_point(
    draft: Draft,
    home: ValuePosition,
    point: Mapping[str, Any],
    axis_places: dict[str, ValuePosition],
    changed: set[str] | None,
) -> None:
    """Report what is wrong at one point; with `changed`, only mistakes in these keys."""
    target, parameters = draft.put_together(point)
    places = draft.fixed | axis_places
    in_target = {draft.path(key): place for key, place in places.items() if key.startswith("target.")}
    own = {key for key in places if key != TARGETS and not key.startswith(("target.", RESOURCES))}
    in_workload = {draft.path(key): places[key] for key in own}
    target_home = home.at("target")
    if TARGETS in point:
        target_home = axis_places[TARGETS]
        in_target |= {(key,): target_home.at(key) for key in point[TARGETS]}
    if draft.target_model:
        whole = changed is None or TARGETS in changed
        paths = None if whole else {draft.path(key) for key in changed or () if key.startswith("target.")}
        spoilt = {key.removeprefix("target.") for key in draft.spoilt if key.startswith("target.")}
        target, _ = resolve_paths(draft.target_model, target, draft.folder)
        draft.problems += _misfits(draft.target_model, target, target_home, in_target, paths, spoilt)
    if draft.workload_model:
        workload_home = home.at("workload")
        paths = None if changed is None else {draft.path(key) for key in changed & own}
        parameters, _ = resolve_paths(draft.workload_model, parameters, draft.folder)
        draft.problems += _misfits(draft.workload_model, parameters, workload_home, in_workload, paths, draft.spoilt)


def _misfits(
    model: type[BaseModel],
    data: dict[str, Any],
    home: ValuePosition,
    places: Mapping[Loc, ValuePosition],
    changed: set[Loc] | None,
    spoilt: set[str],
) -> list[Problem]:
    """Return the model's errors about `data`, each in the file of its value; unknown names are reported elsewhere."""
    if changed is not None and not any(path[0] in data for path in changed):
        return []
    varied = {path for path in places if len(path) > 1}
    try:
        model.model_validate(data)
    except ValidationError as error:
        problems: list[Problem] = []
        documents = {place.document.path: place.document for place in (home, *places.values())}
        for path, document in documents.items():
            here = {key: place.loc for key, place in places.items() if place.document.path == path}

            def belongs(item: "ErrorDetails", at: Loc, path: str = path) -> bool:
                key = str(item["loc"][0]) if item["loc"] else ""
                at = at or (key,)  # a missing key is not in the data
                unknown = item["type"] == "extra_forbidden" and (len(item["loc"]) == 1 or at in varied)
                nearest = max((known for known in places if at[: len(known)] == known), key=len, default=None)
                place = places[nearest] if nearest else home
                met = changed is None or any(at[: len(key)] == key for key in changed)
                return key not in spoilt and not unknown and place.document.path == path and met

            problems += from_pydantic(error, document.assemble(home.loc, data, here), model, belongs)
        return problems
    return []


def _check_names(draft: Draft) -> None:
    """Report unknown names, even if the model would ignore them, so that a misspelled parameter does not pass."""
    given = draft.fixed | {name: axis.key for name, axis in draft.axes.items() if name != TARGETS}
    for name, place in given.items():
        if name in draft.nested:
            _check_path(draft, draft.model(name), draft.nested[name], place)
        else:
            _check_name(draft, draft.model(name), str(draft.path(name)[0]), place)
    if TARGETS in draft.axes:
        for target, place in zip(draft.whole_targets(), draft.axes[TARGETS].values, strict=True):
            for key in target:
                _check_name(draft, draft.target_model, key, place.at(key))


def _check_name(draft: Draft, model: type[BaseModel] | None, key: str, place: ValuePosition) -> None:
    if model is None or model.model_config.get("extra") == "allow" or key in model.model_fields:
        return
    known = fields_of(model)
    head, dot, _ = key.partition(".")
    if dot and accepts_mapping(model, head):  # without an axis, it is written as a mapping
        inner = "".join(f"{{{part}: " for part in key.split(".")[1:])
        expected = f"{head}: {inner}...{'}' * inner.count('{')}"
        draft.problems.append(place.problem(f"{quote(key)} is an axis or nothing", expected, key=True))
    elif dot and head in known:
        draft.problems.append(place.problem(f"'{head}' holds no mapping, so there is no {quote(key)}", key=True))
    elif key not in known:
        meant = did_you_mean(key, known) or ""
        draft.problems.append(place.problem(f"unknown key {quote(key)}", f"one of {', '.join(known)}", meant, key=True))


def _check_path(draft: Draft, model: type[BaseModel] | None, path: Loc, place: ValuePosition) -> None:
    """Report a nested name that leads to an unknown key of a model inside the model."""
    shape: Any = model
    for part in path:
        if not (isinstance(shape, type) and issubclass(shape, BaseModel)):
            return
        before = len(draft.problems)
        _check_name(draft, shape, str(part), place)
        if len(draft.problems) > before:
            return
        field = fields_of(shape).get(str(part))
        shape = only_model(field.annotation) if field else None


def _check_reading_back(draft: Draft, point: Mapping[str, Any]) -> None:
    """Raise BenchError if the inputs cannot be read back from JSON, as the worker does, because defaults do not fit
    their types.
    """
    if draft.problems or draft.spoilt or draft.experiment is None:
        return
    for model, data in zip((draft.target_model, draft.workload_model), draft.put_together(point), strict=True):
        if model is None:
            continue
        try:
            model.model_validate(resolve_paths(model, normal(model, data, draft.folder), draft.folder)[0])
        except ValidationError as error:
            raise BenchError(
                f"the inputs of {draft.experiment.name} can't be written down and read back: {reasons(error)}",
                f"{model.__name__} must accept its own defaults, e.g. `x: int | None = None`",
            ) from error


def _meaning(
    draft: Draft, point: Mapping[str, Any], sides: tuple[bool, bool, bool]
) -> tuple[list[dict[str, Any]], bytes]:
    """Return the checked inputs of the changed sides of a point, and their JSON; both empty if they do not fit."""
    models = (draft.target_model, draft.workload_model)
    inputs = zip(sides[:2], models, draft.put_together(point), strict=True)
    try:
        meant = [normal(model, data, draft.folder) for changed, model, data in inputs if changed]
    except ValidationError:
        return [], b""
    meant += [resources_at(point)] if sides[2] else []
    return meant, canonical_json(meant)


def reasons(error: ValidationError) -> str:
    """Return pydantic's errors on one line."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}".lstrip(": ") for item in error.errors())
