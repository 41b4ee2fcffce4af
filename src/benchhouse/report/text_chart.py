"""Values with their intervals as a text chart, for places without images, or with images only at public addresses."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from benchhouse.results.numbers import percent
from benchhouse.schema.quoting import printable

_WIDTH = 49
_LONGEST_LABEL = 40
_MOST = 1e6  # beyond this, all values look alike


@dataclass(frozen=True)
class ChangeBar:
    """A row: a relative change, and its interval if there is one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def change_chart(bars: Sequence[ChangeBar], limit: float) -> str:
    """Return one row per bar on one axis, with a line at no change and one at the limit; values beyond end in an arrow.

    The result does not end with a newline; a line break in a label does not break its row.
    """
    values = [_clipped(bar.value) for bar in bars]
    left, right = min(0.0, *values), max(0.0, limit, *values)
    span = right - left or 1.0
    ends = [_clipped(end) for bar in bars for end in (bar.low, bar.high) if end is not None]
    left, right = max(left - span, min([left, *ends])), min(right + span, max([right, *ends]))
    right = right if right > left else left + 1.0
    labels = [printable(" ".join(bar.label.split())) for bar in bars]
    room = min(_LONGEST_LABEL, max(map(cell_len, labels)))

    def at(value: float) -> int:
        return round((min(max(_clipped(value), left), right) - left) / (right - left) * (_WIDTH - 1))

    axis, lines = [" "] * _WIDTH, []
    for text, value in ((percent(limit), limit), ("0", 0.0)):
        begin = min(max(0, at(value) - len(text) // 2), _WIDTH - len(text))
        if not "".join(axis[begin : begin + len(text)]).strip():  # otherwise the two are too near
            axis[begin : begin + len(text)] = text
    lines.append(f"{'':{room}}  {''.join(axis)}".rstrip())
    for label, bar in zip(labels, bars, strict=True):
        cells = [" "] * _WIDTH
        cells[at(limit)], cells[at(0.0)] = "┊", "│"
        if bar.low is not None and bar.high is not None:
            begin, end = at(bar.low), at(bar.high)
            cells[begin : end + 1] = "─" * (end + 1 - begin)
            cells[begin] = "◀" if bar.low < left else "├"
            cells[end] = "▶" if bar.high > right else "┤"
        cells[at(bar.value)] = "●"
        name = label if cell_len(label) <= room else f"{set_cell_size(label, room - 1)}…"
        lines.append(f"{set_cell_size(name, room)}  {''.join(cells)}".rstrip())
    return "\n".join(lines)


def _clipped(value: float) -> float:
    return min(max(value, -_MOST), _MOST)
