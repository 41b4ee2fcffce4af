"""Parts of forms that only read (GET), so that the address contains the inputs and can be shared."""

from collections.abc import Iterable

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.report.tags import Content, tag
from benchhouse.serve.pages.shell import link


def ask(request: Request, path: str, *fields: Content, button: str = "Show") -> Markup:
    """Return a form in one line that opens `path` with its inputs."""
    submit = tag("button", button, type="submit", class_="plain")
    return tag("form", *fields, submit, method="get", action=link(request, path), class_="bar")


def choice(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str = "") -> Markup:
    """Return a selection from pairs of a value and its label."""
    items = [tag("option", words, value=value, selected=value == chosen) for value, words in options]
    return tag("label", label, tag("select", *items, name=name))


def field(name: str, label: str, value: str = "", kind: str = "text", **more: str | int | bool | None) -> Markup:
    """Return an input of one line; `kind` is its type."""
    return tag("label", label, tag("input", type=kind, name=name, value=value, **more))
