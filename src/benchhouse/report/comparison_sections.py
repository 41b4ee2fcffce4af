"""The sections that compare: points in order, targets at equal quality and along an axis, axes of a sweep."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.scaling_chart import chart_title, scaling_chart
from benchhouse.report.tags import details, join, marked, table, tag
from benchhouse.results.content import (
    AxisSpreadFacts,
    CaseRanking,
    Point,
    PointNumber,
    Ranking,
    RankingPlace,
    ReportData,
    SpreadFacts,
)
from benchhouse.results.curves import Scaling, ScalingCurve, Tradeoff, span
from benchhouse.results.numbers import NONE, THIN, number, percent, plural, quantity, spread_text, titled
from benchhouse.results.scaling_laws import law_sentence

HOW_COMPARED = (
    "Points in order, each against the best. The interval is that of the change for this pair alone; the verdict "
    "is by that interval and by Welch's t test at 5% after Holm's correction for all pairs, as the best was "
    "picked by looking."
)
HOW_CURVES = (
    "Each curve goes through the points of one target. What it has at the level is read off the curve, never from "
    "beyond its ends; the interval comes from the repetitions. The one shown decides for a pair; as the best was "
    "picked by looking, the words also say whether the difference holds after Holm's correction."
)
SCALING_STOPS = (
    "Scaling stops where 95% of the highest throughput is reached; efficiency is what keeps step with the axis. More "
    "units pay as long as efficiency is 50% or more. Intervals of a law hold the spread over trials, not that another "
    "law may be the right one."
)
_MOST_CURVES = 12
SPREAD_HEADS = ("axis", "values", "highest at", "median there", "lowest at", "median there", "explains")
SPREAD_RIGHT = (1, 3, 5, 6)  # columns of numbers
HOW_SPREAD = (
    "The median is over all points at a value of the axis. Explains: the share of the variance over all points that "
    "the axis accounts for by itself (adjusted for its number of values)."
)


def comparison_section(data: ReportData) -> Markup:
    intro = tag("p", HOW_COMPARED, class_="small soft")
    shown = [_ranking(data, ranking) for ranking in data.rankings]
    folded = [
        details(ranking.name, f": {ranking.sentence}", table)
        for ranking, table in zip(data.rankings[1:], shown[1:], strict=True)
    ]
    return join(intro, *shown[:1], *folded, _cases(data) if data.cases else None)


def _cases(data: ReportData) -> Markup:
    """Return the services side by side under identical load, test by test."""
    alone = len(data.cases) == 1
    folded = [
        details(
            case.case, f": {leaders(data, case)}", *(_ranking(data, ranking) for ranking in case.rankings), open=alone
        )
        for case in data.cases
    ]
    return join(tag("h3", "Side by side under identical load"), *folded)


def leaders(data: ReportData, case: CaseRanking) -> str:
    """Return the best target on each metric, and whether that is certain."""
    leaders = []
    for ranking in case.rankings:
        first, *others = ranking.standings
        extreme = "highest" if ranking.direction == "higher" else "lowest"
        sure = all(standing.verdict == "worse than the best" for standing in others)
        name = data.points[first.point].target_name
        leaders.append(f"{ranking.name} {f'best with {name}' if sure else f'{extreme} with {name}, not for certain'}")
    return "; ".join(leaders)


def _ranking(data: ReportData, ranking: Ranking) -> Markup:
    rows: list[Sequence[str]] = []
    last = 0
    for standing in ranking.standings:
        if last and standing.place > last + 1 and ranking.ranked > len(ranking.standings):
            between = f"… {plural(standing.place - last - 1, 'point')} between"
            rows.append(tag("tr", tag("td", between, colspan=6, class_="soft")))
        rows.append(_standing(data.points[standing.point], ranking, standing))
        last = max(standing.place, last + 1)
    heads = ["place", "point", titled(ranking.name, ranking.unit), "against the best", "95% interval", "verdict"]
    better = "higher is better" if ranking.direction == "higher" else "lower is better"
    heading = tag("h3", f"{ranking.name} ", tag("span", better, class_="soft small"))
    return tag("div", heading, table(heads, rows, (0, 2, 3, 4), label=ranking.name, row_head=1))


def _standing(point: Point, ranking: Ranking, standing: RankingPlace) -> list[str]:
    number = point.number(ranking.column)
    assert number
    change, interval = standing.gap_texts(ranking.unit)
    name = marked(point.label, standing.mark)
    return [str(standing.place), name, _number(number), change or NONE, interval or NONE, standing.verdict]


def _number(item: PointNumber) -> Markup:
    """Return a number that opens its lineage, with spread and n."""
    value = item.cell.value
    unit = "" if item.cell.unit == "1" else f" {item.cell.unit}"
    title = f"{value!r}{unit}; trace {item.cell.ref}" + (f"; {item.shaky}" if item.shaky else "")
    approx = tag("span", "~", class_="shaky") if item.shaky else None
    shown = number(value, item.stdev)
    button = tag("button", approx, shown, type="button", class_="num", data_ref=item.cell.ref, title=title)
    spread = spread_text(value, item.stdev)
    around = tag("span", f" ±{THIN}{spread}", class_="pm") if spread else None
    return join(button, around, tag("span", f"n{THIN}{item.cell.n}", class_="count"))


def tradeoff_section(curves: Tradeoff) -> Markup:
    """Return every target's value at the level, and the points that no other point beats."""
    level = "" if curves.level is None else f" at {curves.x.name} {quantity(curves.level, curves.x.unit)}"
    value, interval = titled(curves.y.name, curves.y.unit), _interval(curves.confidence)
    heads = ["target", value, interval, "against the best (interval)", "would be at", "n", "verdict"]
    rows = []
    for row in curves.rows() if curves.level is not None else []:
        cells = [row.value, row.interval, row.change, row.place, row.n]
        rows.append([marked(row.name, row.mark), *(cell or NONE for cell in cells), row.verdict])
    return join(
        tag("p", HOW_CURVES, class_="small soft"),
        *(tag("p", line) for line in curves.sentences),
        table(heads, rows, range(1, 6), label=f"{curves.y.name}{level}") if rows else None,
        tag("p", unbeaten_sentence(curves), class_="small"),
        tag("p", f"Interpolated: {curves.scales}. " + " ".join(curves.notes), class_="note"),
    )


