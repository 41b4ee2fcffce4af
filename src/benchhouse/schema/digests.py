"""Canonical JSON, and the digests that identify plans, instances, and files."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


def canonical_json(value: Any) -> bytes:
    """Encode `value` so that equal values give equal bytes: sorted keys, no spaces, UTF-8, no NaN.

    A float with an integral value is written as an integer, so `1` and `1.0` in a scenario are one point.
    """
    return _ENCODER.encode(_plain(value)).encode()


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON of `value`, as 64 hex characters."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's bytes, as 64 hex characters."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_LEAVES = frozenset({str, int, bool, type(None)})  # written unchanged; this check saves most calls


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): item if type(item) in _LEAVES else _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _LEAVES else _plain(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value
