"""Values with their intervals in rows, as SVG files: leading metrics of a report, and a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from benchhouse.report.tags import join, tag
from benchhouse.report.time_chart import nice_step
from benchhouse.results.content import PointNumber, ReportData
from benchhouse.results.numbers import INVALID, number, plural, titled

_WIDTH, _ROW, _TOP, _BOTTOM, _RIGHT = 760, 24, 44, 44, 90
_LONGEST_LABEL = 44
_MOST_BARS = 24
_MOST_MISSING = 8
_MOST_CHARTS = 12
_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#57606a}"
    ".title{font-size:14px;font-weight:600;fill:#1b1f24}.grid{stroke:#e3e7ea}.zero{stroke:#8a939d}"
)


@dataclass(frozen=True)
class Bar:
    """One row: a mark at `value`, a whisker from `low` to `high` if known. Without a value, only its text is shown."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    colour: str = "#0072b2"


def interval_chart(title: str, axis: str, bars: Sequence[Bar], *, zero: bool = False, inside: bool = False) -> Markup:
    """Return the chart as the text of an SVG file; `zero` draws the line of no change and keeps it in view.

    If `inside` a page, the style sheet of that page applies.
    """
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None] + ([0.0] if zero else [])
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room
    names = [bar.label for bar in bars]
    labels = [name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…" for name in names]
    left = min(320.0, 16 + 7.0 * max((len(label) for label in labels), default=1))
    height = _TOP + _ROW * len(bars) + _BOTTOM

    def x(value: float) -> float:
        return round(left + (value - low) / (high - low) * (_WIDTH - _RIGHT - left), 1)

    step = nice_step(high - low, 6)
    first = -(-low // step) * step
    ticks = [first + step * at for at in range(int((high - first) / step) + 1)]
    base = height - _BOTTOM
    grid = [
        join(
            tag("line", class_="grid", x1=str(x(tick)), x2=str(x(tick)), y1=str(_TOP - 8), y2=str(base)),
            tag("text", number(round(tick, 12)), x=str(x(tick)), y=str(base + 17), text_anchor="middle"),
        )
        for tick in ticks
    ]
    line = tag("line", class_="zero", x1=str(x(0.0)), x2=str(x(0.0)), y1=str(_TOP - 8), y2=str(base)) if zero else None
    rows = [
        _row(bar, label, x, left, _TOP + _ROW * (at + 0.5))
        for at, (bar, label) in enumerate(zip(bars, labels, strict=True))
    ]
    own = (
        tag("style", Markup(_STYLE)),  # noqa: S704 - our own style sheet
        tag("rect", width="100%", height="100%", fill="#ffffff"),
        tag("text", title, class_="title", x="12", y="22"),
    )
    drawing = tag(
            "svg",
            *([] if inside else own),
            *grid,
            line,
            *rows,
            tag("text", axis, x=str((left + _WIDTH - _RIGHT) / 2), y=str(height - 8), text_anchor="middle"),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_WIDTH} {height:g}",
            width=_WIDTH,
            height=f"{height:g}",
            role="img",
            aria_label=title,
    )  # fmt: skip
    return drawing + Markup("\n")


def _row(bar: Bar, label: str, x: Callable[[float], float], left: float, y: float) -> Markup:
    whisker = None
    if bar.low is not None and bar.high is not None:
        ends = f"M{x(bar.low)} {y}H{x(bar.high)}M{x(bar.low)} {y - 4}v8M{x(bar.high)} {y - 4}v8"
        whisker = tag("path", d=ends, stroke=bar.colour, fill="none", stroke_width="1.4")
    return join(
        tag("text", tag("title", bar.label), label, x=str(left - 10), y=str(y + 4), text_anchor="end"),
        whisker,
        None if bar.value is None else tag("circle", cx=str(x(bar.value)), cy=str(y), r="4", fill=bar.colour),
        tag("text", bar.text, x=str(_WIDTH - _RIGHT + 10), y=str(y + 4)) if bar.text else None,
    )


def metric_charts(data: ReportData) -> list[tuple[str, str, str]]:
    """Return the name, title, and SVG text of a chart per leading metric, or of the first metrics if none leads."""
    columns = [column for column in data.columns() if column.primary] or data.columns()
    return [(column.name, *_chart(data, column)) for column in columns[:_MOST_CHARTS]]


def _ends(item: PointNumber) -> tuple[float | None, float | None]:
    """Return the ends of an interval; None if the values themselves show that it would not be valid."""
    return (None, None) if item.doubt else (item.low, item.high)


def _chart(data: ReportData, column: PointNumber) -> tuple[str, str]:
    present = [(point.label, item) for point in data.points if (item := point.number(column.column))]
    missing = [
        Bar(point.label, None, text=INVALID if any(item.column == column.column for item in point.refused) else "none")
        for point in data.points
        if not point.number(column.column)
    ] + [Bar(label, None, text="none") for label in data.without_number]
    if column.direction:
        present.sort(key=lambda item: item[1].cell.value, reverse=column.direction == "higher")
    shown = present[:_MOST_BARS]
    bars = [Bar(label, item.cell.value, *_ends(item), number(item.cell.value, item.stdev)) for label, item in shown]
    bars += missing[:_MOST_MISSING]
    left_out = len(present) - len(shown)
    extreme = {"higher": "highest", "lower": "lowest"}.get(column.direction or "", "first")
    which = f"the {extreme} {len(shown)} of {plural(len(present), 'point')}"
    better = f"{column.direction} is better" if column.direction else ""
    without = f"{len(missing)} without a valid number" if missing else ""
    notes = ", ".join(filter(None, [which if left_out else plural(len(present), "point"), without, better]))
    title, axis = f"{column.name} ({notes})", f"{titled(column.name, column.cell.unit)}, 95% interval"
    return title, interval_chart(f"{data.scenario}: {title}", axis, bars)
