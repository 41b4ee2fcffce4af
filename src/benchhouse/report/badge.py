"""A badge as SVG: a name and a value side by side, with a text for screen readers, without scripts or style sheets."""

import unicodedata

from markupsafe import Markup

from benchhouse.report.tags import tag

_COLOURS = {"good": "#2a7d2e", "regressed": "#b3261e", "unknown": "#616161"}  # white on each has a contrast above 5
_LONGEST = 60
_HEIGHT, _PADDING, _SIZE, _BASELINE = 20, 6, 11, 14
_FONT = "Verdana,DejaVu Sans,Geneva,sans-serif"
_NARROW = frozenset("fijlrtI.,:;'|!()[]/ \u2009\u00a0")


def badge(name: str, value: str, verdict: str, description: str) -> str:
    """Return a badge. `verdict` is good, regressed, or unknown; `description` is read aloud and shown as a tooltip."""
    left, right = (_cut(text) for text in (name, value))
    widths = [_width(text) + 2 * _PADDING for text in (left, right)]
    text = _cut(description, 3 * _LONGEST)
    drawing = tag(
        "svg",
        tag("title", text),
        tag("rect", width=widths[0], height=_HEIGHT, fill="#444"),
        tag("rect", x=widths[0], width=widths[1], height=_HEIGHT, fill=_COLOURS[verdict]),
        tag(
            "g",
            _text(left, 0, widths[0]),
            _text(right, widths[0], widths[1]),
            fill="#fff",
            font_family=_FONT,
            font_size=_SIZE,
            text_anchor="middle",
        ),
        xmlns="http://www.w3.org/2000/svg",
        width=sum(widths),
        height=_HEIGHT,
        role="img",
        aria_label=text,
    )
    return f"{drawing}\n"


def _text(text: str, left: int, width: int) -> Markup:
    """Return text that is fitted into its half in any font."""
    length = {"textLength": max(1, width - 2 * _PADDING)}
    return tag("text", text, x=left + width // 2, y=_BASELINE, lengthAdjust="spacingAndGlyphs", **length)


def _cut(text: str, longest: int = _LONGEST) -> str:
    """Return shortened text without characters that are invisible or change the writing direction, as both can
    deceive."""
    plain = "".join(sign for sign in text if unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def _width(text: str) -> int:
    """Return the approximate width of the text in pixels."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    narrow = sum(sign in _NARROW for sign in text)
    return 7 * len(text) + 5 * wide - 3 * narrow
