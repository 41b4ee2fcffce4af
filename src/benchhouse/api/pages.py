"""Pages of runs: the report, and the view of one run for one reader."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchhouse.api.answers import CurveComparison, Report
from benchhouse.api.why import page as why_page
from benchhouse.report.data import gather
from benchhouse.report.files import write_report
from benchhouse.results.curves import Tradeoff
from benchhouse.runs.execution import RunListener, collect
from benchhouse.runs.status import rerun_line
from benchhouse.schema.errors import BenchError, unwritable

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


def write(
    workspace: "Workspace",
    runs: Sequence[str],
    audience: str | None,
    curves: CurveComparison | None,
    listener: RunListener,
) -> Report:
    """The report of these runs; with an audience, one page for that reader."""
    if audience:
        return _for_reader(workspace, runs, audience)
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


def _for_reader(workspace: "Workspace", runs: Sequence[str], audience: str) -> Report:
    if len(runs) > 2:
        raise BenchError("a page for one reader is of one run, or of two: the base and the run", "give fewer runs")
    why = workspace.why(runs[-1], runs[0] if len(runs) == 2 else None).why
    return Report(why_page(workspace.folder, why, audience), why.headline)
