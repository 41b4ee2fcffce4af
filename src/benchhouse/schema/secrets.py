"""The only place that decides which texts are secrets, so that their values stay out of plans, evidence, logs, and
reports.

A secret is written as a reference, `$NAME`, and stays one in everything that is stored. `resolve` replaces it only in
the memory of the process that uses it. If a program prints a secret, it is redacted in all forms of `echoes`.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_SECRET_KEY = re.compile(
    r"(^|[_.-])(password|passwd|secret|credentials?|(api|access|secret|private|subscription)[._-]?key)$"
    r"|(^|\.)token$|(^|[_.-])(auth|access|api|bearer|hf|session)[_-]?token$"
    r"|^(proxy-)?authorization$|^(set-)?cookie$|^x-[a-z-]*(auth|token|key|secret)$",  # lines of an HTTP header
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"(^|_|^PG)(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)$|_(PWD|KEY)$",
    re.IGNORECASE,
)
_SECRET_FILE = re.compile(r"(^|[_.-])(credentials?|password|passwd|secret|token|key)[_-]?file$", re.IGNORECASE)
_ENTRY = re.compile(r"^\s*([\w.-]+)\s*[=:]\s*(.*?)\s*$", re.MULTILINE)
_LARGEST_FILE = 1 << 20
_READ_BY_DRIVERS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
"""Variables that drivers read without a reference in the scenario."""
_MADE_UP = "made-up-"
_MENTION = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
_REFERENCE = re.compile(r"^\$(?:\{(\w+)\}|(\w+))$")
_CREDENTIAL = re.compile(r"^(?:[A-Za-z][\w-]*(?: +|=))?(\$(?:\{\w+\}|\w+))$")  # `Bearer $NAME`, `session=$NAME`
_KEY_SHAPES = re.compile(
    r"(AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|bht_[A-Za-z0-9_-]{40,}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+"  # its body, also with escaped line ends
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{0,15}(?:\s|\\[nr])*+-----END [A-Z ]*PRIVATE KEY-----)?)"
)
_KEY_MARKS = ("AKIA", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_", "bht_", "xox", "PRIVATE KEY-----")

# The text between `://` and the `@` before the host. It may be a password with a slash, if the text before the slash is
# not a port.
_USERINFO = re.compile(r"://(?:([^\s/?#]*)|((?!\[)[^\s/?#@:]*:(?!(?:\d*|\{\w+\}|\$\{?\w+\}?)[/?#])(?:(?!://)\S)*))@")
_IN_TEXT = re.compile(
    r"(?:^|[\s;&?]|--)(?:password|passwd)\s*=\s*('[^']*'|[^\s;&]+)"
    r"|(?:[?&]|--)(?:api[_-]?key|(?:access|auth)[_-]?token|token|secret|sig|signature|x-amz-signature)=([^\s&#]+)"
    r"|authorization\s*:\s*(?:bearer|basic|token|apikey)\s+([^\s\"']+)",
    re.IGNORECASE,
)
_PAIR = re.compile(r"([\w.-]+)[\"']?\s*:\s*([^\s,{}\[\]]+)")
_RESERVED = "/?#@[] "  # characters that would end the userinfo of an address
REDACTED = "[redacted]"
_SHORTEST = 4  # redacting a shorter secret would affect half of every text
_SHORTEST_UNNAMED = 8  # variables without a reference: a shorter value may be an ordinary word
_SHORTEST_LINE = 8  # lines of a secret with several lines, such as a key file
_SHORTEST_BASE64 = 6  # fewer letters occur in random data by chance


@functools.lru_cache(4096)
def is_secret_key(name: str) -> bool:
    """Return whether a parameter or header of that name holds a secret (password, token, Authorization, ...)."""
    return bool(_SECRET_KEY.search(name))


@functools.lru_cache(4096)
def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable of that name holds a secret (HF_TOKEN, MYSQL_PWD, ...)."""
    return bool(_SECRET_VARIABLE.search(name))


