"""Paths among an experiment's inputs: a relative path starts in the folder of the scenario file.

A field is a path if its annotation has `pathlib.Path` (or `FilePath`, `DirectoryPath`) or `InputPath`, on its own, in a
union, or as the values of a list or mapping; nested models are searched too. Identity uses the relative path, so that a
plan has the same digest wherever its folder is; models and experiments get the absolute path.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _PathMark:
    """Marks text as a path; empty text means no path."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"format": "input-path"}


InputPath = Annotated[str, _PathMark()]
_SEQUENCES = (list, tuple, set, frozenset)


def resolve_paths(
    model: type[BaseModel] | None, data: dict[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the inputs with absolute paths, and the written form of each: the path from `folder`, or unchanged."""
    written: dict[str, str] = {}
    if model is None or not has_paths(model):
        return data, written
    return _in_model(model, data, folder, written), written


def restore_paths(value: Any, written: Mapping[str, str]) -> Any:
    """Undo `resolve_paths` in data that a model produced."""
    if isinstance(value, dict):
        return {key: restore_paths(item, written) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_paths(item, written) for item in value]
    return written.get(value, value) if isinstance(value, str) else value


def rebase_paths(hint: Any, value: Any, source: Path, folder: Path) -> Any:
    """Return a value from a file in `source` as a file in `folder` would write it."""
    written: dict[str, str] = {}
    resolved = _in_hint(hint, value, source, written)
    return restore_paths(resolved, {path: os.path.relpath(path, folder) for path in written}) if written else value


def hint_at(model: type[BaseModel] | None, path: tuple[str | int, ...]) -> Any:
    """Return the annotation of the field at `path`, a union if several models have such a field; None if none has."""
    hints: tuple[Any, ...] = (model,)
    for part in path:
        members = [member for hint in hints for member in _models(hint)]
        hints = tuple(_fields(member)[str(part)] for member in members if str(part) in _fields(member))
    return Union[hints] if hints else None  # noqa: UP007 - the members are known only now


def owner_of(model: type[BaseModel], path: tuple[str, ...]) -> type[BaseModel] | None:
    """Return the first model that has the field at `path`; None if none has."""
    holders = _models(hint_at(model, path[:-1])) if path[:-1] else iter((model,))
    return next((holder for holder in holders if path[-1] in _fields(holder)), None)


@cache
def has_paths(hint: Any) -> bool:
    """Return whether any field of a model, or of models inside it, is a path."""
    return _has_paths(hint, frozenset())


def _has_paths(hint: Any, above: frozenset[Any]) -> bool:
    if _is_path(hint):
        return True
    for model in set(_models(hint)) - above:
        if any(_has_paths(field, above | {model}) for field in _fields(model).values()):
            return True
    return any(_has_paths(part, above) for part in get_args(hint) if get_origin(hint) in (*_SEQUENCES, dict))


def _in_model(model: type[BaseModel], data: Mapping[str, Any], folder: Path, written: dict[str, str]) -> dict[str, Any]:
    fields = _path_fields(model)
    return dict(data) | {key: _in_hint(fields[key], data[key], folder, written) for key in fields.keys() & data.keys()}


def _in_hint(hint: Any, value: Any, folder: Path, written: dict[str, str]) -> Any:
    if isinstance(value, str | Path):
        return _absolute(str(value), folder, written) if _is_path(hint) else value
    if isinstance(value, Mapping):
        for model in _models(hint):
            if _is_of_kind(model, value):
                value = _in_model(model, value, folder, written)
        for inner in _inside(hint, dict):
            value = {key: _in_hint(inner, item, folder, written) for key, item in value.items()}
        return value
    if isinstance(value, list | tuple):
        for inner in _inside(hint, *_SEQUENCES):
            value = [_in_hint(inner, item, folder, written) for item in value]
    return value


def _absolute(path: str, folder: Path, written: dict[str, str]) -> str:
    if not path or Path(path).is_absolute():
        return path
    if path.startswith("~"):
        absolute, shown = str(Path(path).expanduser()), path
    else:
        absolute, shown = os.path.normpath(folder / path), os.path.normpath(path)
    written[absolute] = shown
    return absolute


def _is_of_kind(model: type[BaseModel], value: Mapping[str, Any]) -> bool:
    """Return whether a mapping may belong to this member of a union: it has no `kind`, or the model's own."""
    field = model.model_fields.get("kind")
    return field is None or "kind" not in value or value["kind"] in get_args(field.annotation)


def _is_path(hint: Any) -> bool:
    """Return whether text is a path under this annotation or a member of its union; containers do not count."""
    if isinstance(hint, type) and issubclass(hint, Path):
        return True
    return any(isinstance(part, _PathMark) or _is_path(part) for part in _members(hint))


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in _members(hint):
        yield from _models(part)


def _inside(hint: Any, *containers: type) -> Iterator[Any]:
    """Yield the annotations of the items of a container, or of the values of a mapping, that the annotation allows."""
    if get_origin(hint) in containers:
        yield from (part for part in get_args(hint)[1 if dict in containers else 0 :] if part is not ...)
    for part in _members(hint):
        yield from _inside(part, *containers)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union or annotated type; empty for a container."""
    return () if get_origin(hint) in (None, *_SEQUENCES, dict) else get_args(hint)


@cache
def _path_fields(model: type[BaseModel]) -> dict[str, Any]:
    return {name: hint for name, hint in _fields(model).items() if has_paths(hint)}


@cache
def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return annotations by the names that data may use; pydantic stores the outermost metadata separately."""
    return {name: Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            for key, field in model.model_fields.items()
            for name in (key, field.alias) if name}  # fmt: skip
