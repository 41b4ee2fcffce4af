"""Pieces of GitHub-flavored Markdown in which displayed text never has an effect.

GitHub turns mentions, references to issues and commits, and addresses into links after rendering the Markdown, so
backslashes and entities do not prevent it. Only a zero-width space inside them does.
"""

import html
import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(
    r"\$+|[\\`*\[\]<>#|~&\u200b]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"
    r"|^(?:[-+]|\d{1,9}[.)])(?=\s|$)|^[-=](?=[-=\s]*$)"  # what begins a list, underlines a heading, or is a rule
)
_ENTITIES = {"<": "&lt;", "&": "&amp;", "\u200b": "&#8203;"}
_LINKED = re.compile(
    r"(?<=@)(?=\S)|(?<=#)(?=\S)|(?<=\bGH-)(?=\d)"  # @name, name@host, owner/name@commit; #1, owner/name#1; GH-1
    r"|(?<=:)(?=//)|(?<=\bwww)(?=\.)",
    re.IGNORECASE,
)
_COMMIT = re.compile(r"[0-9a-f]{7,}", re.IGNORECASE)
_PIPE = re.compile(r"(?<!\\)((?:\\\\)*)\|")


def plain(text: str) -> str:
    """Return text on one line, in which nothing is Markdown, HTML, a link, a mention, or a reference."""
    return _SPECIAL.sub(_escaped, _unlinked(text))


def _escaped(match: re.Match[str]) -> str:
    if match[0].startswith("$"):  # so that it does not begin a formula, in the way that GitHub's documentation gives
        return f"<span>{match[0]}</span>"
    return _ENTITIES.get(match[0]) or f"{match[0][:-1]}\\{match[0][-1]}"


def _unlinked(text: str) -> str:
    """Return text on one line in which GitHub finds nothing to link."""
    flat = " ".join(text.splitlines()).strip()
    return _COMMIT.sub(_in_pieces, _LINKED.sub("\u200b", flat))


def _in_pieces(match: re.Match[str]) -> str:
    return "\u200b".join(match[0][at : at + 6] for at in range(0, len(match[0]), 6))


def code(text: str) -> str:
    """Return inline code, fenced by more backticks than it contains."""
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
    """Return a table. Cells are already Markdown; a pipe in one, even in code, is escaped."""
    numbers = set(right)
    rule = ["---:" if at in numbers else "---" for at in range(len(heads))]
    lines = ((_PIPE.sub(r"\1\|", cell) for cell in cells) for cells in (heads, rule, *rows))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def folded(summary: str, content: str) -> str:
    """Return a part that opens on a click; `summary` is text, because GitHub reads no Markdown there."""
    shown = html.escape(_unlinked(summary), quote=False).replace("\u200b", "&#8203;")
    return f"<details><summary>{shown}</summary>\n\n{content}\n\n</details>"
