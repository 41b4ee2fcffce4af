"""The report as GitHub-flavoured Markdown, for pull requests and terminals."""

import re
from collections.abc import Iterable, Sequence

from benchhouse.report.comparison_sections import (
    SPREAD_HEADS,
    SPREAD_RIGHT,
    axis_row,
    curve_sentences,
    quartile_sentence,
    stage_heads,
    stage_rows,
)
from benchhouse.report.evidence_sections import INVALID_WORDS, no_failures
from benchhouse.report.load_section import HEADS, RIGHT, choices, load_rows
from benchhouse.report.machine_section import HEADS as MACHINE_HEADS
from benchhouse.report.machine_section import clock_words, figure_rows
from benchhouse.results.content import CaseRanking, Environment, FailureFacts, Number, Ranking, ReportData, SpreadFacts
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.environment import PACKAGES_DIFFER
from benchhouse.results.numbers import INVALID, name_of, number, off_text, plural, quantity, spread_text, titled
from benchhouse.schema.quoting import shortened, visible
from benchhouse.schema.trial import outcome_words

_SPECIAL = re.compile(r"([\\`*\[\]<>#|~@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_ENTITIES = {"<": "&lt;", "@": "&#64;"}
_PIPE = re.compile(r"(?<!\\)\|")
_MOST_POINTS = 200
_MOST_MISSING = 20
_MOST_FAILURES = 20
_MOST_CASES = 12
_MOST_MACHINES = 12


def render(data: ReportData) -> str:
    """The whole report as text."""
    parts = [
        f"# {plain(data.scenario)}",
        plain(data.description),
        *_headline(data),
        tradeoff_markdown(data.tradeoff) if data.tradeoff else "",
        *(scaling_markdown(scaling) for scaling in data.scalings),
        *(_spread(item) for item in data.spreads),
        *(_ranking(data, ranking) for ranking in data.rankings),
        *(_case(data, case) for case in data.cases[:_MOST_CASES]),
        _points(data),
        _loads(data),
        _machines(data),
        _invalid(data),
        _failures(data),
        _warnings(data),
        _configuration(data),
        *(_environment(item) for item in data.environments),
        _lineage(data),
    ]
    return visible("\n\n".join(part for part in parts if part) + "\n")


def plain(text: str) -> str:
    """Text as a reader sees it: on one line, and nothing in it is Markdown, HTML or a mention."""
    flat = " ".join(text.splitlines())
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[1], f"\\{match[1]}"), flat)


