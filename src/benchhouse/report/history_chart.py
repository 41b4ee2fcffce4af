"""One metric over all runs as SVG: one mark per run, changes of level, and the baseline with what breaks it."""

from typing import TYPE_CHECKING

from markupsafe import Markup

from benchhouse.report.tags import tag
from benchhouse.results.numbers import number, percent, quantity

if TYPE_CHECKING:
    from benchhouse.results.history import Watched

_WIDTH, _HEIGHT, _LEFT, _EDGE = 640, 200, 64, 20
_COLOUR, _CHANGE, _BASELINE = "#0072b2", "#d55e00", "#009e73"


def history_chart(watched: "Watched") -> Markup:
    """Return a chart of runs from left to right, at equal distances, with 95% intervals. It needs no style sheet."""
    past, baseline = watched.history, watched.baseline
    intervals = [run.interval for run in past.runs]
    reach = [*past.values, *(end for ends in intervals if ends for end in ends)]
    reach += [baseline.level] if baseline else []
    low, high = min(reach), max(reach)
    span, step = (high - low) or 1.0, (_WIDTH - _LEFT - _EDGE) / max(1, len(past.runs) - 1)
    places = {run.run_id: at for at, run in enumerate(past.runs)}

    def x(at: int) -> str:
        return f"{_LEFT + at * step:.1f}"

    def y(value: float) -> str:
        return f"{_HEIGHT - _EDGE - (value - low) / span * (_HEIGHT - 2 * _EDGE):.1f}"

    def across(value: float, colour: str, **more: str) -> Markup:
        return tag("line", x1=_LEFT, x2=_WIDTH - _EDGE, y1=y(value), y2=y(value), stroke=colour, **more)

    drawn = [across(value, "#8884") for value in sorted({low, high})]
    drawn += [
        tag("text", number(value), x=_LEFT - 10, y=y(value), text_anchor="end", dy="4", fill="currentColor")
        for value in sorted({low, high})
    ]
    for change in past.changes:
        place = x(places[change.run_after])
        title = tag("title", f"{change.verdict} from {change.run_after} on: {percent(change.change)}")
        drawn.append(tag("line", title, x1=place, x2=place, y1=0, y2=_HEIGHT, stroke=_CHANGE, stroke_dasharray="4 3"))
    if baseline:
        level = across(baseline.level, _BASELINE, stroke_dasharray="8 4")
        drawn.append(tag("g", tag("title", f"baseline {quantity(baseline.level, baseline.unit)}"), level))
    line = " ".join(f"{x(at)},{y(value)}" for at, value in enumerate(past.values))
    drawn.append(tag("polyline", points=line, fill="none", stroke=_COLOUR))
    broken = {run.run_id for run in watched.later[watched.alarm.since :]} if watched.alarm else set[str]()
    for at, (run, ends) in enumerate(zip(past.runs, intervals, strict=True)):
        colour = _CHANGE if run.run_id in broken else _COLOUR
        if ends:
            drawn.append(tag("line", x1=x(at), x2=x(at), y1=y(ends[0]), y2=y(ends[1]), stroke=colour, opacity="0.4"))
        title = tag("title", f"{run.run_id}: {quantity(run.mean, past.unit)}, n {run.n}")
        drawn.append(tag("circle", title, cx=x(at), cy=y(run.mean), r=3, fill=colour))
    return tag(
        "svg",
        *drawn,
        width=_WIDTH,
        height=_HEIGHT,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{past.name} over {len(past.runs)} runs",
        font_family="sans-serif",
        font_size=12,
    )
