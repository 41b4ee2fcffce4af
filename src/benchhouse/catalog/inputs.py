"""The inputs of an experiment, read from its pydantic models: name, type, default, and possible values."""

from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True)
class InputKey:
    """One key of a target or a workload."""

    name: str
    type: str
    """As people write it: `int`, `list[float]`, `synthetic | file`."""
    required: bool
    default: Any
    """As it would be written in a scenario; None if the key is required."""
    description: str
    variants: "list[Variant]"
    """The models that its value may be or contain."""


@dataclass(frozen=True)
class Variant:
    """A model inside an input."""

    kind: str
    """The value of its `kind`; empty if it has none."""
    above: str
    """The text between the input's name and its keys: `.`, `[].`, or `.*.`."""
    fields: list[InputKey]


def inputs_of(model: "type[BaseModel] | None", within: "tuple[type[BaseModel], ...]" = ()) -> list[InputKey]:
    """Return the keys of a model. A recursive model, at any depth (`within`), is not expanded again."""
    if model is None:
        return []
    return [
        InputKey(
            name=name,
            type=_type_text(field.annotation),
            required=field.is_required(),
            default=None if field.is_required() else _written(field.get_default(call_default_factory=True)),
            description=field.description or "",
            variants=[_variant(inner, above, (*within, model)) for above, inner in _models(field.annotation)],
        )
        for name, field in model.model_fields.items()
    ]


def _variant(model: "type[BaseModel]", above: str, within: "tuple[type[BaseModel], ...]") -> Variant:
    fields = [] if model in within else [item for item in inputs_of(model, within) if item.name != "kind"]
    return Variant(_kind(model), above, fields)


def _models(annotation: Any, above: str = ".") -> "list[tuple[str, type[BaseModel]]]":
    """Return the models that a value of this type may contain, each with the text between its name and their keys."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [(above, annotation)]
    if origin is Annotated:
        return _models(parts[0], above)
    if origin is dict:
        return _models(parts[1], ".*.")
    if origin in (list, tuple):
        return [pair for part in parts for pair in _models(part, "[].")]
    return [pair for part in parts for pair in _models(part, above)] if origin in (Union, UnionType) else []


def _kind(model: "type[BaseModel]") -> str:
    kind = model.model_fields.get("kind")
    return str(kind.default) if kind else ""


def _written(default: Any) -> Any:
    return default.model_dump(mode="json") if hasattr(default, "model_dump") else default


def _type_text(annotation: Any) -> str:
    """Return a type as people write it, without validators and constraints."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(parts[0])
    if origin is Literal:
        return " | ".join(str(part) for part in parts)
    if origin in (Union, UnionType):
        return " | ".join(_type_text(part) for part in parts)
    if annotation in (None, NoneType):
        return "none"
    if origin is tuple and parts[-1] is Ellipsis:
        return f"list[{_type_text(parts[0])}]"
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return _kind(annotation) or "mapping"
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name}[{', '.join(_type_text(part) for part in parts)}]" if parts else name
