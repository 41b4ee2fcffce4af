"""The part of the page that puts points in order: by each metric, and side by side under identical load."""

from collections.abc import Sequence

from markupsafe import Markup

from benchhouse.report.tags import details, join, marked, table, tag
from benchhouse.results.content import CaseRanking, Number, Point, Ranking, ReportData, Standing
from benchhouse.results.numbers import NONE, THIN, number, plural, spread_text, titled


def comparison_section(data: ReportData) -> Markup:
    intro = tag(
        "p",
        "Points in order, each against the best. The interval is that of the change for this pair alone; the verdict "
        "is by that interval and by Welch's t test at 5% after Holm's correction for all pairs, as the best was "
        "picked by looking.",
        class_="small soft",
    )
    first, *rest = [_ranking(data, ranking) for ranking in data.rankings]
    folded = [
        details(ranking.name, f": {ranking.sentence}", shown)
        for ranking, shown in zip(data.rankings[1:], rest, strict=True)
    ]
    return join(intro, first, *folded, _cases(data) if data.cases else None)


def _cases(data: ReportData) -> Markup:
    """Services side by side under identical load, test by test."""
    folded = [
        details(case.case, f": {_best_of(data, case)}", *(_ranking(data, ranking) for ranking in case.rankings))
        for case in data.cases
    ]
    return join(tag("h3", "Side by side under identical load"), *folded)


def _best_of(data: ReportData, case: CaseRanking) -> str:
    leaders = []
    for ranking in case.rankings:
        best = data.points[ranking.standings[0].point]
        sure = all(standing.verdict == "worse than the best" for standing in ranking.standings[1:])
        leaders.append(f"{ranking.name} best with {best.target_name}" + ("" if sure else " (not for certain)"))
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


def _standing(point: Point, ranking: Ranking, standing: Standing) -> list[str]:
    number = point.number(ranking.column)
    assert number
    change, interval = standing.gap_texts(ranking.unit)
    name = marked(point.label, standing.mark)
    return [str(standing.place), name, _number(number), change or NONE, interval or NONE, standing.verdict]


def _number(item: Number) -> Markup:
    """A number that opens its lineage, with spread and n."""
    value = item.cell.value
    unit = "" if item.cell.unit == "1" else f" {item.cell.unit}"
    title = f"{value!r}{unit}; trace {item.cell.ref}" + (f"; {item.shaky}" if item.shaky else "")
    approx = tag("span", "~", class_="shaky") if item.shaky else None
    shown = number(value, item.stdev)
    button = tag("button", approx, shown, type="button", class_="num", data_ref=item.cell.ref, title=title)
    spread = spread_text(value, item.stdev)
    around = tag("span", f" ±{THIN}{spread}", class_="pm") if spread else None
    return join(button, around, tag("span", f"n{THIN}{item.cell.n}", class_="count"))
