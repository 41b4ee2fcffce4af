"""Short forms of values that a workload may write: one word or number instead of a mapping."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class AlsoTakes:
    """Tells editors, by the JSON Schema, of a short form that a validator before this annotation spells out."""

    schema: dict[str, Any]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(schema)]}
