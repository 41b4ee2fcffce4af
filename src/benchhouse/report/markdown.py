"""The report as GitHub-flavored Markdown, for pull requests and terminals: the same sections as the page."""

from collections.abc import Mapping

from benchhouse.report import markdown_evidence as evidence
from benchhouse.report.comparison_sections import (
    HOW_COMPARED,
    HOW_CURVES,
    HOW_SPREAD,
    SCALING_STOPS,
    SPREAD_HEADS,
    SPREAD_RIGHT,
    axis_row,
    curve_sentences,
    leaders,
    quartile_sentence,
    stage_heads,
    stage_rows,
    unbeaten_sentence,
)
from benchhouse.report.evidence_sections import INVALID_WORDS
from benchhouse.report.figures import FigureFile, Section
from benchhouse.report.html import FEW_SAMPLES, HOW_NUMBERS_READ, facts
from benchhouse.report.markdown_text import code, folded, plain, table
from benchhouse.results.content import CaseRanking, Point, PointNumber, Ranking, ReportData, SpreadFacts
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.numbers import INVALID, name_of, number, off_text, plural, quantity, spread_text, titled
from benchhouse.schema.quoting import shortened, visible

CHARTS = "charts"
"""The folder of the figures, next to the report."""
_MOST_POINTS = 200
_MOST_STATISTICS = 4000  # numbers in the table of all statistics
_MOST_MISSING = 20
Figures = Mapping[str, FigureFile]


def render(data: ReportData, figures: Figures | None = None) -> str:
    """Return the whole report as text; it refers to the figures as files in the folder CHARTS next to it."""
    files = figures or {}
    parts = [
        f"# {plain(data.scenario)}",
        plain(data.description),
        *_headline(data),
        _charts(files),
        _spreads(data),
        f"## At equal quality\n\n{tradeoff_markdown(data.tradeoff, '###')}" if data.tradeoff else "",
        _scalings(data, files),
        _comparison(data),
        _points(data),
        evidence.loads(data, images(files, "load")),
        evidence.ranks(data, images(files, "ranks")),
        evidence.machines(data, {at: images(files, "machine", str(at)) for at in range(len(data.machines))}),
        evidence.invalid(data),
        evidence.failures(data),
        evidence.warnings(data),
        evidence.configuration(data),
        evidence.environments(data),
        evidence.lineage(data),
    ]
    return visible("\n\n".join(part for part in parts if part) + "\n")


def images(figures: Figures, section: Section, of: str = "") -> str:
    """Return the figures of a section, one below the other."""
    chosen = [(name, figure) for name, figure in figures.items() if (figure.section, figure.of) == (section, of)]
    return "\n\n".join(f"![{plain(figure.title)}]({CHARTS}/{name})" for name, figure in chosen)


def _headline(data: ReportData) -> list[str]:
    lines = [f"**{plain(line)}**" if not at else plain(line) for at, line in enumerate(data.headline)]
    told = [[name, plain(value)] for name, value in facts(data) if value]
    missing = shortened(data.without_number, _MOST_MISSING)
    more = [["Without a valid number", plain(missing)]] if missing else []
    return [*lines, table(["what", "value"], [*told, *more])]


def _charts(figures: Figures) -> str:
    drawn = images(figures, "charts")
    return f"## Charts\n\n{drawn}" if drawn else ""


def _spreads(data: ReportData) -> str:
    return "\n\n".join(["## Spread", HOW_SPREAD, *map(_spread, data.spreads)]) if data.spreads else ""


def tradeoff_markdown(curves: Tradeoff, heading: str = "##") -> str:
    """Return targets at equal quality."""
    level = "" if curves.level is None else f" at {curves.x.name} {quantity(curves.level, curves.x.unit)}"
    parts = [f"{heading} {plain(curves.y.name + level)}", HOW_CURVES, *(plain(line) for line in curves.sentences)]
    if curves.level is not None:
        heads = ["target", plain(titled(curves.y.name, curves.y.unit)), f"{curves.confidence * 100:g}% interval"]
        heads += ["against the best (interval)", "would be at", "n", "verdict"]
        rows = [
            [
                plain(row.name) + (f" **{row.mark}**" if row.mark else ""),
                *(plain(text) for text in (row.value, row.interval, row.change, row.place, row.n, row.verdict)),
            ]
            for row in curves.rows()
        ]
        parts.append(table(heads, rows, range(1, 6)))
    points = [
        [plain(curve.named(point)), number(point.x), number(point.y), "not beaten" if point.frontier else ""]
        for curve in curves.curves
        for point in curve.points
    ]
    heads = ["point", plain(curves.x.name), plain(curves.y.name), "frontier"]
    parts.append(table(heads, points[:_MOST_POINTS], (1, 2)))
    parts.append(plain(unbeaten_sentence(curves)))
    parts.append(plain(f"Interpolated: {curves.scales}. " + " ".join(curves.notes)))
    return "\n\n".join(parts)


def _scalings(data: ReportData, figures: Figures) -> str:
    shown = [scaling_markdown(item, "###", images(figures, "scaling", item.along)) for item in data.scalings]
    return "\n\n".join(["## Scaling", *shown]) if shown else ""


def scaling_markdown(scaling: Scaling, heading: str = "##", drawn: str = "") -> str:
    """Return targets along one axis."""
    parts = [f"{heading} {plain(scaling.title)}", SCALING_STOPS, *([drawn] if drawn else [])]
    for curve in scaling.curves:
        heads = [plain(head) for head in stage_heads(scaling, curve)]
        rows = [[plain(text) for text in row] for row in stage_rows(scaling, curve)]
        words = plain(" ".join(curve_sentences(scaling, curve)))
        parts += [f"{heading}# {plain(curve.name)}", words, table(heads, rows, range(len(heads)))]
    return "\n\n".join([*parts, *map(plain, scaling.notes)])


