"""The sections about the origin of numbers: failures, machines, and queries."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from benchhouse.report.tags import join, table, tag
from benchhouse.results.content import FailureFacts, ReportData, RunEnvironment, RunFacts
from benchhouse.results.numbers import number
from benchhouse.schema.query import QuerySpec
from benchhouse.schema.trial import outcome_words

SHORT = 12
REFUSED = (
    "These trials ran to their end, but by the experiment's own check their numbers don't hold. They are kept as "
    "evidence; no number, chart or ranking of this report takes them."
)
_MOST_FAILURES = 20
CONFIGURATION_IS = "The effective scenario as one trial was given it: axes have its values."

INVALID_WORDS = "INVALID: in every trial the figure can be off by more than is taken; Warnings say why"


def failures_section(data: ReportData) -> Markup:
    return _listed(data.failures) if data.failures else tag("p", no_failures(data), class_="soft")


def no_failures(data: ReportData) -> str:
    return "No trial failed." if data.invalid else "Every trial succeeded." if data.trials else "No trial was run."


def invalid_section(data: ReportData) -> Markup:
    return join(tag("p", REFUSED, class_="small soft"), _listed(data.invalid))


def _listed(trials: Sequence[FailureFacts]) -> Markup:
    """Return the first trials in full, and the rest in a folded table."""
    shown = [_failure(trial) for trial in trials[:_MOST_FAILURES]]
    rest = [
        tag("tr", *(tag("td", text) for text in (item.trial_id, item.outcome, item.code, tag("code", item.rerun))))
        for item in trials[_MOST_FAILURES:]
    ]
    if not rest:
        return join(*shown)
    others = tag("div", tag("table", tag("tbody", *rest)), class_="scroll")
    return join(*shown, tag("details", tag("summary", f"{number(len(rest))} more"), others))


def _failure(failure: FailureFacts) -> Markup:
    heading = " · ".join(filter(None, [outcome_words(failure.outcome), failure.code, failure.point]))
    log = failure.log_tail
    tail = tag("details", tag("summary", "Log tail"), tag("pre", log)) if log.strip() else None
    return tag(
        "article",
        tag("h3", heading),
        tag("p", failure.message) if failure.message else None,
        _pairs([("Trial", failure.trial_id), ("Folder", failure.folder), ("Run again", failure.rerun)], code=True),
        tail,
        class_="failure",
    )


def warnings_section(data: ReportData) -> Markup:
    if not data.warnings:
        return tag("p", "No warnings.", class_="soft")
    rows = [
        [tag("code", group.code), number(group.count), tag("span", " / ".join(group.messages), class_="words")]
        for group in data.warnings
    ]
    return table(["warning", "trials", "what it says"], rows, (1,))


def configuration_section(data: ReportData) -> Markup | None:
    if not data.configuration.strip():
        return None
    return join(tag("p", CONFIGURATION_IS, class_="small soft"), tag("pre", data.configuration, tabindex=0))


def environments_section(data: ReportData) -> Markup:
    several = len(data.environments) > 1
    return tag("div", *(_environment(item, several=several) for item in data.environments), class_="columns")


def environment_entries(item: RunEnvironment) -> list[tuple[str, str]]:
    """Return the names and values of the facts about the machine."""
    commit = "not in a git repository"
    if item.git_commit:
        commit = item.git_commit[:SHORT] + (" with uncommitted changes" if item.git_dirty else "")
    return [
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


def _environment(item: RunEnvironment, *, several: bool) -> Markup:
    heading = tag("h3", f"Run {item.run_id}") if several else None
    return tag(
        "div",
        heading,
        _pairs(environment_entries(item)),
        tag("p", f"As recorded by trial {item.trial_id}.", class_="note"),
    )


def _plain(value: Any) -> str:
    """Return a fact as text: text unchanged, other values as compact JSON."""
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


def lineage_section(data: ReportData) -> Markup:
    explain = tag(
        "p",
        "Every number above carries a reference. ",
        tag("code", "bench trace REFERENCE"),
        " runs its query again, checks the digests of what it read and names the sealed trial folders behind it.",
    )
    runs = tag("div", *(_pairs(run_entries(run)) for run in data.runs), class_="columns")
    queries = [
        tag(
            "details",
            tag("summary", f"Query {query.name} ", tag("code", query.digest()[:SHORT])),
            _pairs(query_entries(query)),
            tag("pre", query.sql, tabindex=0),
            tag("pre", query_inputs(query), tabindex=0),
        )
        for query in data.queries
    ]
    return join(explain, runs, *queries)


def query_entries(query: QuerySpec) -> list[tuple[str, str]]:
    return [
        ("Query spec digest", query.digest()),
        ("Engine", f"{query.engine} {query.engine_version}"),
        ("Quantile definition", query.quantile_definition),
        ("Parameters", json.dumps(query.parameters, ensure_ascii=False, default=str)),
    ]


def query_inputs(query: QuerySpec) -> str:
    """Return the files that the query read, one per line."""
    return "\n".join(f"{item.sha256}  {item.table}  {item.file}" for item in query.inputs)


def run_entries(run: RunFacts) -> list[tuple[str, str]]:
    times = f"{when(run.started)} to {when(run.ended)}" if run.started else ""
    entries = [("Run", run.run_id), ("From, to", times), ("Plan digest", run.plan_digest)]
    return [*entries, ("Experiment", f"{run.experiment} {run.version}"), ("Distribution", run.distribution)]


def when(stamp: str | None) -> str:
    return (stamp or "").replace("T", " ")[:19] + (" UTC" if stamp else "")
