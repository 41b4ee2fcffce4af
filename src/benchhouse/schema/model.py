"""The base class of all models: frozen, closed to unknown keys, with a description per field."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

SEALED = {"sealed": True}
"""Validation context for sealed documents, which are exempt from newer rules for files that users write."""


class Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # a command uses few of the models: the others need no validator
    )


class Camel(Model):
    """A model with keys in camelCase, as in published ado files and contracts."""

    model_config = ConfigDict(alias_generator=to_camel)


def number_as_text(value: Any) -> Any:
    """Return text for a number, because YAML reads a version or name such as `2.0` as a number."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def empty_list() -> list[Any]:
    """Return an empty list. As `default_factory` it is faster than `list`, whose signature takes 0.4 ms to find."""
    return []
