"""The parts of the page about curves: targets at equal quality, and targets along an axis."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.tags import details, join, marked, table, tag
from benchhouse.results.curves import Scaling, ScalingCurve, Tradeoff, span
from benchhouse.results.numbers import NONE, number, percent, plural, quantity, titled

_HOW = (
    "Each curve goes through the points of one target. What it has at the level is read off the curve, never from "
    "beyond its ends; the interval comes from the repetitions. The one shown decides for a pair; as the best was "
    "picked by looking, the words also say whether the difference holds after Holm's correction."
)
_STOP = "Scaling stops where 95% of the highest throughput is reached; efficiency is what keeps step with the axis."
_MOST_CURVES = 12


def tradeoff_section(found: Tradeoff) -> Markup:
    """What every target has at the level, and the points that none beats."""
    level = "" if found.level is None else f" at {found.x.name} {quantity(found.level, found.x.unit)}"
    heads = ["target", titled(found.y.name, found.y.unit), _interval(found.confidence), "against the best (interval)"]
    heads += ["would be at", "n", "verdict"]
    rows = []
    for row in found.rows() if found.level is not None else []:
        cells = [row.value, row.interval, row.change, row.place, row.n]
        rows.append([marked(row.name, row.mark), *(cell or NONE for cell in cells), row.verdict])
    names = [curve.named(point) for curve in found.curves for point in curve.points if point.frontier]
    more = f" and {plural(len(names) - _MOST_CURVES, 'more point')}" if len(names) > _MOST_CURVES else ""
    unbeaten = ", ".join(names[:_MOST_CURVES]) + more
    return join(
        tag("p", _HOW, class_="small soft"),
        *(tag("p", line) for line in found.sentences),
        table(heads, rows, range(1, 6), label=f"{found.y.name}{level}") if rows else None,
        tag("p", f"Not beaten on both {found.x.name} and {found.y.name}: {unbeaten}.", class_="small"),
        tag("p", f"Interpolated: {found.scales}. " + " ".join(found.notes), class_="note"),
    )


def scaling_section(found: Sequence[Scaling]) -> Markup:
    return join(tag("p", _STOP, class_="small soft"), *map(_along, found))


def _along(found: Scaling) -> Markup:
    lines = [tag("p", curve.sentence) for curve in found.curves[:_MOST_CURVES] if curve.sentence]
    tables = []
    for curve in found.curves:
        heads, rows, label = stage_heads(found, curve), stage_rows(found, curve), f"{curve.name} along {found.axis}"
        stages = table(heads, rows, range(9), label=label)
        tables.append(details(curve.name, "", stages, open=len(found.curves) == 1))
    notes = tag("p", " ".join(found.notes), class_="note") if found.notes else None
    return join(tag("h3", f"Along {found.axis}"), *lines, *tables, notes)


def stage_heads(found: Scaling, curve: ScalingCurve) -> list[str]:
    latencies = list(dict.fromkeys(stat for stage in curve.stages for stat in stage.latency))
    unit = found.latency.unit if found.latency else ""
    metric = found.latency.metric if found.latency else ""
    return [
        found.axis,
        titled(found.throughput.name, found.throughput.unit),
        _interval(found.confidence),
        "× first",
        *(["efficiency"] if found.resource else []),
        *(titled(metric if stat == "value" else f"{metric} {stat}", unit) for stat in latencies),
        "n",
    ]


def stage_rows(found: Scaling, curve: ScalingCurve) -> list[list[str]]:
    """One line a stage, as texts."""
    latencies = list(dict.fromkeys(stat for stage in curve.stages for stat in stage.latency))
    return [
        [
            number(stage.place),
            number(stage.throughput),
            span(stage.throughput_interval) if stage.throughput_interval else NONE,
            _with_ends(stage.times, stage.times_interval),
            *([percent(stage.efficiency, signed=False)] if found.resource else []),
            *(number(stage.latency.get(stat)) for stat in latencies),
            str(stage.n),
        ]
        for stage in curve.stages
    ]


def _with_ends(value: float | None, ends: tuple[float, float] | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends and ends[0] < ends[1] else "")


def _interval(confidence: float) -> str:
    return f"{confidence * 100:g}% interval"
