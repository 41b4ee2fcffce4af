"""One HTML file that opens offline: it includes styles, scripts, and data, and makes no requests."""

from functools import cache
from typing import Any

from markupsafe import Markup

from benchhouse.report.comparison_sections import (
    comparison_section,
    scaling_section,
    spread_section,
    tradeoff_section,
)
from benchhouse.report.evidence_sections import (
    INVALID_WORDS,
    configuration_section,
    environments_section,
    failures_section,
    invalid_section,
    lineage_section,
    warnings_section,
    when,
)
from benchhouse.report.load_section import load_section
from benchhouse.report.machine_section import machine_section
from benchhouse.report.payload import axis_values, payload, varying_axes
from benchhouse.report.rank_section import rank_section
from benchhouse.report.tags import asset, document, embedded_json, join, tag
from benchhouse.results.content import ReportData
from benchhouse.results.numbers import number, plural
from benchhouse.schema.quoting import shortened
from benchhouse.schema.trial import outcome_words

_SCRIPTS = ("data.js", "plot.js", "bands.js", "charts.js", "table.js")
_BANDS = "Medians over the points at each value of the axis."
_MARKS = "Mark: mean over trials. Whisker: 95% interval of the mean. Faint dots: single trials."
_SILENT = "The charts and the table of points need JavaScript; report.md beside this file holds the same numbers."
HOW_NUMBERS_READ = "Mean over trials ± standard deviation, and n, the number of trials."
FEW_SAMPLES = "~ marks a percentile from too few samples."
_CLICK = " A click on a number shows where it comes from."
_WHERE_STATISTICS_ARE = "ask table measurement_fact with bench query, or bench trace RUN:METRIC.STAT."
_MOST_MISSING = 6


def render(data: ReportData) -> str:
    """Return the whole page as text."""
    links, sections = body(data, tag("p", _SILENT))
    return document(
        f"{data.scenario}: benchmark report",
        top(data),
        links,
        tag("main", sections),
        _footer(data),
        data_for_script(payload(data)),
        tag("script", script()),
    )


def body(data: ReportData, silent: Markup) -> tuple[Markup, Markup]:
    """Return links to the sections, and the sections; `silent` replaces the charts if there is no JavaScript."""
    made = [section for section in _sections(data, silent) if section[2]]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in made]
    sections = [tag("section", tag("h2", title), content, id=name) for name, title, content in made]
    return tag("nav", tag("ul", *links), aria_label="Sections"), join(*sections)


def data_for_script(content: dict[str, Any]) -> Markup:
    """Return the data for `script`, and the dialog in which it shows the lineage of a number."""
    dialog = tag("dialog", id="lineage-dialog", aria_labelledby="lineage-title")
    return join(dialog, tag("script", embedded_json(content), type="application/json", id="data"))


@cache
def script() -> Markup:
    """Return all scripts of a report as one script."""
    parts = Markup("\n").join(asset(name) for name in _SCRIPTS)
    return join(Markup('(() => { "use strict";\n'), parts, Markup("\n})();"))


def _sections(data: ReportData, silent: Markup) -> list[tuple[str, str, Markup | None]]:
    """Return the identifier, title, and content of every section; sections without content are left out."""
    failed = len(data.failures)
    return [
        ("charts", "Charts", _charts(data, silent) if data.points else None),
        ("spread", "Spread", spread_section(data.spreads) if data.spreads else None),
        ("tradeoff", "At equal quality", tradeoff_section(data.tradeoff) if data.tradeoff else None),
        ("scaling", "Scaling", scaling_section(data.scalings) if data.scalings else None),
        ("comparison", "Comparison", comparison_section(data) if data.rankings or data.cases else None),
        ("points-section", "Points", _points(data) if data.points else None),
        ("load", "Load", load_section(data.loads) if data.loads else None),
        ("ranks", "Ranks", rank_section(data.ranks) if data.ranks else None),
        ("machine", "Machine and servers", machine_section(data.machines, len(data.points)) if data.machines else None),
        ("invalid", f"Invalid trials ({len(data.invalid)})", invalid_section(data) if data.invalid else None),
        ("failures", f"Failures ({failed})" if failed else "Failures", failures_section(data)),
        ("warnings", "Warnings", warnings_section(data)),
        ("configuration", "Configuration", configuration_section(data)),
        ("environment", "Environment", environments_section(data) if data.environments else None),
        ("lineage", "Lineage", lineage_section(data)),
    ]


