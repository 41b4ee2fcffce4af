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
_SECRET_VARIABLE = re.compile(
    r"(^|_|^PG)(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)$|_(PWD|KEY)$",
    re.IGNORECASE,
)
_MADE_UP = "made-up-"
_MENTION = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
_REFERENCE = re.compile(r"^\$(?:\{(\w+)\}|(\w+))$")
_KEY_SHAPES = re.compile(
    r"(AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+"  # its body, also with line ends as programs write them
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{0,15}(?:\s|\\[nr])*+-----END [A-Z ]*PRIVATE KEY-----)?)"
)
_KEY_MARKS = ("AKIA", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_", "xox", "PRIVATE KEY-----")

_IN_TEXT = re.compile(
    r"://[^\s/@:]*:([^\s/@]+)@"  # a password in an address
    r"|https?://([^\s/@:]+)@"  # a key in front of a web server's
    r"|(?:^|[\s;&?])password\s*=\s*('[^']*'|[^\s;&]+)",
    re.IGNORECASE,
)
REDACTED = "[redacted]"
_SHORTEST = 4  # a shorter secret would blank half of every text
_SHORTEST_LINE = 8  # of a secret of several lines, such as a key file's content


@functools.lru_cache(4096)
def is_secret_key(name: str) -> bool:
    """Whether a parameter of that name holds a secret (password, token, api_key, ...)."""
    return bool(_SECRET_KEY.search(name))


@functools.lru_cache(4096)
def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of that name holds a secret (HF_TOKEN, MYSQL_PWD, ...)."""
    return bool(_SECRET_VARIABLE.search(name))


def reference(value: Any) -> str | None:
    """The variable that `$NAME` or `${NAME}` refers to, or None when `value` is anything else."""
    match = _REFERENCE.match(value) if isinstance(value, str) else None
    return (match[1] or match[2]) if match else None


def make_up() -> str:
    """A generated secret for a server that is started; nobody has to remember or to hide it."""
    from secrets import token_hex

    return f"{_MADE_UP}{token_hex(16)}"


def is_made_up(secret: str) -> bool:
    return secret.startswith(_MADE_UP)


def mentioned(text: str) -> set[str]:
    """Names of the variables that a text refers to."""
    return {match[1] or match[2] for match in _MENTION.finditer(text)}


def exposed(text: str) -> str | None:
    """What in a text is a secret that anybody can read: a password or key in an address, a key of a well-known shape.

    A variable in its place is kept as a reference only if its name says that it is a secret.
    """
    for match in _IN_TEXT.finditer(text):
        part: str = next(filter(None, match.groups())).strip("'")
        name = reference(part)
        if part and (name is None or not is_secret_variable(name)):
            return part
    shape = _KEY_SHAPES.search(text)
    return shape[0] if shape else None


def resolve(parameters: Any, environ: Mapping[str, str], key: str = "") -> Any:
    """Put in the values of secret variables: in the worker, in memory only.

    A secret parameter that is `$NAME` as a whole, and `$NAME` anywhere in a text where the variable is a secret.
    """
    if isinstance(parameters, dict):
        return {name: resolve(item, environ, str(name)) for name, item in parameters.items()}
    if isinstance(parameters, list):
        return [resolve(item, environ, key) for item in parameters]
    if not isinstance(parameters, str) or "$" not in parameters:
        return parameters
    if is_secret_key(key) and (name := reference(parameters)):
        return environ.get(name, parameters)

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environ.get(name, match[0]) if is_secret_variable(name) else match[0]

    return _MENTION.sub(value, parameters)


def secret_values(parameters: Any, environ: Mapping[str, str]) -> list[str]:
    """The values of all secrets that the parameters refer to, longest first; of one with several lines, each too."""
    values: set[str] = set()

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                walk(item, str(name))
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, str):
            whole = reference(value) if is_secret_key(key) else None
            names = (name for name in mentioned(value) if is_secret_variable(name) or name == whole)
            values.update(environ.get(name, "") for name in names)

    walk(parameters)
    values |= {line for value in values for line in value.splitlines() if len(line) >= _SHORTEST_LINE}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def redactor(parameters: Any, environ: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """A function that blanks the secret values, and well-known key shapes, in a text."""
    values = secret_values(parameters, environ)

    def redact(text: str) -> str:
        for value in values:
            text = text.replace(value, REDACTED)
        return redact_keys(text)

    return redact


def redact_keys(text: str) -> str:
    """Blanks keys of well-known shapes. Looking for what each begins with is cheaper than one search for all shapes."""
    return _KEY_SHAPES.sub(REDACTED, text) if any(mark in text for mark in _KEY_MARKS) else text