def _spread(item: SpreadFacts) -> str:
    rows = [[plain(cell) for cell in axis_row(item, row)] for row in item.axes]
    body = [table(SPREAD_HEADS, rows, SPREAD_RIGHT)] if rows else []
    return "\n\n".join([f"### {plain(titled(item.name, item.unit))}", f"{quartile_sentence(item)}.", *body])


def _comparison(data: ReportData) -> str:
    if not data.rankings and not data.cases:
        return ""
    parts = ["## Comparison", HOW_COMPARED, *(_ranking(data, ranking, "###") for ranking in data.rankings)]
    parts += (
        ["### Side by side under identical load", *(_case(data, case) for case in data.cases)] if data.cases else []
    )
    return "\n\n".join(parts)


def _case(data: ReportData, case: CaseRanking) -> str:
    tables = [_ranking(data, ranking, "#####") for ranking in case.rankings]
    return "\n\n".join([f"#### {plain(case.case)}", plain(f"{leaders(data, case)}."), *tables])


def _ranking(data: ReportData, ranking: Ranking, heading: str) -> str:
    rows = []
    for standing in ranking.standings:
        item = data.points[standing.point].number(ranking.column)
        assert item
        change, interval = (plain(text) for text in standing.gap_texts(ranking.unit))
        change += f" ({interval})" if interval else ""
        label = plain(data.points[standing.point].label) + (f" **{standing.mark}**" if standing.mark else "")
        rows.append([str(standing.place), label, value_text(item), change, standing.verdict])
    better = f"{ranking.direction} is better"
    left_out = ranking.ranked - len(ranking.standings)
    note = f"\n\n{plural(left_out, 'point')} between not shown." if left_out else ""
    heads = ["place", "point", plain(titled(ranking.name, ranking.unit)), "against the best (95% interval)", "verdict"]
    words = f"{plain(ranking.sentence)}\n\n" if ranking.sentence else ""
    return f"{heading} {plain(ranking.name)} ({better})\n\n{words}{table(heads, rows, (0, 2, 3))}{note}"


def value_text(item: PointNumber) -> str:
    """Return a value such as `20 954 ± 850, n 5, can be off by 210`; ~ marks a percentile from too few samples."""
    spread = spread_text(item.cell.value, item.stdev)
    approx = "\\~" if item.shaky else ""
    value = f"{approx}{number(item.cell.value, item.stdev)}{f' ± {spread}' if spread else ''}, n {item.cell.n}"
    return ", ".join(filter(None, [value, off_text(item.cell.value, item.error_bound)]))


def _points(data: ReportData) -> str:
    if not data.points:
        return ""
    columns = [column for column in data.columns() if column.primary] or data.columns()
    where = data.several_executors()
    first = ["point", "executor"] if where else ["point"]
    gone = [figure for figure in data.refused_columns() if figure.primary or not columns[0].primary]
    keys = [*(column.column for column in columns), *(figure.column for figure in gone)]
    heads = [*first, *(plain(titled(name_of(*key[:2]), key[2])) for key in keys), "trace"]
    rows = []
    for point in data.points[:_MOST_POINTS]:
        numbers, refused = [point.number(key) for key in keys], {figure.column for figure in point.refused}
        cells = [
            value_text(item) if item else INVALID if key in refused else "–"
            for key, item in zip(keys, numbers, strict=True)
        ]
        ref = next((item.cell.ref for item in numbers if item), "")
        named = [plain(text) for text in (point.label, point.executor)[: len(first)]]
        rows.append([*named, *cells, code(ref)])
    doubts = sorted({item.shaky for point in data.points for item in point.numbers if item.shaky})
    left_out = len(data.points) - _MOST_POINTS
    notes = [f"{plural(left_out, 'point')} more in report.json."] if left_out > 0 else []
    notes += [f"\\~ {plain(doubt)}." for doubt in doubts[:5]]
    notes += [f"{INVALID_WORDS}."] if any(point.refused for point in data.points) else []
    body = table(heads, rows, range(len(first), len(heads) - 1))
    every = _statistics(data, len(keys))
    explain = HOW_NUMBERS_READ + (f" {plain(FEW_SAMPLES)}" if doubts else "")
    return "\n\n".join(["## Points", explain, body, *notes, *([every] if every else [])])


def _statistics(data: ReportData, shown: int) -> str:
    """Return the `all statistics` of the page: every number of every point, folded. Empty if the table already has
    them."""
    numbers = [(point, item) for point in data.points for item in point.numbers]
    if len(data.columns()) <= shown:
        return ""
    if len(numbers) > _MOST_STATISTICS:
        return f"All {number(len(numbers))} numbers are in report.json."
    rows = [_statistic(point, item) for point, item in numbers]
    return folded("all statistics", table(["point", "what", "value", "trace"], rows, (2,)))


def _statistic(point: Point, item: PointNumber) -> list[str]:
    return [plain(point.label), plain(titled(item.name, item.cell.unit)), value_text(item), code(item.cell.ref)]


def curves_markdown(curves: Tradeoff | Scaling) -> str:
    """Return targets at equal quality, or along an axis."""
    return tradeoff_markdown(curves) if isinstance(curves, Tradeoff) else scaling_markdown(curves)
