"""The parts of the Markdown report about the origin of its numbers: load, machine, failures, lineage."""

from collections.abc import Mapping, Sequence

from benchhouse.report.evidence_sections import (
    CONFIGURATION_IS,
    REFUSED,
    SHORT,
    environment_entries,
    no_failures,
    query_entries,
    query_inputs,
    run_entries,
)
from benchhouse.report.load_section import CHART, HEADS, HOW, RIGHT, charts_left_out, choices, load_rows, rows_left_out
from benchhouse.report.machine_section import HEADS as MACHINE_HEADS
from benchhouse.report.machine_section import (
    circumstances,
    clock_words,
    figure_rows,
    how_to_read,
    points_left_out,
    source_files,
    ticks_missed,
)
from benchhouse.report.markdown_text import block, code, folded, plain, table
from benchhouse.report.rank_section import HOW as HOW_RANKS
from benchhouse.report.rank_section import source, whole_steps
from benchhouse.results.content import FailureFacts, ReportData
from benchhouse.results.machine import MachineFacts
from benchhouse.results.numbers import number
from benchhouse.schema.trial import outcome_words

_MOST_FAILURES = 20


def loads(data: ReportData, drawn: str) -> str:
    if not data.loads:
        return ""
    rows = [[plain(cell) for cell in row] for row in load_rows(data.loads)]
    notes = [rows_left_out(data.loads), plain(choices(data.loads))]
    notes += [CHART, drawn, charts_left_out(data.loads)] if drawn else []
    return "\n\n".join(filter(None, ["## Load", HOW, table(HEADS, rows, RIGHT), *notes]))


def ranks(data: ReportData, drawn: str) -> str:
    if not data.ranks:
        return ""
    notes = [
        f"{plain(item.point)}: {plain(text)}"
        for item in data.ranks
        for text in (item.times.straggler, whole_steps(item))
        if text
    ]
    sources = "\n".join(f"- {code(source(item))}" for item in data.ranks)
    return "\n\n".join(["## Ranks", HOW_RANKS, *notes, drawn, sources])


def machines(data: ReportData, drawn: Mapping[int, str]) -> str:
    if not data.machines:
        return ""
    parts = ["## Machine and servers", plain(how_to_read(data.machines))]
    parts += [_machine(item, drawn[at]) for at, item in enumerate(data.machines)]
    return "\n\n".join([*parts, *filter(None, [points_left_out(data.machines, len(data.points))])])


def _machine(item: MachineFacts, drawn: str) -> str:
    trouble = f" **{plain(item.trouble)}**" if item.trouble else ""
    lines, figures = source_files(item)
    source = (
        f"Repetition {item.repetition}, {plain(item.chosen)}. Lines from {code(lines)}, figures from {code(figures)} "
        f"(file and sha256) in {code(item.folder)}.{ticks_missed(item)}{plain(clock_words(item))}"
    )
    rows = [[plain(cell) for cell in row] for row in figure_rows(item)]
    abnormal = f"**{plain(item.abnormal)}**" if item.abnormal else ""
    body = [abnormal, drawn, table(MACHINE_HEADS, rows, range(2, len(MACHINE_HEADS))), source]
    heading = f"### {plain(item.point)}{trouble}\n\n{plain(circumstances(item))}."
    return "\n\n".join([heading, *filter(None, body)])


def failures(data: ReportData) -> str:
    if not data.failures:
        return f"## Failures\n\n{no_failures(data)}"
    return "\n\n".join([f"## Failures ({len(data.failures)})", *_listed(data.failures)])


def invalid(data: ReportData) -> str:
    if not data.invalid:
        return ""
    return "\n\n".join([f"## Invalid trials ({len(data.invalid)})", REFUSED, *_listed(data.invalid)])


def _listed(trials: Sequence[FailureFacts]) -> list[str]:
    parts = []
    for failure in trials[:_MOST_FAILURES]:
        heading = " · ".join(filter(None, [outcome_words(failure.outcome), failure.code, failure.point]))
        lines = [f"- **{plain(heading)}** {plain(failure.message)}"]
        facts = {"Trial": failure.trial_id, "Folder": failure.folder, "Run again": failure.rerun}
        lines += [f"  - {name}: {code(text)}" for name, text in facts.items() if text]
        parts.append("\n".join(lines))
        if failure.log_tail.strip():
            parts.append("\n".join("  " + line for line in block(failure.log_tail).splitlines()))
    rest = trials[_MOST_FAILURES:]
    rows = [[code(item.trial_id), plain(item.outcome), plain(item.code), code(item.rerun)] for item in rest]
    more = folded(f"{number(len(rest))} more", table(["trial", "outcome", "code", "run again"], rows))
    return [*parts, more] if rest else parts


def warnings(data: ReportData) -> str:
    if not data.warnings:
        return "## Warnings\n\nNo warnings."
    rows = [[code(group.code), number(group.count), plain(" / ".join(group.messages))] for group in data.warnings]
    return "## Warnings\n\n" + table(["warning", "trials", "what it says"], rows, (1,))


def configuration(data: ReportData) -> str:
    if not data.configuration.strip():
        return ""
    inside = block(data.configuration, "yaml")
    return f"## Configuration\n\n{CONFIGURATION_IS}\n\n{folded('effective scenario', inside)}"


def environments(data: ReportData) -> str:
    parts = []
    for item in data.environments:
        rows = [[plain(name), plain(value)] for name, value in environment_entries(item) if value]
        parts += [f"### Run {code(item.run_id)}", table(["what", "value"], rows)]
        parts += [f"As recorded by trial {code(item.trial_id)}."]
    return "\n\n".join(["## Environment", *parts]) if parts else ""


def lineage(data: ReportData) -> str:
    explain = (
        "Every number above carries a reference. `bench trace REFERENCE` runs its query again, checks the "
        "digests of what it read and names the sealed trial folders behind it."
    )
    parts = ["## Lineage", explain]
    told = [[[name, plain(value)] for name, value in run_entries(run) if value] for run in data.runs]
    parts += [table(["what", "value"], rows) for rows in told]
    for query in data.queries:
        entries = [[name, code(value)] for name, value in query_entries(query) if value]
        inside = [table(["what", "value"], entries), block(query.sql, "sql"), block(query_inputs(query))]
        parts.append(folded(f"Query {query.name} {query.digest()[:SHORT]}", "\n\n".join(inside)))
    return "\n\n".join(parts)
