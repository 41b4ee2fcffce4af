"""Curves along an axis of load or resources, drawn as SVG: throughput, speed-up, and efficiency next to the ideal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from benchhouse.report.tags import tag
from benchhouse.report.time_chart import nice_step
from benchhouse.results.curves import Ends, Scaling, ScalingCurve, ScalingLaw
from benchhouse.results.numbers import number, titled
from benchhouse.results.scaling_laws import NAMES, speaking

_PANEL, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 360, 290, 58, 14, 30, 66
_LETTER = 6.4  # average width of a letter
_MOST_CURVES = 8  # the number of colors
_IDEAL = "var(--faint)"
_WIDE = 100.0  # ratio of the last place to the first: a linear scale shows only the last ones


@dataclass(frozen=True)
class _Mark:
    place: float
    value: float
    ends: Ends | None


@dataclass(frozen=True)
class _Line:
    """One target in one panel: its measurements, and the law if one fits."""

    marks: Sequence[_Mark]
    law: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Panel:
    title: str
    lines: Sequence[_Line]
    ideal: Sequence[tuple[float, float]]


def chart_title(scaling: Scaling) -> str:
    """Return a description of the chart."""
    what = "throughput, speed-up and efficiency" if scaling.resource else "throughput and growth"
    ideal = "; dashed: ideal, in step with the axis" if scaling.resource else ""
    laws = [law for curve in scaling.curves if (law := speaking(curve.laws))]
    fitted = f"; lines: {' or '.join(dict.fromkeys(NAMES[law.law] for law in laws))}" if laws else ""
    more = len(scaling.curves) - _MOST_CURVES
    return f"{scaling.title}: {what}{ideal}{fitted}" + (f"; {more} more targets in the tables" if more > 0 else "")


def scaling_chart(scaling: Scaling) -> Markup:
    """Return panels side by side on one axis, with a key below."""
    curves = scaling.curves[:_MOST_CURVES]
    panels = _panels(scaling, curves)
    places = sorted({stage.place for curve in curves for stage in curve.stages})
    drawn = [part for at, panel in enumerate(panels) for part in _draw(panel, places, scaling.axis, at * _PANEL)]
    width = _PANEL * len(panels)
    x = 14.0
    for at, curve in enumerate(curves):
        drawn.append(tag("circle", cx=f"{x:.1f}", cy=_HEIGHT - 12, r="4", fill=f"var(--c{at})"))
        drawn.append(tag("text", curve.name, x=f"{x + 9:.1f}", y=_HEIGHT - 8))
        x += 26 + _LETTER * len(curve.name)
    return tag("svg", *drawn, viewBox=f"0 0 {max(width, math.ceil(x))} {_HEIGHT}", role="img",
               aria_label=chart_title(scaling))  # fmt: skip


def _panels(scaling: Scaling, curves: Sequence[ScalingCurve]) -> list[_Panel]:
    measured = scaling.throughput.direction == "lower"  # then it is a time, and laws are about its inverse
    firsts = [(curve.stages[0].place, curve.stages[-1].place) for curve in curves]
    ends = [min(first for first, _ in firsts), max(last for _, last in firsts)]
    base = curves[0].stages[0]
    laws = [speaking(curve.laws) for curve in curves]
    throughput = [
        _Line([_Mark(stage.place, stage.throughput, stage.throughput_interval) for stage in curve.stages],
              [] if measured or not law else law.line)
        for curve, law in zip(curves, laws, strict=True)
    ]  # fmt: skip
    one = len(curves) == 1 and scaling.resource and base.place > 0 and not measured
    ideal = [(place, base.throughput * place / base.place) for place in _steps(*ends)] if one else []
    panels = [_Panel(titled(scaling.throughput.name, scaling.throughput.unit), throughput, ideal)]
    grown = [
        _Line([_Mark(stage.place, stage.times, stage.times_interval) for stage in curve.stages if stage.times],
              _relative(law) if law else [])
        for curve, law in zip(curves, laws, strict=True)
    ]  # fmt: skip
    if any(line.marks for line in grown):
        in_step = [(place, place / ends[0]) for place in _steps(*ends)] if scaling.resource else []
        panels.append(_Panel("speed-up" if scaling.kind else "× first", grown, in_step))
    if scaling.resource and any(line.marks for line in grown):
        shares = [
            _Line([_Mark(stage.place, stage.efficiency, stage.efficiency_interval)
                   for stage in curve.stages if stage.efficiency],
                  [(place, times * line.marks[0].place / place) for place, times in line.law])
            for curve, line in zip(curves, grown, strict=True)
        ]  # fmt: skip
        panels.append(_Panel("efficiency", shares, [(ends[0], 1.0), (ends[1], 1.0)]))
    return panels


def _steps(first: float, last: float) -> list[float]:
    return [first + (last - first) * at / 24 for at in range(25)]


def _relative(law: ScalingLaw) -> list[tuple[float, float]]:
    return [(place, value / law.line[0][1]) for place, value in law.line]


def _draw(panel: _Panel, places: Sequence[float], axis: str, left: int) -> list[Markup]:
    share = panel.title == "efficiency"
    values = [end for line in panel.lines for mark in line.marks for end in (mark.value, *(mark.ends or ()))]
    most = max([*values, *(value for _, value in panel.ideal)]) or 1.0
    step = nice_step(most, 5)
    top = step * math.ceil(most / step - 1e-9)
    reach = places[-1] - min(0.0, places[0])
    wide = not panel.ideal and 0 < places[0] <= places[-1] / _WIDE

    def x(place: float) -> float:
        part = math.log(place / places[0], places[-1] / places[0]) if wide else place / (reach or 1.0)
        return left + _LEFT + part * (_PANEL - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)

    drawn = [tag("text", panel.title, class_="name", x=left + _LEFT, y=_TOP - 12)]
    for at in range(round(top / step) + 1):
        level, text = f"{y(at * step):.1f}", f"{at * step * 100:g}%" if share else number(round(at * step, 12))
        drawn.append(tag("line", class_="grid", x1=left + _LEFT, x2=left + _PANEL - _RIGHT, y1=level, y2=level))
        drawn.append(tag("text", text, x=left + _LEFT - 7, y=f"{y(at * step) + 4:.1f}", text_anchor="end"))
    taken = -math.inf
    for place in places:
        width = _LETTER * len(number(place)) + 4
        if x(place) - taken >= width:
            under = _HEIGHT - _BOTTOM + 17
            drawn.append(tag("text", number(place), x=f"{x(place):.1f}", y=under, text_anchor="middle"))
            taken = x(place)
    middle = left + (_LEFT + _PANEL - _RIGHT) // 2
    name = f"{axis} (log scale)" if wide else axis
    drawn.append(tag("text", name, x=middle, y=_HEIGHT - _BOTTOM + 34, text_anchor="middle"))

    def path(points: Sequence[tuple[float, float]], colour: str, dash: str | None = None) -> None:
        d = "M" + "L".join(f"{x(place):.1f} {y(value):.1f}" for place, value in points)
        drawn.append(tag("path", d=d, fill="none", stroke=colour, stroke_width="1.4", stroke_dasharray=dash))

    if panel.ideal:
        path(panel.ideal, _IDEAL, "5 4")
    for at, line in enumerate(panel.lines):
        colour = f"var(--c{at})"
        if line.law:
            path(line.law, colour)
        elif line.marks:
            path([(mark.place, mark.value) for mark in line.marks], colour, "1 3")
        for mark in line.marks:
            if mark.ends and mark.ends[0] < mark.ends[1]:
                low, high = (y(max(0.0, end)) for end in mark.ends)
                d = f"M{x(mark.place):.1f} {low:.1f}V{high:.1f}m-3 0h6M{x(mark.place) - 3:.1f} {low:.1f}h6"
                drawn.append(tag("path", d=d, fill="none", stroke=colour, stroke_width="1.2"))
            drawn.append(tag("circle", cx=f"{x(mark.place):.1f}", cy=f"{y(mark.value):.1f}", r="3.2", fill=colour))
    return drawn
