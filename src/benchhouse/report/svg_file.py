"""A drawing of the page as a standalone file: with its title, its key, and colors instead of variables."""

import re
import textwrap
from collections.abc import Mapping

from markupsafe import Markup

from benchhouse.report.tags import asset, join, tag

_LETTER = 7.0  # average width of a letter
_BOLD = 7.9  # the same for the title
_LINE, _KEY, _MARGIN = 18, 20, 12
_VIEW = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--soft)}"
    ".title{font-size:13px;font-weight:600;fill:var(--ink)}.name{fill:var(--ink)}.grid{stroke:var(--line)}"
    ".zero{stroke:var(--faint);stroke-dasharray:3 3}.over-time{fill:none;stroke-width:1.6;opacity:.9}"
    ".phase{opacity:.1;fill:var(--c5)}.warmup{fill:var(--c4)}.steady{fill:var(--c2)}.teardown{fill:var(--c7)}"
)


def svg_file(drawing: Markup, title: str, keys: Mapping[str, str] | None = None) -> str:
    """Return the file. `keys` are the colors of the drawing by label; readers of SVG files do not support variables."""
    view = _VIEW.search(drawing)
    assert view
    width, height = int(view[1]), int(view[2])
    lines = textwrap.wrap(title, int((width - 2 * _MARGIN) / _BOLD)) or [""]
    heading = [
        tag("text", line, class_="title", x=_MARGIN, y=_MARGIN + 8 + _LINE * at) for at, line in enumerate(lines)
    ]
    top = _MARGIN + _LINE * len(lines) + 6
    key, top = _key(keys or {}, width, top)
    inside = Markup(_VIEW.sub(f'{view[0]} y="{top}" width="{width}" height="{height}"', drawing, count=1))  # noqa: S704
    whole = tag(
        "svg",
        tag("style", Markup(_STYLE)),  # noqa: S704 - our own style sheet
        tag("rect", width="100%", height="100%", fill="var(--paper)"),
        *heading,
        key,
        inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {top + height}",
        width=width,
        height=top + height,
        role="img",
        aria_label=title,
    )
    colours = dict(re.findall(r"--(\w+): (#\w+);", asset("report.css").partition("@media")[0]))
    return _VARIABLE.sub(lambda match: colours[match[1]], f"{whole}\n")


def _key(keys: Mapping[str, str], width: int, top: int) -> tuple[Markup, int]:
    """Return the key of the colors, on as many lines as needed, and its lower end."""
    x, parts = float(_MARGIN), []
    for at, (label, colour) in enumerate(keys.items()):
        needed = 26 + _LETTER * len(label)
        if at and x + needed > width:
            x, top = float(_MARGIN), top + _KEY
        parts.append(tag("circle", cx=f"{x + 4:.1f}", cy=top + 4, r="4", fill=colour))
        parts.append(tag("text", label, x=f"{x + 13:.1f}", y=top + 8))
        x += needed
    return join(*parts), top + _KEY if keys else top
