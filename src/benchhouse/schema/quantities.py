"""Durations and sizes as people write them: `90s`, `10m`, `1h30m`, `512MiB`, `4GB`."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from benchhouse.schema.quoting import quote

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30, "ti": 2**40, "tib": 2**40,
}  # fmt: skip
_LEAST_MEMORY = 2**20
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_seconds(value: Any) -> Any:
    """Convert `1h30m`, `250ms` or a plain number (seconds) to seconds; raise ValueError for other text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    total, at = 0.0, 0
    for match in _PART.finditer(text):
        unit = match[2].lower()
        if match.start() != at or unit not in _SECONDS:
            break
        total, at = total + float(match[1]) * _SECONDS[unit], match.end()
    if not text or at != len(text):
        raise ValueError(f"{quote(value)} is not a duration: write 90s, 10m, 1h30m or a number of seconds")
    return total


def parse_bytes(value: Any) -> Any:
    """Convert `4GB` (10^9), `4GiB` (2^30) or a plain number to bytes; raise ValueError for other text."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    size = float(match[1]) * _BYTES.get(match[2].lower(), math.inf) if match else math.inf
    if math.isinf(size):
        raise ValueError(f"{quote(value)} is not a size: write 512MiB, 4GB or a number of bytes")
    return round(size)


def _with_unit(size: int) -> int:
    """Return a memory size; raise ValueError if it is so small that its unit was probably forgotten."""
    if 0 < size < _LEAST_MEMORY:
        raise ValueError(f"{size} bytes of memory: give the unit, {size}MiB or {size}GiB")
    return size


def parse_share(value: Any) -> Any:
    """Convert `2%` to 0.02; a plain number is unchanged; raise ValueError for other text."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)
    if not match:
        raise ValueError(f"{quote(value)} is not a share: write 2% or 0.02")
    return float(match[1]) / 100.0


def _or_text(kind: str, example: str, quantity: str) -> WithJsonSchema:
    """Return the JSON Schema: a number, or text such as `example`; `quantity` is for programs that generate models from
    it.
    """
    text = {"type": "string", "format": f"quantity-{quantity}", "pattern": r"^\s*\d", "examples": [example]}
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, text]})


Seconds = Annotated[
    float, BeforeValidator(parse_seconds), Field(ge=0, allow_inf_nan=False), _or_text("number", "1h30m", "s")
]
Share = Annotated[
    float, BeforeValidator(parse_share), Field(gt=0, lt=1, allow_inf_nan=False), _or_text("number", "2%", "share")
]
Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0), _or_text("integer", "512MiB", "bytes")]


Memory = Annotated[Bytes, AfterValidator(_with_unit)]


def show_seconds(seconds: float) -> str:
    """Return a duration for people: `870 ms`, `12.3 s`, `4 m 05 s`, `2 h 10 m`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} m"


def show_bytes(size: float) -> str:
    """Return a size for people: `2 GB` if that is exact, otherwise in powers of 1024: `12 B`, `3.4 MiB`."""
    for name, decimal in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= decimal and size % decimal == 0:
            return f"{size / decimal:g} {name}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
