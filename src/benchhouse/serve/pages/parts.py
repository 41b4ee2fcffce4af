"""Parts of several pages: facts, notes, verdicts, and values as a scenario writes them."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.report.tags import Content, tag

_GOOD, _BAD = ("better", "good", "best", "signed", "holds", "accepted"), ("worse", "regression", "wrong", "CHANGED")


def form_fields(request: Request, *names: str) -> dict[str, str]:
    """Return the inputs of the form; empty text for missing ones."""
    return {name: request.query_params.get(name, "").strip() for name in names}


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    """Return a list of names and values, without the pairs that have no value."""
    return tag(
        "dl", *(part for name, value in pairs if value for part in (tag("dt", name), tag("dd", value))), class_="pairs"
    )


def notes(lines: Sequence[str], title: str = "Notes") -> Markup | None:
    if not any(lines):
        return None
    return tag("section", tag("h2", title), tag("ul", *(tag("li", line) for line in lines if line)))


def verdict(text: str) -> Markup:
    """Return a verdict in color; its meaning never depends on the color."""
    first = text.partition(" ")[0]
    return tag("span", text, class_="good" if first in _GOOD else "bad" if first in _BAD else None)


def written(value: object) -> str:
    """Return a value as a scenario writes it, on one line."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {written(item)}" for key, item in value.items())
    return ", ".join(map(written, value)) if isinstance(value, list | tuple) else str(value)
