"""HTML that escapes by itself: text becomes markup only through `tag`, which escapes it."""

import json
from html import escape
from typing import Any


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Content = str | None


def text(content: Content) -> Markup:
    """Markup as it is, anything else escaped."""
    if content is None:
        return Markup("")
    return content if isinstance(content, Markup) else Markup(escape(str(content), quote=True))


def tag(name: str, /, *content: Content, **attributes: str | int | bool | None) -> Markup:
    """One element. `class_` and `for_` lose their underscore, `data_ref` becomes data-ref, None and False vanish."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in ("input", "br", "meta"):
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    return Markup("".join(text(item) for item in content))


def embedded_json(value: Any) -> Markup:
    """JSON that can stand inside a script element: no `<`, `>` or `&` in it can end or open anything."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, code in (("<", "003c"), (">", "003e"), ("&", "0026"), ("\u2028", "2028"), ("\u2029", "2029")):
        encoded = encoded.replace(character, f"\\u{code}")
    return Markup(encoded)
