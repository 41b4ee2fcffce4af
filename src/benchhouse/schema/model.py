"""The base of every model: frozen, closed to unknown keys, described field by field."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

SEALED = {"sealed": True}
"""Context of reading a document that was sealed: newer rules for what users write don't hold for it."""


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
    """Keys in camelCase, as files of ado and contracts are published."""

    model_config = ConfigDict(alias_generator=to_camel)


def number_as_text(value: Any) -> Any:
    """`2.0` of YAML is a number; a version or a name is a text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def empty_list() -> list[Any]:
    """A field's `default_factory`: pydantic looks at its signature, and Python takes 0.4 ms to find that of `list`."""
    return []
