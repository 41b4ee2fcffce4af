"""JSON from strangers, and for them: what breaks a parser is a ValueError, and what JSON has no word for is null."""

import json
import math
from typing import Any


def read_json(text: str | bytes | bytearray) -> Any:
    """As `json.loads`; ValueError also for what is nested deeper than anybody means it."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def finite(value: Any) -> Any:
    """A value with null in place of NaN and the infinities, which are no JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
