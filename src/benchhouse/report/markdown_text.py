"""Pieces of GitHub-flavoured Markdown in which nothing that is shown is obeyed."""

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*\[\]<>#|~@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_ENTITIES = {"<": "&lt;", "@": "&#64;"}
_PIPE = re.compile(r"(?<!\\)\|")


def plain(text: str) -> str:
    """Text as a reader sees it: on one line, and nothing in it is Markdown, HTML or a mention."""
    flat = " ".join(text.splitlines())
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[1], f"\\{match[1]}"), flat)


def code(text: str) -> str:
    """Inline code, fenced by more backticks than it holds."""
    flat = " ".join(text.splitlines()).strip()
    if not flat:
        return ""
    longest = max(map(len, re.findall("`+", flat)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{room}{flat}{room}{fence}"


def block(text: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Cells are Markdown already; a pipe in one, even in code, is escaped."""
    numbers = set(right)
    rule = ["---:" if at in numbers else "---" for at in range(len(heads))]
    lines = ((_PIPE.sub(r"\|", cell) for cell in cells) for cells in (heads, rule, *rows))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def folded(summary: str, content: str) -> str:
    """A part that opens on a click; `summary` is Markdown already."""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"
