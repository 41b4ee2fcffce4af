"""One metric against another, and one over the trials in order, as SVG files: the page draws them by script."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from benchhouse.report.payload import tradeoff
from benchhouse.report.tags import tag
from benchhouse.report.time_chart import nice_step
from benchhouse.results.content import PointNumber, ReportData
from benchhouse.results.numbers import number, titled
from benchhouse.schema.quoting import shortened

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 340, 66, 16, 12, 46
_COLOURS = 8
_MOST_KEYS = 12
_MOST_MISSING = 6
Ends = tuple[float, float] | None


@dataclass(frozen=True)
class Dot:
    """A mark, with whiskers if its interval is known."""

    x: float
    y: float
    x_ends: Ends = None
    y_ends: Ends = None


@dataclass(frozen=True)
class DotGroup:
    """Dots of one color, and the line through them if there is one."""

    label: str
    dots: Sequence[Dot]
    line: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class XYChart:
    """A drawing with its title and the colors of its groups."""

    title: str
    drawing: Markup
    keys: dict[str, str]


def scatter_chart(data: ReportData) -> XYChart | None:
    """Return the trade-off that the page shows first; None if there are no two metrics to trade."""
    columns = data.columns()
    if curves := data.tradeoff:
        groups = [
            DotGroup(curve.name, [Dot(point.x, point.y) for point in curve.points], curve.line)
            for curve in curves.curves
        ]
        names = titled(curves.x.name, curves.x.unit), titled(curves.y.name, curves.y.unit)
        return _chart(f"Trade-off: {curves.y.name} against {curves.x.name}{_missing(data)}", *names, groups)
    pair = tradeoff(data.points, columns) if len({column.metric for column in columns}) > 1 else None
    if not pair:
        return None
    up, across = columns[pair[0]], columns[pair[1]]
    by_target: dict[str, list[Dot]] = {}
    for point in data.points:
        y, x = point.number(up.column), point.number(across.column)
        if x and y:
            dot = Dot(x.cell.value, y.cell.value, _ends(x), _ends(y))
            by_target.setdefault(point.target_name, []).append(dot)
    groups = [DotGroup(name, dots) for name, dots in by_target.items()]
    title = f"Trade-off: {up.name} against {across.name}; whiskers are 95% intervals{_missing(data)}"
    return _chart(title, titled(across.name, across.cell.unit), titled(up.name, up.cell.unit), groups)


def drift_chart(data: ReportData) -> XYChart | None:
    """Return the deviation of the first metric from its point's mean, trial by trial; None if no trial has it."""
    columns = data.columns()
    column = next((column for column in columns if column.primary), columns[0]) if columns else None
    order = {trial.trial_id: at for at, trial in enumerate(data.trials, 1)}
    groups: dict[str, list[Dot]] = {}
    for point in data.points:
        item = point.number(column.column) if column else None
        if not item or not item.cell.value:
            continue
        values = zip(item.cell.trials, item.values, strict=True)
        dots = [Dot(order[trial], (value / item.cell.value - 1.0) * 100.0) for trial, value in values if trial in order]
        groups.setdefault(point.target_name, []).extend(dots)
    if not column or not any(groups.values()):
        return None
    shown = [DotGroup(name, dots) for name, dots in groups.items()]
    across, up = "trial, in order of execution", "% off the point's mean"
    title = f"Drift: {column.name}, trial by trial, off the mean of its point{_missing(data)}"
    return _chart(title, across, up, shown)


def _missing(data: ReportData) -> str:
    names = data.without_number
    return f"; {len(names)} without a valid number: {shortened(names, _MOST_MISSING)}" if names else ""


def _ends(item: PointNumber) -> Ends:
    return None if item.doubt or item.low is None or item.high is None else (item.low, item.high)


def _chart(title: str, across: str, up: str, groups: Sequence[DotGroup]) -> XYChart:
    keys = {group.label: f"var(--c{at % _COLOURS})" for at, group in enumerate(groups)}
    shown = {} if len(groups) == 1 or len(groups) > _MOST_KEYS else keys
    return XYChart(title, _draw(title, across, up, groups), shown)


def _scale(values: Sequence[float], low_at: float, high_at: float) -> tuple[Callable[[float], float], list[float]]:
    """Return the function from a value to its place, and the ticks."""
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room
    step = nice_step(high - low, 7)
    first = math.ceil(low / step) * step
    ticks = [round(first + step * at, 12) for at in range(int((high - first) / step) + 1)]
    return lambda value: low_at + (value - low) / (high - low) * (high_at - low_at), ticks


def _draw(title: str, across: str, up: str, groups: Sequence[DotGroup]) -> Markup:
    dots = [dot for group in groups for dot in group.dots]
    lines = [place for group in groups for place in group.line]
    base = _HEIGHT - _BOTTOM
    every_x = [end for dot in dots for end in (dot.x, *(dot.x_ends or ()))] + [place[0] for place in lines]
    every_y = [end for dot in dots for end in (dot.y, *(dot.y_ends or ()))] + [place[1] for place in lines]
    x, x_ticks = _scale(every_x, _LEFT, _WIDTH - _RIGHT)
    y, y_ticks = _scale(every_y, base, _TOP)
    drawn = []
    for tick in y_ticks:
        level = f"{y(tick):.1f}"
        drawn.append(tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=level, y2=level))
        drawn.append(tag("text", number(tick), x=_LEFT - 7, y=f"{y(tick) + 4:.1f}", text_anchor="end"))
    drawn += [tag("text", number(tick), x=f"{x(tick):.1f}", y=base + 17, text_anchor="middle") for tick in x_ticks]
    middle, turned = (_LEFT + _WIDTH - _RIGHT) // 2, f"translate(12 {(base + _TOP) // 2}) rotate(-90)"
    drawn.append(tag("text", across, x=middle, y=_HEIGHT - 8, text_anchor="middle"))
    drawn.append(tag("text", up, x=0, y=0, transform=turned, text_anchor="middle"))
    for at, group in enumerate(groups):
        colour = f"var(--c{at % _COLOURS})"
        if len(group.line) > 1:
            path = "M" + "L".join(f"{x(across):.1f} {y(up):.1f}" for across, up in group.line)
            drawn.append(tag("path", d=path, fill="none", stroke=colour, stroke_width="1.4"))
        for dot in group.dots:
            drawn += _dot(dot, x, y, colour)
    return tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)


def _dot(dot: Dot, x: Callable[[float], float], y: Callable[[float], float], colour: str) -> list[Markup]:
    ends = [f"M{x(dot.x_ends[0]):.1f} {y(dot.y):.1f}H{x(dot.x_ends[1]):.1f}"] if dot.x_ends else []
    ends += [f"M{x(dot.x):.1f} {y(dot.y_ends[0]):.1f}V{y(dot.y_ends[1]):.1f}"] if dot.y_ends else []
    whiskers = [tag("path", d="".join(ends), fill="none", stroke=colour, stroke_width="1.2")] if ends else []
    return [*whiskers, tag("circle", cx=f"{x(dot.x):.1f}", cy=f"{y(dot.y):.1f}", r="3.2", fill=colour)]
