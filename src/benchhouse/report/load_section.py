"""The section about the load itself: certificates, and charts of the rates per second, drawn as SVG."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.tags import join, table, tag
from benchhouse.report.time_chart import nice_step
from benchhouse.results.load_certificates import LoadFacts, by_point
from benchhouse.results.numbers import number, percent, plural

HEADS = (
    "point", "repetition", "certificate", "loop", "asked", "offered", "delivered", "lag p99 (ms)",
    "wakes late p99 (ms)", "times off by at most (ms)", "processes", "CPU", "in flight",
)  # fmt: skip
RIGHT = range(4, len(HEADS))  # columns of numbers
HOW = (
    "A certificate holds when the load was offered as asked. Lag: from due to sent. Wakes late: how late the load "
    "process woke up. Times off by at most: how far the primary times that stand can be off. "
    "CPU: of one core, by the busiest load process."
)
CHART = "Answers that ended in each second of the window, a line a trial; red: failures, where there were any."
_MOST_ROWS = 60
_MOST_OPEN = 12
_MOST_CHOICES = 4
_MOST_CHARTS = 12
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 190, 56, 12, 10, 36


def load_section(loads: Sequence[LoadFacts]) -> Markup:
    figures = [
        tag("figure", tag("figcaption", point), tag("div", seconds_chart(group), class_="plot seconds"))
        for point, group in drawn_points(loads)
    ]
    rows = load_rows(loads)
    certificates = table(HEADS, rows, RIGHT)
    needs_look = any(load.problems or load.refused for load in loads)
    if len(loads) > _MOST_OPEN and not needs_look:
        certificates = tag("details", tag("summary", f"All {len(loads)} certificates hold"), certificates)
    return join(
        tag("p", HOW, class_="small soft"),
        certificates,
        tag("p", left_out, class_="note") if (left_out := rows_left_out(loads)) else None,
        tag("p", chosen, class_="small soft") if (chosen := choices(loads)) else None,
        tag("p", CHART, class_="small soft") if figures else None,
        tag("div", *figures, class_="charts") if figures else None,
        tag("p", undrawn, class_="note") if (undrawn := charts_left_out(loads)) else None,
    )


def drawn_points(loads: Sequence[LoadFacts]) -> list[tuple[str, list[LoadFacts]]]:
    """Return the points whose rates per second are drawn, with their trials."""
    return _points_with_seconds(loads)[:_MOST_CHARTS]


def _points_with_seconds(loads: Sequence[LoadFacts]) -> list[tuple[str, list[LoadFacts]]]:
    groups = {key: [load for load in group if len(load.rates) > 1] for key, group in by_point(loads).items()}
    return [(point, group) for (_, point), group in groups.items() if group]


def rows_left_out(loads: Sequence[LoadFacts]) -> str:
    return f"{plural(len(loads) - _MOST_ROWS, 'trial')} more in report.json." if len(loads) > _MOST_ROWS else ""


def charts_left_out(loads: Sequence[LoadFacts]) -> str:
    more = len(_points_with_seconds(loads)) - _MOST_CHARTS
    return f"{plural(more, 'more point')} not drawn; see artifacts/intervals.csv." if more > 0 else ""


def load_rows(loads: Sequence[LoadFacts]) -> list[list[str]]:
    """Return the cells of the table under HEADS, as text; invalid ones first, because they need attention."""
    ordered = sorted(loads, key=lambda load: not load.problems and not load.refused)
    return [
        [
            load.point,
            str(load.repetition),
            load.verdict,
            load.loop,
            f"{number(load.asked)}{'/s' if load.loop == 'open' else ' in flight'}" if load.asked else "by its arrivals",
            number(load.offered),
            number(load.delivered),
            number(load.lag_ms),
            number(load.wake_ms),
            number(load.off_ms),
            number(load.processes),
            percent(load.cpu_share, signed=False),
            number(load.in_flight),
        ]
        for load in ordered[:_MOST_ROWS]
    ]


def choices(loads: Sequence[LoadFacts]) -> str:
    """Return the reasons for the number of load processes, if `processes: auto` left it to the engine; empty
    otherwise."""
    reasons = list(dict.fromkeys(load.chosen for load in loads if load.chosen))
    more = f" And {len(reasons) - _MOST_CHOICES} more." if len(reasons) > _MOST_CHOICES else ""
    return f"processes: auto chose {'; '.join(reasons[:_MOST_CHOICES])}.{more}" if reasons else ""


def seconds_chart(loads: Sequence[LoadFacts]) -> Markup:
    """Return a chart of answers and failures per second of the trials of one point, on a common scale from zero."""
    longest = max(len(load.rates) for load in loads)
    most = max(max(*load.rates, *load.errors) for load in loads) or 1.0
    step = nice_step(most, 4)
    top = step * -(-most // step)

    def x(second: float) -> float:
        return _LEFT + (second + 0.5) / longest * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)

    def line(values: Sequence[float], colour: str) -> Markup:
        places = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in enumerate(values))
        return tag("path", d=f"M{places}", fill="none", stroke=colour, stroke_width="1.6", opacity="0.85")

    grid = []
    for at in range(round(top / step) + 1):
        level = f"{y(at * step):.1f}"
        grid += [
            tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=level, y2=level),
            tag("text", number(at * step), x=_LEFT - 7, y=f"{y(at * step) + 4:.1f}", text_anchor="end"),
        ]
    every = max(1.0, nice_step(longest, 10))
    for second in range(0, longest, round(every)):
        grid.append(tag("text", str(second), x=f"{x(second):.1f}", y=_HEIGHT - _BOTTOM + 17, text_anchor="middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) // 2
    titles = [
        tag("text", "second of the window", x=middle, y=_HEIGHT - 4, text_anchor="middle"),
        tag("text", "answers/s", x=0, y=0, transform=f"translate(10 {_HEIGHT // 2}) rotate(-90)", text_anchor="middle"),
    ]
    lines = [line(load.rates, f"var(--c{at % 8})") for at, load in enumerate(loads)]
    lines += [line(load.errors, "var(--bad)") for load in loads if any(load.errors)]
    label = f"Answers a second, {plural(len(loads), 'trial')}, {longest} seconds"
    return tag("svg", *grid, *titles, *lines, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)
