"""HTML whose text is escaped unless it is `Markup` of markupsafe, which stays markup when joined."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import starmap
from typing import Any

from markupsafe import Markup, escape

from benchhouse.schema.quoting import visible

Content = str | None
_LONGEST = 500  # characters that a cell shows before it is clamped
CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def tag(name: str, /, *content: Content, **attributes: str | int | bool | None) -> Markup:
    """Return one element. `class_` and `for_` lose their underscore, `data_ref` becomes data-ref, None and False
    vanish."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escaped(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    # Markup's own % and join escape too, and take two to six times as long.
    if name in ("input", "br", "link", "meta"):
        return Markup(f"<{name}{written}>")  # noqa: S704
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")  # noqa: S704


def join(*content: Content) -> Markup:
    return Markup("".join([_escaped(item) for item in content if item is not None]))  # noqa: S704 - escaped here


def _escaped(item: str | int) -> Markup:
    return item if isinstance(item, Markup) else escape(visible(item) if isinstance(item, str) else item)


@cache
def asset(name: str) -> Markup:
    """Return a style sheet or script of this package, for inclusion in a page."""
    content = resources.files("benchhouse.report").joinpath("assets", name).read_text(encoding="utf-8")
    return Markup(content)  # noqa: S704 - part of this package


def embedded_json(value: Any) -> Markup:
    """Return JSON for a script element: no `<`, `>`, or `&` in it can end or open anything."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, code in (("<", "003c"), (">", "003e"), ("&", "0026"), ("\u2028", "2028"), ("\u2029", "2029")):
        encoded = encoded.replace(character, f"\\u{code}")
    return Markup(visible(encoded))  # noqa: S704 - made harmless above


def document(title: str, *body: Content) -> str:
    """Return a whole page that opens offline: it includes its styles and makes no requests."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=CSP),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", asset("report.css")),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), label: str = "", row_head: int = 0
) -> Markup:
    """Return a table with its own scrolling; `right` names the columns of numbers, and a row may already be markup.

    With a `label` it can be scrolled by keyboard, and the column `row_head` is the head of each row.
    """
    numbers = set(right)

    def cell(at: int, text: str) -> Markup:
        text = clamped(text)
        if not label:
            return tag("td", text, class_="n" if at in numbers else None)
        is_head = at == row_head
        side = "n" if at in numbers else "words"
        return tag("th" if is_head else "td", text, class_=side, scope="row" if is_head else None)

    head = [tag("th", text, class_="n" if at in numbers else None, scope="col") for at, text in enumerate(heads)]
    body = [row if isinstance(row, Markup) else tag("tr", *starmap(cell, enumerate(row))) for row in rows]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    region: dict[str, Any] = {"tabindex": 0, "role": "region", "aria_label": label} if label else {}
    return tag("div", whole, class_="scroll", **region)


def clamped(text: str) -> str:
    """Return a cell's text; if it is too long for a screen, such as a name of 10 kB, only the first lines are
    visible."""
    return text if isinstance(text, Markup) or len(text) <= _LONGEST else tag("span", text, class_="long")


def details(summary: Content, more: str, *content: Content, **attributes: bool) -> Markup:
    """Return a folded part, whose summary begins in bold."""
    return tag("details", tag("summary", tag("b", summary), more or None), *content, **attributes)


def marked(name: str, mark: str | None) -> Markup:
    """Return a name followed by `best`, `median`, or `worst`, which is visible on narrow screens too."""
    return join(name, " ", tag("span", mark, class_=f"place {mark}")) if mark else join(name)
