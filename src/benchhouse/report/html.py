"""One HTML file that opens offline: styles, scripts and data inside, no request to anywhere."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from benchhouse.report.content import (
    CaseRanking,
    Environment,
    FailureFacts,
    Number,
    Point,
    Ranking,
    ReportData,
    RunFacts,
    Standing,
)
from benchhouse.report.curve_sections import scaling_section, tradeoff_section
from benchhouse.report.load_section import load_section
from benchhouse.report.numbers import NONE, THIN, number, plural, spread_text, titled
from benchhouse.report.payload import axis_values, payload, varying_axes
from benchhouse.report.tags import Markup, embedded_json, join, tag
from benchhouse.schema.trial import outcome_words

CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_SCRIPTS = ("plot.js", "charts.js", "table.js")
_SHORT = 12
_MARKS = "Mark: mean over trials. Whisker: 95% interval of the mean. Faint dots: single trials."
_SILENT = "The charts and the table of points need JavaScript; report.md beside this file holds the same numbers."
_HOW_NUMBERS_READ = (
    "Mean over trials ± standard deviation, and n, the number of trials. A click on a number shows where it comes from."
)
_REFUSED = (
    "These trials ran to their end, but by the experiment's own check their numbers don't hold. They are kept as "
    "evidence; no number, chart or ranking of this report takes them."
)
_MOST_FAILURES = 20
_MOST_MISSING = 6


def render(data: ReportData) -> str:
    """The whole page as text."""
    sections = [section for section in _sections(data) if section[2]]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    body = [tag("section", tag("h2", title), content, id=name) for name, title, content in sections]
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{CSP}">'),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", f"{data.scenario}: benchmark report"),
            tag("style", Markup(_asset("report.css"))),
        ),
        tag(
            "body",
            _top(data),
            tag("nav", tag("ul", *links), aria_label="Sections"),
            tag("main", *body),
            _footer(data),
            tag("dialog", id="lineage-dialog", aria_labelledby="lineage-title"),
            tag("script", embedded_json(payload(data)), type="application/json", id="data"),
            tag("script", Markup(f'(() => {{ "use strict";\n{script}\n}})();')),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


@cache
def _asset(name: str) -> str:
    return resources.files("benchhouse.report").joinpath("assets", name).read_text(encoding="utf-8")


def _sections(data: ReportData) -> list[tuple[str, str, Markup | None]]:
    """Identifier, title and content of every section; a section without content is left out."""
    failed = len(data.failures)
    return [
        ("charts", "Charts", _charts(data) if data.points else None),
        ("tradeoff", "At equal quality", tradeoff_section(data.tradeoff) if data.tradeoff else None),
        ("scaling", "Scaling", scaling_section(data.scalings) if data.scalings else None),
        ("comparison", "Comparison", _comparison(data) if data.rankings else None),
        ("points-section", "Points", _points(data) if data.points else None),
        ("load", "Load", load_section(data.loads) if data.loads else None),
        ("invalid", f"Invalid trials ({len(data.invalid)})", _invalid(data) if data.invalid else None),
        ("failures", f"Failures ({failed})" if failed else "Failures", _failures(data)),
        ("warnings", "Warnings", _warnings(data)),
        ("configuration", "Configuration", _configuration(data)),
        ("environment", "Environment", _environments(data) if data.environments else None),
        ("lineage", "Lineage", _lineage(data)),
    ]


def _top(data: ReportData) -> Markup:
    experiments = list(dict.fromkeys(f"{run.experiment} {run.version}".strip() for run in data.runs))
    sources = list(dict.fromkeys(run.distribution for run in data.runs if run.distribution))
    kind = ", ".join(filter(None, experiments)) + (f" from {', '.join(sources)}" if sources else "")
    trouble = not data.points
    verdicts = [tag("p", line, class_="verdict trouble" if trouble else "verdict") for line in data.headline]
    outcomes = data.outcomes()
    counted = ", ".join(f"{count:,} {outcome_words(outcome)}" for outcome, count in outcomes.items())
    targets = list(dict.fromkeys(point.target_name for point in data.points))
    facts = [
        ("Compared", _compared(data)),
        ("Targets", ", ".join(targets[:4]) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")),
        ("Trials", counted or "none"),
        ("Run" if len(data.runs) == 1 else "Runs", ", ".join(run.run_id for run in data.runs)),
        ("Started", _when(data.runs[0].started) if data.runs else ""),
        ("Executor, runtime", ", ".join(dict.fromkeys(f"{run.executor}, {run.runtime}" for run in data.runs))),
    ]
    return tag(
        "header",
        tag("h1", data.scenario),
        tag("p", kind, class_="kind"),
        tag("p", data.description, class_="soft") if data.description else None,
        *verdicts,
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value), class_="facts"),
        class_="top",
    )


def _compared(data: ReportData) -> str:
    axes = varying_axes([axis_values(point, several_runs=len(data.runs) > 1) for point in data.points])
    along = " × ".join(f"{axis['title']} ({len(axis['values'])})" for axis in axes)
    missing = data.without_number
    more = f" and {len(missing) - _MOST_MISSING} more" if len(missing) > _MOST_MISSING else ""
    told = f"; without a successful trial: {', '.join(missing[:_MOST_MISSING])}{more}" if missing else ""
    return plural(len(data.points), "point") + (f": {along}" if along else "") + told


def _when(stamp: str | None) -> str:
    return (stamp or "").replace("T", " ")[:19] + (" UTC" if stamp else "")


def _choice(name: str, title: str) -> Markup:
    return tag("label", title, tag("select", id=name))


def _check(name: str, title: str) -> Markup:
    return tag("label", tag("input", type="checkbox", id=name), title)


def _charts(data: ReportData) -> Markup:
    controls = tag(
        "div",
        _choice("metric", "Metric"),
        _choice("x-axis", "along"),
        _choice("colour", "coloured by"),
        _check("log", "log scale"),
        _check("zero", "from zero"),
        class_="bar",
    )
    sweep = tag(
        "figure",
        tag("figcaption", "Value along the axis", tag("small", _MARKS)),
        tag("div", id="sweep-legend", class_="legend"),
        tag("div", id="sweep", class_="plot"),
        tag("p", id="sweep-note", class_="note"),
        class_="wide",
    )
    drift = tag(
        "figure",
        tag("figcaption", "Drift", tag("small", "The same metric, trial by trial, in order of execution.")),
        tag("div", _check("relative", "relative to the point's mean"), class_="bar"),
        tag("div", id="drift", class_="plot"),
        tag("p", id="drift-note", class_="note"),
    )
    several = len({column.metric for column in data.columns()}) > 1
    scatter = tag(
        "figure",
        tag("figcaption", "Trade-off", tag("small", "One metric against another; whiskers are 95% intervals.")),
        tag("div", _choice("scatter-y", "up"), _choice("scatter-x", "across"), class_="bar"),
        tag("div", id="scatter", class_="plot"),
        tag("p", id="scatter-note", class_="note"),
    )
    return join(
        tag("noscript", tag("p", _SILENT)),
        controls,
        tag("div", sweep, scatter if several else None, drift, class_="charts"),
    )


def _comparison(data: ReportData) -> Markup:
    intro = tag(
        "p",
        "Points in order, each against the best. The interval is that of the change for this pair alone; the verdict "
        "is by Welch's t test at 5% after Holm's correction for all pairs, as the best was picked by looking.",
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


def _points(data: ReportData) -> Markup:
    some = any(found.shaky for point in data.points for found in point.numbers)
    doubt = " ~ marks a percentile from too few samples." if some else ""
    search = tag("input", type="search", id="filter", placeholder="words, or axis=value")
    bar = tag(
        "div",
        tag("label", "Filter", search, class_="grow"),
        _check("all-stats", "all statistics"),
        tag("span", id="page-note", role="status"),
        tag("button", "Back", type="button", class_="plain", id="page-back"),
        tag("button", "Next", type="button", class_="plain", id="page-on"),
        class_="bar",
    )
    area = tag("div", id="points", class_="scroll", tabindex=0, role="region", aria_label="Points and their numbers")
    return join(tag("p", _HOW_NUMBERS_READ + doubt, class_="small soft"), bar, area)


def _failures(data: ReportData) -> Markup:
    if not data.failures:
        words = "No trial failed." if data.invalid else "Every trial succeeded." if data.trials else "No trial was run."
        return tag("p", words, class_="soft")
    return _listed(data.failures)


def _invalid(data: ReportData) -> Markup:
    return join(tag("p", _REFUSED, class_="small soft"), _listed(data.invalid))


def _listed(trials: Sequence[FailureFacts]) -> Markup:
    """The first trials in full, the rest in a folded table."""
    shown = [_failure(trial) for trial in trials[:_MOST_FAILURES]]
    rest = [
        tag("tr", *(tag("td", text) for text in (item.trial_id, item.outcome, item.code, tag("code", item.rerun))))
        for item in trials[_MOST_FAILURES:]
    ]
    more = None
    if rest:
        table = tag("div", tag("table", tag("tbody", *rest)), class_="scroll")
        more = tag("details", tag("summary", f"{len(rest):,} more"), table)
    return join(*shown, more)


def _failure(failure: FailureFacts) -> Markup:
    heading = " · ".join(filter(None, [outcome_words(failure.outcome), failure.code, failure.point]))
    tail = (
        tag("details", tag("summary", "Log tail"), tag("pre", failure.log_tail)) if failure.log_tail.strip() else None
    )
    return tag(
        "article",
        tag("h3", heading),
        tag("p", failure.message) if failure.message else None,
        _pairs([("Trial", failure.trial_id), ("Folder", failure.folder), ("Run again", failure.rerun)], code=True),
        tail,
        class_="failure",
    )


def _warnings(data: ReportData) -> Markup:
    if not data.warnings:
        return tag("p", "No warnings.", class_="soft")
    rows = [
        tag(
            "tr",
            tag("td", tag("code", group.code)),
            tag("td", f"{group.count:,}", class_="n"),
            tag("td", " / ".join(group.messages), class_="wrap"),
        )
        for group in data.warnings
    ]
    head = tag("tr", tag("th", "warning"), tag("th", "trials", class_="n"), tag("th", "what it says"))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll")


def _configuration(data: ReportData) -> Markup | None:
    if not data.configuration.strip():
        return None
    explain = tag("p", "The effective scenario as one trial was given it: axes have its values.", class_="small soft")
    return join(explain, tag("pre", data.configuration, tabindex=0))


def _environments(data: ReportData) -> Markup:
    several = len(data.environments) > 1
    return tag("div", *(_environment(item, several=several) for item in data.environments), class_="columns")


def _environment(item: Environment, *, several: bool) -> Markup:
    commit = "not in a git repository"
    if item.git_commit:
        commit = item.git_commit[:_SHORT] + (" with uncommitted changes" if item.git_dirty else "")
    entries = [
        ("Host" if len(item.hosts) == 1 else "Hosts", ", ".join(item.hosts)),
        ("CPU", item.cpu),
        ("Memory", item.memory),
        ("Kernel", item.kernel),
        ("Python", item.python),
        ("Package lock digest", item.package_lock_digest),
        ("Git commit", commit),
        *((f"Limit: {name}", _plain(value)) for name, value in item.limits.items()),
        *((name, _plain(value)) for name, value in item.other.items()),
    ]
    heading = tag("h3", f"Run {item.run_id}") if several else None
    return tag("div", heading, _pairs(entries), tag("p", f"As recorded by trial {item.trial_id}.", class_="note"))


def _plain(value: Any) -> str:
    """A fact as text: words as they are, everything else as compact JSON."""
    if isinstance(value, dict) and value and all(not isinstance(item, dict | list) for item in value.values()):
        return ", ".join(f"{key} {item}" for key, item in value.items() if item is not None)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _pairs(entries: Iterable[tuple[str, str]], *, code: bool = False) -> Markup:
    listed = [
        join(tag("dt", name), tag("dd", tag("code", value) if code else value)) for name, value in entries if value
    ]
    return tag("dl", *listed, class_="pairs")


def _lineage(data: ReportData) -> Markup:
    explain = tag(
        "p",
        "Every number above carries a short reference. ",
        tag("code", "bench trace REFERENCE"),
        " runs its query again, checks the digests of what it read and names the sealed trial folders behind it.",
    )
    runs = tag("div", *(_run(run) for run in data.runs), class_="columns")
    queries = [
        tag(
            "details",
            tag("summary", f"Query {query.name} ", tag("code", query.digest()[:_SHORT])),
            _pairs(
                [
                    ("Query spec digest", query.digest()),
                    ("Engine", f"{query.engine} {query.engine_version}"),
                    ("Quantile definition", query.quantile_definition),
                    ("Parameters", json.dumps(query.parameters, ensure_ascii=False, default=str)),
                ]
            ),
            tag("pre", query.sql, tabindex=0),
            tag("pre", "\n".join(f"{item.sha256}  {item.table}  {item.file}" for item in query.inputs), tabindex=0),
        )
        for query in data.queries
    ]
    return join(explain, runs, *queries)


def _run(run: RunFacts) -> Markup:
    entries = [
        ("Run", run.run_id),
        ("From, to", f"{_when(run.started)} to {_when(run.ended)}" if run.started else ""),
        ("Plan digest", run.plan_digest),
        ("Experiment", f"{run.experiment} {run.version}"),
        ("Distribution", run.distribution),
    ]
    return _pairs(entries)


def _footer(data: ReportData) -> Markup:
    largest = max((found.cell.n for point in data.points for found in point.numbers), default=0)
    words = f"Up to {plural(largest, 'trial')} behind each number. " if largest else ""
    closing = "Written by Benchhouse; this file needs no network. report.json beside it holds every number in full."
    return tag("footer", words + closing)
