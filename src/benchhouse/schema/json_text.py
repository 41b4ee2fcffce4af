"""JSON from and for other programs: unreadable input raises ValueError, and values that JSON lacks become null."""

import json
import math
from typing import Any


def read_json(text: str | bytes | bytearray) -> Any:
    """Parse JSON like `json.loads`; raise ValueError also if it is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def finite(value: Any) -> Any:
    """Return the value with null in place of NaN and the infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
