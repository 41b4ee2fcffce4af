"""Short forms of values in a workload: one word or number instead of a mapping."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class AlsoTakes:
    """Adds a short form, which a validator before this annotation expands, to the JSON Schema for editors."""

    schema: dict[str, Any]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(schema)]}
