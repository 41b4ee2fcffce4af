"""The fields of an experiment's input models: their names in a file, and which of them accept lists or mappings."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel


@lru_cache(maxsize=256)
def fields_of(model: type[BaseModel] | None) -> Mapping[str, Any]:
    """Return the model's fields by the key that a file uses for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()} if model else {}


def accepts_list(model: type[BaseModel] | None, name: str) -> bool:
    """Return whether a list is a plain value of that field rather than an axis over it."""
    return _accepts(model, name, lambda hint: hint in (list, tuple, set, frozenset))


def accepts_mapping(model: type[BaseModel] | None, name: str) -> bool:
    """Return whether a mapping is a value of that field, so that an axis may lead into it."""

    def is_mapping(hint: Any) -> bool:
        return hint in (Any, dict, Mapping) or (isinstance(hint, type) and issubclass(hint, dict | Mapping | BaseModel))

    return _accepts(model, name, is_mapping)


def _accepts(model: type[BaseModel] | None, name: str, fits: Callable[[Any], bool]) -> bool:
    known = fields_of(model)
    return name in known and _top(known[name].annotation, fits)


def only_model(hint: Any) -> Any:
    """Return the model of an annotation: itself, or the only member of a union other than None; otherwise None."""
    members = [part for part in get_args(hint) if part is not type(None)] if get_origin(hint) else [hint]
    return members[0] if len(members) == 1 and get_origin(hint) not in (list, dict, tuple, set, frozenset) else None


def _top(hint: Any, fits: Callable[[Any], bool]) -> bool:
    """Return whether the annotation, or a member of it if it is a union, fits; items of containers do not count."""
    origin = get_origin(hint)
    if fits(origin or hint):
        return True
    return origin is not dict and any(_top(part, fits) for part in get_args(hint) if origin is not None)
