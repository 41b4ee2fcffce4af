"""The part of the page that puts points in order: by each metric, and side by side under identical load."""

from markupsafe import Markup

from benchhouse.report.tags import join, tag
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
        tag("details", tag("summary", tag("b", ranking.name), f": {ranking.sentence}"), table)
        for ranking, table in zip(data.rankings[1:], rest, strict=True)
    ]
    return join(intro, first, *folded, _cases(data) if data.cases else None)


def _cases(data: ReportData) -> Markup:
    """Services side by side under identical load, test by test."""
    folded = [
        tag(
            "details",
            tag("summary", tag("b", case.case), f": {_best_of(data, case)}"),
            *(_ranking(data, ranking) for ranking in case.rankings),
        )
        for case in data.cases
    ]
    return join(tag("h3", "Side by side under identical load"), *folded)


def _best_of(data: ReportData, case: CaseRanking) -> str:
    told = []
    for ranking in case.rankings:
        best = data.points[ranking.standings[0].point]
        sure = all(standing.verdict == "worse than the best" for standing in ranking.standings[1:])
        told.append(f"{ranking.name} best with {best.target_name}" + ("" if sure else " (not for certain)"))
    return "; ".join(told)


def _ranking(data: ReportData, ranking: Ranking) -> Markup:
    rows: list[Markup] = []
    last = 0
    for standing in ranking.standings:
        if last and standing.place > last + 1 and ranking.ranked > len(ranking.standings):
            rows.append(
                tag(
                    "tr", tag("td", f"… {plural(standing.place - last - 1, 'point')} between", colspan=6, class_="soft")
                )
            )
        rows.append(_standing(data.points[standing.point], ranking, standing))
        last = max(standing.place, last + 1)
    better = "higher is better" if ranking.direction == "higher" else "lower is better"
    head = tag(
        "tr",
        tag("th", "place", class_="n", scope="col"),
        tag("th", "point", scope="col"),
        tag("th", titled(ranking.name, ranking.unit), class_="n", scope="col"),
        tag("th", "against the best", class_="n", scope="col"),
        tag("th", "95% interval", class_="n", scope="col"),
        tag("th", "verdict", scope="col"),
    )
    heading = tag("h3", f"{ranking.name} ", tag("span", better, class_="soft small"))
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("div", heading, tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=ranking.name))


def _standing(point: Point, ranking: Ranking, standing: Standing) -> Markup:
    found = point.number(ranking.column)
    assert found
    # The mark stands beside the name, where a narrow screen still shows it.
    mark = tag("span", standing.mark, class_=f"place {standing.mark}") if standing.mark else None
    change, interval = standing.told(ranking.unit)
    return tag(
        "tr",
        tag("td", str(standing.place), class_="n"),
        tag("th", point.label, " " if mark else None, mark, scope="row", class_="words"),
        tag("td", _number(found), class_="n"),
        tag("td", change or NONE, class_="n"),
        tag("td", interval or NONE, class_="n"),
        tag("td", standing.verdict, class_="words"),
    )


def _number(found: Number) -> Markup:
    """A number that opens its lineage, with spread and n."""
    value = found.cell.value
    unit = "" if found.cell.unit == "1" else f" {found.cell.unit}"
    title = f"{value!r}{unit}; trace {found.cell.ref}" + (f"; {found.shaky}" if found.shaky else "")
    approx = tag("span", "~", class_="shaky") if found.shaky else None
    shown = number(value, found.stdev)
    button = tag("button", approx, shown, type="button", class_="num", data_ref=found.cell.ref, title=title)
    spread = spread_text(value, found.stdev)
    around = tag("span", f" ±{THIN}{spread}", class_="pm") if spread else None
    return join(button, around, tag("span", f"n{THIN}{found.cell.n}", class_="count"))
