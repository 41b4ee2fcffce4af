"""Pages of runs: the report, and the view of a run for one reader."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from benchhouse.api.answers import CurveComparison, Report
from benchhouse.api.why import page as why_page
from benchhouse.api.why import page_content
from benchhouse.report import html, markdown, pages
from benchhouse.report.data import gather
from benchhouse.report.figures import figure_files
from benchhouse.report.files import report_json, write_report
from benchhouse.results.curves import Tradeoff
from benchhouse.runs.execution import RunListener, collect
from benchhouse.runs.status import rerun_line
from benchhouse.schema.errors import BenchError, unwritable

if TYPE_CHECKING:
    from benchhouse.api.answers import Diagnosis
    from benchhouse.api.workspace import Workspace

ReportForm = Literal["html", "markdown", "json"]


def write(
    workspace: "Workspace",
    runs: Sequence[str],
    audience: str | None,
    curves: CurveComparison | None,
    listener: RunListener,
) -> Report:
    """Write the report of these runs or, with an audience, one page for that reader."""
    if audience:
        why = _for_reader(workspace, runs, audience).why
        return Report(why_page(workspace.folder, why, audience), why.headline)
    folder, run_ids = workspace.folder, [workspace[run].id for run in runs]
    for run_id in run_ids:
        for line in collect(folder, run_id, unless_complete=True).skipped:
            listener.note(f"left out: {line}")
    level = curves.curves if curves and isinstance(curves.curves, Tradeoff) else None
    data = gather(folder, run_ids, rerun=lambda run_id, trial: rerun_line(trial), asked=level)
    try:
        return Report(write_report(folder, data), invalid=len(data.invalid))
    except OSError as error:
        raise unwritable(folder.reports, error, f"bench report {' '.join(run_ids)}") from error


def text(workspace: "Workspace", runs: Sequence[str], audience: str | None, form: ReportForm) -> str:
    """Return what `write` puts into files. As JSON, a page for one reader is the data that it is made from."""
    folder = workspace.folder
    if audience:
        diagnosis = _for_reader(workspace, runs, audience)
        if form == "json":
            return json.dumps(diagnosis.to_dict(), ensure_ascii=False)
        content = page_content(folder, diagnosis.why, audience)
        return pages.as_html(content) if form == "html" else pages.as_markdown(content)
    run_ids = workspace.collected(*runs)
    data = gather(folder, run_ids, rerun=lambda run_id, trial: rerun_line(trial), published=False)
    if form == "json":
        return report_json(data)
    return html.render(data) if form == "html" else markdown.render(data, figure_files(data))


def _for_reader(workspace: "Workspace", runs: Sequence[str], audience: str) -> "Diagnosis":
    if len(runs) > 2:
        raise BenchError("a page for one reader is of one run, or of two: the base and the run", "give fewer runs")
    return workspace.why(runs[-1], runs[0] if len(runs) == 2 else None)
