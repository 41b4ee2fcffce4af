"""HTML whose text is escaped unless it says that it is markup: by markupsafe, whose `Markup` keeps that when joined."""

import json
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

Content = str | None


def tag(name: str, /, *content: Content, **attributes: str | int | bool | None) -> Markup:
    """One element. `class_` and `for_` lose their underscore, `data_ref` becomes data-ref, None and False vanish."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    # Markup's own % and join escape too, and take two to six times as long.
    if name in ("input", "br", "meta"):
        return Markup(f"<{name}{written}>")  # noqa: S704
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")  # noqa: S704


def join(*content: Content) -> Markup:
    return Markup("".join([escape(item) for item in content if item is not None]))  # noqa: S704 - escaped here


@cache
def asset(name: str) -> Markup:
    """A style sheet or script of ours, to be written into a page as it is."""
    content = resources.files("benchhouse.report").joinpath("assets", name).read_text(encoding="utf-8")
    return Markup(content)  # noqa: S704 - part of this package


def embedded_json(value: Any) -> Markup:
    """JSON that can stand inside a script element: no `<`, `>` or `&` in it can end or open anything."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, code in (("<", "003c"), (">", "003e"), ("&", "0026"), ("\u2028", "2028"), ("\u2029", "2029")):
        encoded = encoded.replace(character, f"\\u{code}")
    return Markup(encoded)  # noqa: S704 - made harmless above
