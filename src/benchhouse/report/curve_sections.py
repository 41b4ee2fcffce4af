"""The parts of the page about curves: targets at equal quality, and targets along an axis."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from benchhouse.report.tags import join, tag
from benchhouse.results.curves import Scaling, ScalingCurve, Stage, Tradeoff, span
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
    lines = [tag("p", line) for line in found.sentences]
    heads = ["target", titled(found.y.name, found.y.unit), _interval(found.confidence), "against the best (interval)"]
    heads += ["would be at", "n", "verdict"]
    rows = []
    for row in found.rows() if found.level is not None else []:
        mark = tag("span", row.mark, class_=f"place {row.mark}") if row.mark else None
        cells = [row.value, row.interval, row.change, row.place, row.n]
        rows.append([join(row.name, " " if mark else None, mark), *(cell or NONE for cell in cells), row.verdict])
    label = f"{found.y.name}{level}"
    return join(
        tag("p", _HOW, class_="small soft"),
        *lines,
        _table(heads, rows, label, right=range(1, 6)) if rows else None,
        tag("p", f"Not beaten on both {found.x.name} and {found.y.name}: {_unbeaten(found)}.", class_="small"),
        tag("p", f"Interpolated: {found.scales}. " + " ".join(found.notes), class_="note"),
    )


def _unbeaten(found: Tradeoff) -> str:
    names = [curve.named(point) for curve in found.curves for point in curve.points if point.frontier]
    more = f" and {plural(len(names) - _MOST_CURVES, 'more point')}" if len(names) > _MOST_CURVES else ""
    return ", ".join(names[:_MOST_CURVES]) + more


def scaling_section(found: Sequence[Scaling]) -> Markup:
    return join(tag("p", _STOP, class_="small soft"), *(_along(one) for one in found))


def _along(found: Scaling) -> Markup:
    lines = [tag("p", curve.sentence) for curve in found.curves[:_MOST_CURVES] if curve.sentence]
    tables = []
    for curve in found.curves:
        table = _table(
            stage_heads(found, curve), stage_rows(found, curve), f"{curve.name} along {found.axis}", right=range(9)
        )
        tables.append(tag("details", tag("summary", tag("b", curve.name)), table, open=len(found.curves) == 1))
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
            *([_efficiency(stage)] if found.resource else []),
            *(number(stage.latency.get(stat)) for stat in latencies),
            str(stage.n),
        ]
        for stage in curve.stages
    ]


def _with_ends(value: float | None, ends: tuple[float, float] | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends and ends[0] < ends[1] else "")


def _efficiency(stage: Stage) -> str:
    return NONE if stage.efficiency is None else percent(stage.efficiency, signed=False)


def _interval(confidence: float) -> str:
    return f"{confidence * 100:g}% interval"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], label: str, right: Iterable[int]) -> Markup:
    numbers = set(right)
    head = tag(
        "tr", *(tag("th", text, class_="n" if at in numbers else None, scope="col") for at, text in enumerate(heads))
    )
    body = [
        tag(
            "tr",
            *(
                tag("td" if at else "th", cell, class_="n" if at in numbers else "words", scope=None if at else "row")
                for at, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)