def unbeaten_sentence(curves: Tradeoff) -> str:
    """Return a sentence with the points that no other point beats on both metrics."""
    names = [curve.named(point) for curve in curves.curves for point in curve.points if point.frontier]
    more = f" and {plural(len(names) - _MOST_CURVES, 'more point')}" if len(names) > _MOST_CURVES else ""
    return f"Not beaten on both {curves.x.name} and {curves.y.name}: {', '.join(names[:_MOST_CURVES])}{more}."


def scaling_section(scalings: Sequence[Scaling]) -> Markup:
    return join(tag("p", SCALING_STOPS, class_="small soft"), *map(_along, scalings))


def _along(scaling: Scaling) -> Markup:
    lines = [tag("p", " ".join(curve_sentences(scaling, curve))) for curve in scaling.curves[:_MOST_CURVES]]
    drawn = tag("div", scaling_chart(scaling), class_="plot")
    figure = tag("figure", tag("figcaption", chart_title(scaling)), drawn, class_="wide")
    tables = []
    for curve in scaling.curves:
        heads, rows = stage_heads(scaling, curve), stage_rows(scaling, curve)
        stages = table(heads, rows, range(9), label=f"{curve.name} along {scaling.axis}")
        tables.append(details(curve.name, "", stages, open=len(scaling.curves) == 1))
    notes = tag("p", " ".join(scaling.notes), class_="note") if scaling.notes else None
    return join(tag("h3", scaling.title), *lines, tag("div", figure, class_="charts"), *tables, notes)


def curve_sentences(scaling: Scaling, curve: ScalingCurve) -> list[str]:
    """Return the sentences about where the curve stops, the fitted laws, and where more units no longer pay off."""
    laws = [law_sentence(law, scaling.confidence) for law in curve.laws]
    return [sentence for sentence in (curve.sentence, *laws, curve.pays) if sentence]


def stage_heads(scaling: Scaling, curve: ScalingCurve) -> list[str]:
    latencies = list(dict.fromkeys(stat for stage in curve.stages for stat in stage.latency))
    unit = scaling.latency.unit if scaling.latency else ""
    metric = scaling.latency.metric if scaling.latency else ""
    return [
        scaling.axis,
        titled(scaling.throughput.name, scaling.throughput.unit),
        _interval(scaling.confidence),
        "speed-up" if scaling.kind else "× first",
        *(["efficiency"] if scaling.resource else []),
        *(titled(metric if stat == "value" else f"{metric} {stat}", unit) for stat in latencies),
        "n",
    ]


def stage_rows(scaling: Scaling, curve: ScalingCurve) -> list[list[str]]:
    """Return one row of texts per stage."""
    latencies = list(dict.fromkeys(stat for stage in curve.stages for stat in stage.latency))
    return [
        [
            number(stage.place),
            number(stage.throughput),
            span(stage.throughput_interval) if stage.throughput_interval else NONE,
            _with_ends(stage.times, stage.times_interval),
            *([_share(stage.efficiency, stage.efficiency_interval)] if scaling.resource else []),
            *(number(stage.latency.get(stat)) for stat in latencies),
            str(stage.n),
        ]
        for stage in curve.stages
    ]


def _with_ends(value: float | None, ends: tuple[float, float] | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends and ends[0] < ends[1] else "")


def _share(value: float | None, ends: tuple[float, float] | None) -> str:
    around = f" ({ends[0] * 100:.1f} to {ends[1] * 100:.1f})" if ends and ends[0] < ends[1] else ""
    return percent(value, signed=False) + around


def _interval(confidence: float) -> str:
    return f"{confidence * 100:g}% interval"


def spread_section(spreads: Sequence[SpreadFacts]) -> Markup:
    return join(tag("p", HOW_SPREAD, class_="small soft"), *(_spread(item) for item in spreads))


def quartile_sentence(item: SpreadFacts) -> str:
    """Return a sentence such as `1,000 points from 3 to 42.5 ms, half of them between 11 and 30, median 20`."""
    low, lower, middle, upper, high = (quantity(value, item.unit) for value in item.quartiles)
    half = f"half of them between {lower} and {upper}"
    return f"{plural(item.points, 'point')} from {low} to {high}, {half}, median {middle}"


def axis_row(item: SpreadFacts, row: AxisSpreadFacts) -> list[str]:
    """Return the cells under SPREAD_HEADS."""
    return [
        row.axis,
        str(row.levels),
        row.highest,
        quantity(row.highest_median, item.unit),
        row.lowest,
        quantity(row.lowest_median, item.unit),
        percent(row.explained, signed=False),
    ]


def _spread(item: SpreadFacts) -> Markup:
    rows = [axis_row(item, row) for row in item.axes]
    return join(
        tag("h3", titled(item.name, item.unit)),
        tag("p", f"{quartile_sentence(item)}."),
        table(SPREAD_HEADS, rows, SPREAD_RIGHT) if rows else None,
    )
