"""A short document as blocks, written as one offline HTML file and as Markdown, with the same text in both."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from benchhouse.report.markdown_text import block as listing
from benchhouse.report.tags import clamped, document, tag
from benchhouse.schema.quoting import visible

_LONG = 40  # a longer cell may be broken


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list; commands and paths are set as code."""

    lines: Sequence[str]
    code: bool = False


@dataclass(frozen=True)
class Grid:
    """A table."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Listing:
    """Text of a file, unchanged."""

    text: str


Block = Heading | Words | Items | Grid | Listing


@dataclass(frozen=True)
class Page:
    """A title, the one sentence that matters, and the rest."""

    title: str
    lead: str
    blocks: Sequence[Block]


def as_html(page: Page) -> str:
    """Return one HTML file that includes its styles, has no script, and makes no requests."""
    header = tag("header", tag("h1", page.title), tag("p", page.lead, class_="verdict"), class_="top")
    return document(page.title, header, tag("main", *sections(page)))


def sections(page: Page) -> list[Markup]:
    """Return the sections below the title and the lead."""
    parts: list[tuple[str, list[Block]]] = [("", [])]
    for block in page.blocks:
        if isinstance(block, Heading):
            parts.append((block.text, []))
        else:
            parts[-1][1].append(block)
    return [
        tag("section", tag("h2", title) if title else None, *map(_html, blocks)) for title, blocks in parts if blocks
    ]


def _html(block: Block) -> Markup:
    match block:
        case Heading(text):
            return tag("h2", text)
        case Words(text):
            return tag("p", *_marked(text))
        case Items(lines, code):
            return tag("ul", *(tag("li", *([tag("code", line)] if code else _marked(line))) for line in lines))
        case Grid(heads, rows):
            head = tag("thead", tag("tr", *(tag("th", text) for text in heads)))
            wraps = [
                [tag("td", clamped(cell), class_="wrap" if len(cell) > _LONG else None) for cell in row] for row in rows
            ]
            body = tag("tbody", *(tag("tr", *cells) for cells in wraps))
            label = ", ".join(heads)
            return tag("div", tag("table", head, body), class_="scroll", tabindex=0, role="region", aria_label=label)
        case Listing(text):
            return tag("pre", text, tabindex=0)


def _marked(text: str) -> list[str | Markup]:
    """Return text in which the parts between two backticks are code, as in Markdown."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return [text]
    return [tag("code", part) if at % 2 else part for at, part in enumerate(parts)]


def as_markdown(page: Page) -> str:
    parts = [f"# {_plain(page.title)}", _plain(page.lead), *map(_markdown, page.blocks)]
    return visible("\n\n".join(parts) + "\n")


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"## {_plain(text)}"
        case Words(text):
            return _plain(text)
        case Items(items, code):
            return "\n".join(f"- `{line}`" if code else f"- {_plain(line)}" for line in items)
        case Grid(heads, rows):
            table: list[Sequence[str]] = [heads, ["---"] * len(heads), *rows]
            lines = ((_plain(cell).replace("|", "\\|") for cell in row) for row in table)
            return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        case Listing(text):
            return listing(text)


def _plain(text: str) -> str:
    """Return text on one line, without anything that Markdown would interpret as HTML."""
    return " ".join(text.split()).replace("<", "&lt;")
