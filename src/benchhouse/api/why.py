"""Why a run got slower: compare it with its base, apply the playbooks, and name the evidence."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.evidence.writing import write_text
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

if TYPE_CHECKING:
    from benchhouse.report.pages import Page
    from benchhouse.results.why import FailedTrial, WhyAnswer

    Row = Sequence[str]

_CLOCKS = "Windows are in seconds since each trial's own start: clocks that disagree between nodes move nothing here."
_MOST_FAILURES = 20


def why(workspace: WorkspaceFolder, run_id: str, vs: str | None = None) -> "WhyAnswer":
    """Diagnose a collected run against `vs`, or against the newest earlier run of its plan or case, which is named."""
    from benchhouse.results import why as report
    from benchhouse.results.comparison import CompareOptions
    from benchhouse.results.comparisons import compare
    from benchhouse.results.duplicate_metrics import count_once

    base = vs or ""
    if base == run_id:
        raise BenchError(f"{run_id} can't be compared with itself", hint="Give another run: bench why RUN --vs RUN")
    reasons, notes = _pending(workspace, run_id)
    with Warehouse.open(workspace) as warehouse:
        facts = queries.trials(warehouse, [run_id]).dicts()
        chosen = "as asked for"
        if not base and facts:
            base, chosen = report.choose_base(warehouse, run_id)
        failures = [_failed(row) for row in queries.failures(warehouse, [run_id]).dicts()]
    recorded_scenario, recorded_file = _record(workspace, run_id)
    good = any(row["outcome"] == "succeeded" and not row["warmup"] for row in facts)
    if not facts:
        notes.append(f"No trial of {run_id} has been collected yet.")
    elif not good:
        notes.append(f"No trial of {run_id} succeeded: there is no number to compare, only what failed.")
    if (more := len(failures) - _MOST_FAILURES) > 0:
        notes.append(f"And {more:,} more trials failed than are listed: bench status {run_id} --json names them all.")
    notes += report.abnormal_nodes(facts)
    answer = report.WhyAnswer(
        run_id=run_id,
        base=base if good else "",
        base_chosen=chosen if good else "nothing to compare",
        scenario=facts[0]["scenario"] if facts else recorded_scenario,
        compared=0,
        points=[],
        failures=failures[:_MOST_FAILURES],
        pending=reasons,
        notes=notes,
        scenario_file=recorded_file or (f"{facts[0]['folder']}/effective_config.yaml" if facts else ""),
    )
    if not good or not base:
        return answer
    try:
        table = count_once(compare(workspace, base, run_id, CompareOptions()))
    except BenchError as error:
        if vs:
            raise
        notes.append(f"{base}, {chosen}, is no base: {error.message}.")  # this base was chosen automatically
        return answer.model_copy(update={"base": "", "base_chosen": "nothing to compare", "notes": notes})
    with Warehouse.open(workspace) as warehouse:
        points = report.explain(warehouse, table, run_id, base, reasons)
    compared = {
        "points": points,
        "compared": len(table.rows),
        "better": [row.sentence for row in table.rows if row.verdict == "better"],
        "differences": [f"{item.dimension}: {item.a} | {item.b}" for item in table.differences],
        "notes": [*notes, *table.notes, _CLOCKS],
    }
    return answer.model_copy(update=compared)


def page_content(
    workspace: WorkspaceFolder, why: "WhyAnswer", audience: str = "", claims: "Sequence[Row] | None" = None
) -> "Page":
    """Return the page of a diagnosis, or the view of an audience. With `claims`, a partner sees only their values."""
    from benchhouse.report import views
    from benchhouse.results.why import filled_in

    with Warehouse.open(workspace) as warehouse:
        setting = views.gather_setting(warehouse, why)
    next_steps = {at: filled_in(why, diagnosis.next) for at, diagnosis in enumerate(why.diagnosed)}
    if not audience:
        return views.why_page(why, setting, next_steps)
    known = next((name for name in views.AUDIENCES if name == audience), None)
    if known is None:
        raise BenchError(f"no view for {audience!r}", hint=f"There are {', '.join(views.AUDIENCES)}.")
    if known == "partner" and claims is not None:
        return views.published_view(why, setting, claims)
    return views.view(why, known, setting, next_steps)


def page(workspace: WorkspaceFolder, why: "WhyAnswer", audience: str = "") -> Path:
    """Write reports/<scenario>/why.html, or the view of an audience, with a Markdown copy next to it; return its
    path."""
    from benchhouse.report import pages

    written = page_content(workspace, why, audience)
    folder = workspace.reports / (why.scenario or why.run_id)
    path = folder / f"{f'for-{audience}' if audience else 'why'}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path.with_suffix(".md"), pages.as_markdown(written))
        write_text(path, pages.as_html(written))
    except OSError as error:
        raise unwritable(workspace.reports, error, f"bench why {why.run_id} --html") from error
    return path


def _pending(workspace: WorkspaceFolder, run_id: str) -> tuple[dict[str, int], list[str]]:
    """Return why trials wait or waited, as the batch system reported then and now. If it can't be queried, add a
    note."""
    from benchhouse.runs import batch
    from benchhouse.runs.waits import read_waits

    if run_id not in list_runs(workspace):
        return {}, []
    reasons, notes = Counter(read_waits(workspace.run(run_id))), list[str]()
    try:
        reasons |= Counter(batch.queue(workspace, run_id).reasons)  # the larger of both
    except BenchError as error:
        notes.append(f"The batch system can't be asked why trials wait: {error.message}")
    return dict(reasons), notes


def _record(workspace: WorkspaceFolder, run_id: str) -> tuple[str, str]:
    with contextlib.suppress(BenchError, OSError, ValueError):
        record = Ledger(workspace.run(run_id)).record
        path = Path(record.scenario_file)
        inside = path.is_relative_to(workspace.root.resolve())
        return record.scenario, str(path.relative_to(workspace.root.resolve()) if inside else path)
    return "", ""


def _failed(row: dict[str, str]) -> "FailedTrial":
    from benchhouse.results.why import FailedTrial

    return FailedTrial(
        trial_id=row["trial_id"],
        point=row["point"] or row["target_name"] or "",
        outcome=row["outcome"],
        code=row["failure_code"] or "",
        message=row["failure_message"] or "",
        folder=row["folder"],
        logs=f"bench logs tail {row['run_id']} --trial {row['trial_id']}",
        rerun=f"bench run {row['folder']}/effective_config.yaml",
    )
