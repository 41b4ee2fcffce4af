"""Which parameters are secrets, so that their values stay out of plans, evidence, logs and reports."""

import functools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

_SECRET_KEY = re.compile(
    r"(^|[_.-])(password|passwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)$"
    r"|^token$|(^|[_.-])(auth|access|api|bearer|hf|session)[_-]?token$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"^\$(?:\{(\w+)\}|(\w+))$")
_KEY_SHAPES = re.compile(
    r"(AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----)"
)
REDACTED = "[redacted]"


@functools.lru_cache(4096)
def is_secret_key(name: str) -> bool:
    """Whether a parameter of that name holds a secret (password, token, api_key, ...)."""
    return bool(_SECRET_KEY.search(name))


def reference(value: Any) -> str | None:
    """The variable that `$NAME` or `${NAME}` refers to, or None when `value` is anything else."""
    match = _REFERENCE.match(value) if isinstance(value, str) else None
    return (match[1] or match[2]) if match else None


def resolve(parameters: Any, environ: Mapping[str, str]) -> Any:
    """Replace the `$NAME` of secret parameters by the variable's value: in the worker, in memory only."""
    if isinstance(parameters, dict):
        return {
            key: environ.get(reference(item) or "", item) if is_secret_key(key) and reference(item) else
            resolve(item, environ)
            for key, item in parameters.items()
        }  # fmt: skip
    if isinstance(parameters, list):
        return [resolve(item, environ) for item in parameters]
    return parameters


def secret_values(parameters: Any, environ: Mapping[str, str]) -> list[str]:
    """The values that the secret parameters refer to, longest first."""
    found: set[str] = set()

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                walk(item, str(name))
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif is_secret_key(key) and (name := reference(value)) and len(environ.get(name, "")) >= 4:
            found.add(environ[name])

    walk(parameters)
    return sorted(found, key=len, reverse=True)


def redactor(parameters: Any, environ: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """A function that blanks the secret values, and well-known key shapes, in a text."""
    values = secret_values(parameters, environ)

    def redact(text: str) -> str:
        for value in values:
            text = text.replace(value, REDACTED)
        return _KEY_SHAPES.sub(REDACTED, text)

    return redact