def holds_secret(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether a variable stays a reference, because of its name, or its value, such as an address with a
    password.
    """
    return is_secret_variable(name) or exposed(environ.get(name, "")) is not None


def is_plain_secret(variable: str, value: str) -> bool:
    """Return whether setting `variable` to `value` shows a secret to everybody who can read the file."""
    return exposed(value) is not None or (is_secret_variable(variable) and credential(value) is None)


def reference(value: Any) -> str | None:
    """Return the variable that `$NAME` or `${NAME}` refers to; None for any other value."""
    match = _REFERENCE.match(value) if isinstance(value, str) else None
    return (match[1] or match[2]) if match else None


def credential(value: Any) -> str | None:
    """Return the variable in a secret parameter, `$NAME` or in a header `Bearer $NAME`; None if there is none."""
    match = _CREDENTIAL.match(value) if isinstance(value, str) else None
    return reference(match[1]) if match else None


def make_up() -> str:
    """Return a generated secret for a server; no person has to know or store it."""
    from secrets import token_hex

    return f"{_MADE_UP}{token_hex(16)}"


def is_made_up(secret: str) -> bool:
    return secret.startswith(_MADE_UP)


def mentioned(text: str) -> set[str]:
    """Return the names of the variables that a text refers to."""
    return {match[1] or match[2] for match in _MENTION.finditer(text)}


def split_userinfo(url: str) -> tuple[str, str]:
    """Split an address into the part without `name:password@`, and that part; unlike urlsplit, allow slashes in
    passwords.
    """
    match = _USERINFO.search(url)
    if match is None:
        return url, ""
    return f"{url[: match.start()]}://{url[match.end() :]}", match[1] or match[2] or ""


def user_and_password(url: str) -> tuple[str, str, str]:
    """Return an address without `name:password@`, the name, and the password, both decoded."""
    from urllib.parse import unquote

    address, userinfo = split_userinfo(url)
    user, _, password = userinfo.partition(":")
    return address, unquote(user), unquote(password)


def without_secrets(url: str) -> str:
    """Return an address for messages, without credentials and without the query, which may have keys."""
    return re.split(r"[?#]", split_userinfo(url)[0], maxsplit=1)[0]


def _in_addresses(text: str) -> Iterator[str]:
    """Yield the passwords in the addresses of a text; for http and https also a key alone before the `@`."""
    for match in _USERINFO.finditer(text):
        user, _, password = (match[1] or match[2] or "").partition(":")
        if part := password or (user if text[: match.start()].lower().endswith(("http", "https")) else ""):
            yield part


def exposed(text: str) -> str | None:
    """Return the first secret in plain text: a password or key in an address, or a key of a well-known form; None if
    none.

    A variable in its place counts as a reference only if its name marks it as a secret.
    """
    in_words = (next(filter(None, match.groups())).strip("'") for match in _IN_TEXT.finditer(text))
    part: str
    for part in (*_in_addresses(text), *in_words):
        name = reference(part)
        if part and (name is None or not is_secret_variable(name)):
            return part
    shape = _KEY_SHAPES.search(text)
    return shape[0] if shape else None


def shows_secret(line: str) -> bool:
    """Return whether a line of a YAML file holds a secret in plain text."""
    pairs = ((match[1], match[2]) for match in _PAIR.finditer(line))
    return exposed(line) is not None or any(
        (is_secret_key(key) or is_secret_variable(key)) and "$" not in value for key, value in pairs
    )


def resolve(parameters: Any, environ: Mapping[str, str], key: str = "") -> Any:
    """Return the parameters with the values of secret variables, for use in memory only.

    Replaces every variable in a secret parameter, and elsewhere those that hold a secret. Between `://` and `@`,
    reserved characters of a value are percent-encoded.
    """
    if isinstance(parameters, dict):
        return {name: resolve(item, environ, str(name)) for name, item in parameters.items()}
    if isinstance(parameters, list):
        return [resolve(item, environ, key) for item in parameters]
    if not isinstance(parameters, str) or "$" not in parameters:
        return parameters
    in_address = [match.span() for match in _USERINFO.finditer(parameters)]

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ or not (is_secret_key(key) or holds_secret(name, environ)):
            return match[0]
        is_inside = any(start <= match.start() < end for start, end in in_address)
        return _fit_for_address(environ[name]) if is_inside else environ[name]

    return _MENTION.sub(value, parameters)


def escape(value: Any, environ: Mapping[str, str], key: str = "") -> Any:
    """Reverse the expansion of variables: `$` in plain text is escaped, and a reference to a secret is unchanged."""
    if isinstance(value, dict):
        return {name: escape(item, environ, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [escape(item, environ, key) for item in value]
    if not isinstance(value, str) or "$" not in value or is_secret_key(key):
        return value
    pieces, end = [], 0
    for match in _MENTION.finditer(value):
        if holds_secret(match[1] or match[2], environ):
            pieces += [value[end : match.start()].replace("$", "$$"), match[0]]
            end = match.end()
    return "".join([*pieces, value[end:].replace("$", "$$")])


def _fit_for_address(value: str) -> str:
    from urllib.parse import quote

    return "".join(quote(char, safe="") if char in _RESERVED else char for char in value)


def secret_values(parameters: Any, environ: Mapping[str, str], folder: str = "") -> list[str]:
    """Return the values of all secrets that a program may print, longest first, and each line of those with several.

    These are the secrets that the parameters refer to, and every variable whose name says that it holds one. A file of
    credentials that the parameters name (`credentials_file`) is read; a relative path starts in `folder`.
    """
    values = {environ.get(name, "") for name in _READ_BY_DRIVERS}
    values |= {value for name, value in environ.items() if len(value) >= _SHORTEST_UNNAMED and is_secret_variable(name)}

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                walk(item, str(name))
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, str) and value and _SECRET_FILE.search(key):
            values.update(_in_file(Path(folder, Path(value).expanduser())))
        elif isinstance(value, str) and "$" in value:
            names = (name for name in mentioned(value) if is_secret_key(key) or holds_secret(name, environ))
            values.update(environ.get(name, "") for name in names)

    walk(parameters)
    values |= {line for value in values for line in value.splitlines() if len(line) >= _SHORTEST_LINE}
    values |= {part for value in values for part in _in_addresses(value)}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def _in_file(path: Path) -> list[str]:
    """Return the named secrets of a file such as ~/.aws/credentials, or its whole text if none is named.

    Empty for a file that cannot be read, because no program can print its secrets either.
    """
    try:
        if not path.is_file():  # reading a pipe would block
            return []
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return []
    named = [
        match[2]
        for match in _ENTRY.finditer(text)
        if is_secret_key(match[1]) or match[1].lower().endswith("access_key_id")
    ]
    return named or [text]


def echoes(values: list[str]) -> list[str]:
    """Return all forms in which a program may print these texts, longest first.

    The forms are: unchanged, in JSON, HTML, and Python notation, URL-encoded (once or twice), in base64 (also as a part
    of something longer), and in hexadecimal digits.
    """
    forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
    return sorted(forms | set(values), key=len, reverse=True)


def _forms(value: str) -> Iterator[str]:
    import json
    from urllib.parse import quote, quote_plus, unquote

    plain = {value, unquote(value)}
    for text in plain:
        raw = text.encode("utf-8", "surrogateescape")
        yield text
        for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            yield from (escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1])
        in_html = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for double, single in (('"', "'"), ("&quot;", "&#x27;"), ("&#34;", "&#39;")):
            yield in_html.replace('"', double).replace("'", single)
        yield from (repr(text)[1:-1], repr(raw)[2:-1], _fit_for_address(text))
        yield from (raw.hex(), raw.hex().upper(), raw.hex(" "), raw.hex(":"))
        every = "".join(f"%{byte:02X}" for byte in raw)
        for coded in (quote(raw, safe=""), quote(raw), quote_plus(raw), every):
            yield from (coded, re.sub("%..", lambda match: match[0].lower(), coded), quote(coded, safe=""))
        yield from _in_base64(raw)


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield the base64 forms at the three possible offsets, without the letters that depend on neighboring bytes."""
    from base64 import b64encode
    from urllib.parse import quote

    for before, shared in ((0, 0), (1, 2), (2, 3)):
        letters = b64encode(bytes(before) + raw).decode()[shared : 8 * (before + len(raw)) // 6]
        if len(letters) >= _SHORTEST_BASE64:
            yield from (letters, letters.replace("+", "-").replace("/", "_"), quote(letters, safe=""))


def redactor(parameters: Any, environ: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """Return a function that redacts the secrets that the parameters refer to, and keys of well-known forms."""
    return blanker(secret_values(parameters, environ))


def blanker(values: list[str]) -> Callable[[str], str]:
    """Return a function that redacts these values in all their forms, and keys of well-known forms."""
    forms = echoes(values)

    def redact(text: str) -> str:
        for form in forms:
            text = text.replace(form, REDACTED)
        return redact_keys(text)

    return redact


def redact_keys(text: str) -> str:
    """Redact keys of well-known forms. Searching for their prefixes first is cheaper than one search for all forms."""
    return _KEY_SHAPES.sub(REDACTED, text) if any(mark in text for mark in _KEY_MARKS) else text