def facts(data: ReportData) -> list[tuple[str, str]]:
    """Return the names and values below the verdict."""
    counted = ", ".join(f"{number(count)} {outcome_words(outcome)}" for outcome, count in data.outcomes().items())
    targets = list(dict.fromkeys(point.target_name for point in data.points))
    return [
        ("Experiment", kind(data)),
        ("Compared", _compared(data)),
        ("Targets", shortened(targets, 4)),
        ("Trials", counted or "none"),
        ("Run" if len(data.runs) == 1 else "Runs", ", ".join(run.run_id for run in data.runs)),
        ("Started", when(data.runs[0].started) if data.runs else ""),
        ("Executor", ", ".join(dict.fromkeys(run.executor for run in data.runs))),
        ("Runtime", ", ".join(dict.fromkeys(run.runtime for run in data.runs))),
    ]


def kind(data: ReportData) -> str:
    """Return the experiments with their packages."""
    experiments = list(dict.fromkeys(f"{run.experiment} {run.version}".strip() for run in data.runs))
    sources = list(dict.fromkeys(run.distribution for run in data.runs if run.distribution))
    return ", ".join(filter(None, experiments)) + (f" from {', '.join(sources)}" if sources else "")


def top(data: ReportData) -> Markup:
    """Return the name, the verdict, and the facts below it."""
    verdicts = [tag("p", line, class_="verdict" if data.points else "verdict trouble") for line in data.headline]
    entries = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts(data)[1:] if value]
    return tag(
        "header",
        tag("h1", data.scenario),
        tag("p", kind(data), class_="kind"),
        tag("p", data.description, class_="soft") if data.description else None,
        *verdicts,
        tag("dl", *entries, class_="facts"),
        class_="top",
    )


def _compared(data: ReportData) -> str:
    axes = varying_axes([axis_values(point, several_runs=len(data.runs) > 1) for point in data.points])
    along = " × ".join(f"{axis['title']} ({len(axis['values'])})" for axis in axes)
    missing = shortened(data.without_number, _MOST_MISSING)
    failed = f"; without a valid number: {missing}" if missing else ""
    return plural(len(data.points), "point") + (f": {along}" if along else "") + failed


def _choice(name: str, title: str) -> Markup:
    return tag("label", title, tag("select", id=name))


def _check(name: str, title: str) -> Markup:
    return tag("label", tag("input", type="checkbox", id=name), title)


def _figure(name: str, title: str, explanation: str, controls: Markup, *, wide: bool = False) -> Markup:
    return tag(
        "figure",
        tag("figcaption", title, tag("small", explanation)),
        controls,
        tag("div", id=name, class_="plot"),
        tag("p", id=f"{name}-note", class_="note"),
        class_="wide" if wide else None,
    )


def _charts(data: ReportData, silent: Markup) -> Markup:
    controls = tag(
        "div",
        _choice("metric", "Metric"),
        _choice("x-axis", "along"),
        _choice("colour", "coloured by"),
        _check("log", "log scale"),
        _check("zero", "from zero"),
        class_="bar",
    )
    legend = tag("div", id="sweep-legend", class_="legend")
    sweep = _figure("sweep", "Value along the axis", _BANDS if data.spreads else _MARKS, legend, wide=True)
    drift = _figure(
        "drift",
        "Drift",
        "The same metric, trial by trial, in order of execution.",
        tag("div", _check("relative", "relative to the point's mean"), class_="bar"),
    )
    scatter = _figure(
        "scatter",
        "Trade-off",
        "One metric against another; whiskers are 95% intervals.",
        tag("div", _choice("scatter-y", "up"), _choice("scatter-x", "across"), class_="bar"),
    )
    several = len({column.metric for column in data.columns()}) > 1
    return join(
        tag("noscript", silent),
        controls,
        tag("div", sweep, scatter if several else None, drift, class_="charts"),
    )


def _points(data: ReportData) -> Markup:
    shaky = any(item.shaky for point in data.points for item in point.numbers)
    doubt = f" {FEW_SAMPLES}" if shaky else ""
    if any(point.refused for point in data.points):
        doubt += f" {INVALID_WORDS}."
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
    left_out = ""
    if data.statistics_left_out:  # of a large sweep
        further = plural(data.statistics_left_out, "further statistic")
        left_out = f" {further} of each point (minimum, p90, ...) are not on this page: {_WHERE_STATISTICS_ARE}"
    return join(tag("p", HOW_NUMBERS_READ + _CLICK + doubt + left_out, class_="small soft"), bar, area)


def _footer(data: ReportData) -> Markup:
    largest = max((item.cell.n for point in data.points for item in point.numbers), default=0)
    trials = f"Up to {plural(largest, 'trial')} behind each number. " if largest else ""
    closing = "Written by Benchhouse; this file needs no network. report.json beside it holds every number in full."
    return tag("footer", trials + closing)