def code(text: str) -> str:
    """Inline code, fenced by more backticks than it holds."""
    flat = " ".join(text.splitlines()).strip()
    if not flat:
        return ""
    longest = max(map(len, re.findall("`+", flat)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{room}{flat}{room}{fence}"


def block(text: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Cells are Markdown already; a pipe in one, even in code, is escaped."""
    numbers = set(right)
    rule = ["---:" if at in numbers else "---" for at in range(len(heads))]
    lines = ((_PIPE.sub(r"\|", cell) for cell in cells) for cells in (heads, rule, *rows))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _headline(data: ReportData) -> list[str]:
    lines = [f"**{plain(line)}**" if not at else plain(line) for at, line in enumerate(data.headline)]
    counts = data.outcomes().items()
    outcomes = ", ".join(f"{number(count)} {plain(outcome_words(outcome))}" for outcome, count in counts)
    facts = [
        f"{plain(f'{run.experiment} {run.version}')}, run {code(run.run_id)}, {plain(f'{run.executor}/{run.runtime}')}"
        for run in data.runs
    ]
    facts += [plural(len(data.points), "point")]
    missing = shortened(data.without_number, _MOST_MISSING)
    facts += [f"without a valid number: {plain(missing)}"] if missing else []
    return [*lines, "; ".join([*facts, f"trials: {outcomes or 'none'}"]) + "."]


def tradeoff_markdown(curves: Tradeoff) -> str:
    """Targets at equal quality."""
    level = "" if curves.level is None else f" at {curves.x.name} {quantity(curves.level, curves.x.unit)}"
    parts = [f"## {plain(curves.y.name + level)}", *(plain(line) for line in curves.sentences)]
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
    parts.append(plain(f"Interpolated: {curves.scales}. " + " ".join(curves.notes)))
    return "\n\n".join(parts)


def scaling_markdown(scaling: Scaling) -> str:
    """Targets along one axis."""
    parts = [f"## {plain(scaling.title)}"]
    for curve in scaling.curves:
        heads = [plain(head) for head in stage_heads(scaling, curve)]
        rows = [[plain(text) for text in row] for row in stage_rows(scaling, curve)]
        words = plain(" ".join(curve_sentences(scaling, curve)))
        parts += [f"### {plain(curve.name)}", words, table(heads, rows, range(len(heads)))]
    return "\n\n".join([*parts, *map(plain, scaling.notes)])


def _spread(item: SpreadFacts) -> str:
    rows = [[plain(cell) for cell in axis_row(item, row)] for row in item.axes]
    body = [table(SPREAD_HEADS, rows, SPREAD_RIGHT)] if rows else []
    return "\n\n".join([f"## Spread of {plain(titled(item.name, item.unit))}", f"{quartile_sentence(item)}.", *body])


def _case(data: ReportData, case: CaseRanking) -> str:
    tables = [_ranking(data, ranking).replace("## ", "#### ", 1) for ranking in case.rankings]
    return "\n\n".join([f"### Side by side: {plain(case.case)}", *tables])


def _ranking(data: ReportData, ranking: Ranking) -> str:
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
    return f"## {plain(ranking.name)} ({better})\n\n{table(heads, rows, (0, 2, 3))}{note}"


def value_text(item: Number) -> str:
    """`20 954 ± 850, n 5, can be off by 210`; ~ marks a percentile from too few samples."""
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
    return "\n\n".join(["## Points", "Mean over trials ± standard deviation; n is the number of trials.", body, *notes])


def _loads(data: ReportData) -> str:
    if not data.loads:
        return ""
    rows = [[plain(cell) for cell in row] for row in load_rows(data.loads)]
    return "\n\n".join(filter(None, ["## Load", table(HEADS, rows, RIGHT), plain(choices(data.loads))]))


def _machines(data: ReportData) -> str:
    if not data.machines:
        return ""
    parts = ["## Machine and servers", "One trial of each point, the median one by duration, as the monitors saw it."]
    for item in data.machines[:_MOST_MACHINES]:
        trouble = f", {plain(item.trouble)}" if item.trouble else ""
        where = f"{code(item.point)}{trouble}: repetition {item.repetition}, {item.chosen},\nfrom {code(item.summary)}"
        where += f".{plain(clock_words(item))}" if item.clocks else ""
        rows = [[plain(cell) for cell in row] for row in figure_rows(item)]
        parts += [
            where,
            *([f"**{plain(item.abnormal)}**"] if item.abnormal else []),
            table(MACHINE_HEADS, rows, range(2, len(MACHINE_HEADS))),
        ]
    shown = data.machines[:_MOST_MACHINES]
    if any(figure.few for item in shown for figure in item.figures):
        parts.append("\\~ a percentile from too few samples.")
    left_out = len(data.machines) - len(shown)
    return "\n\n".join([*parts, *([f"{plural(left_out, 'point')} more in report.json."] if left_out > 0 else [])])


def _failures(data: ReportData) -> str:
    if not data.failures:
        return f"## Failures\n\n{no_failures(data)}"
    return "\n\n".join([f"## Failures ({len(data.failures)})", *_listed(data.failures)])


def _invalid(data: ReportData) -> str:
    if not data.invalid:
        return ""
    explain = "By the experiment's own check their numbers don't hold: they are evidence, and enter no number above."
    return "\n\n".join([f"## Invalid trials ({len(data.invalid)})", explain, *_listed(data.invalid)])


def _listed(trials: Sequence[FailureFacts]) -> list[str]:
    parts = []
    for failure in trials[:_MOST_FAILURES]:
        heading = " · ".join(filter(None, [outcome_words(failure.outcome), failure.code, failure.point]))
        lines = [f"- **{plain(heading)}** {plain(failure.message)}"]
        facts = {"trial": failure.trial_id, "folder": failure.folder, "run again": failure.rerun}
        lines += [f"  - {name}: {code(text)}" for name, text in facts.items() if text]
        parts.append("\n".join(lines))
        if failure.log_tail.strip():
            parts.append("\n".join("  " + line for line in block(failure.log_tail).splitlines()))
    if len(trials) > _MOST_FAILURES:
        parts.append(f"{number(len(trials) - _MOST_FAILURES)} more in report.json.")
    return parts


def _warnings(data: ReportData) -> str:
    if not data.warnings:
        return ""
    rows = [[code(group.code), number(group.count), plain(" / ".join(group.messages))] for group in data.warnings]
    return "## Warnings\n\n" + table(["warning", "trials", "what it says"], rows, (1,))


def _configuration(data: ReportData) -> str:
    if not data.configuration.strip():
        return ""
    inside = block(data.configuration, "yaml")
    return f"## Configuration\n\n<details><summary>effective scenario</summary>\n\n{inside}\n\n</details>"


def _environment(item: Environment) -> str:
    commit = item.git_commit or "not in a git repository"
    entries = {
        "host": ", ".join(item.hosts),
        "CPU": item.cpu,
        "memory": item.memory,
        "kernel": item.kernel,
        "Python": item.python,
        "package lock digest": item.package_lock_digest,
        PACKAGES_DIFFER: str(item.other.get(PACKAGES_DIFFER, "")),
        "git commit": commit + (" with uncommitted changes" if item.git_dirty else ""),
        **{f"limit: {name}": str(value) for name, value in item.limits.items()},
    }
    rows = [[plain(name), plain(value)] for name, value in entries.items() if value]
    return f"## Environment of {code(item.run_id)}\n\n" + table(["what", "value"], rows)


def _lineage(data: ReportData) -> str:
    lines = [f"- plan digest {code(run.plan_digest)} of run {code(run.run_id)}" for run in data.runs]
    for query in data.queries:
        engine = plain(f"{query.engine} {query.engine_version}")
        lines.append(f"- query {code(query.name)}, spec digest {code(query.digest())}, {engine}")
    explain = "`bench trace REF` runs a number's query again and names the sealed folders behind it."
    return "## Lineage\n\n" + "\n".join([explain, "", *lines])


def curves_markdown(curves: Tradeoff | Scaling) -> str:
    """Targets at equal quality, or along an axis."""
    return tradeoff_markdown(curves) if isinstance(curves, Tradeoff) else scaling_markdown(curves)
