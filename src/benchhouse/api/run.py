"""One run: its state, its values, and every question that can be answered about it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.answers import (
        Comparison,
        CurveComparison,
        Diagnosis,
        Report,
        TargetComparison,
    )
    from benchhouse.api.comparisons import CompareKeywords, PairKeywords
    from benchhouse.api.execution import RunListener, SubmittedRun
    from benchhouse.api.exporting import Export
    from benchhouse.api.rows import Points
    from benchhouse.api.sealed_trials import SealedTrial, TrialEvidence
    from benchhouse.api.verification import Verification
    from benchhouse.api.workspace import Workspace
    from benchhouse.results.content import ReportData
    from benchhouse.results.run_points import PointPage
    from benchhouse.runs.batch import Stopped
    from benchhouse.runs.execution import CollectionReport
    from benchhouse.runs.execution import RunSummary as RunSummary
    from benchhouse.runs.ledger import RunRecord
    from benchhouse.runs.status import RunOverview, RunWarning, UnsuccessfulTrial
    from benchhouse.runs.status import RunStatus as RunStatus
    from benchhouse.schema.resources import Budget
    from benchhouse.warehouse.contract_rows import RunContract as RunContract


class Run:
    """A run of a workspace, under way or over: `ws.run("scenario.yaml")` makes one, `ws["@last"]` finds one."""

    def __init__(self, workspace: "Workspace", run_id: str, summary: "RunSummary | None" = None) -> None:
        self.workspace = workspace
        self.id = run_id
        self.summary = summary
        """How the run ended, if this object ran it; otherwise None."""

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import table_html

        status = self.status()
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(status.outcomes.items()))
        rows = [
            ("run", self.id),
            ("scenario", f"{status.scenario}, {status.experiment}, on {status.executor}"),
            ("state", status.state),
            ("trials", f"{status.done} of {status.trials}: {outcomes or 'none'}"),
        ]
        return table_html(("", ""), rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (other.id, other.workspace) == (self.id, self.workspace)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def record(self) -> "RunRecord":
        """The record of the submission."""
        from benchhouse.runs.ledger import Ledger

        return Ledger(self.workspace.folder.run(self.id)).record

    @property
    def exit_code(self) -> Exit:
        """0 if every trial succeeded and was collected, otherwise 1."""
        if self.summary:
            return self.summary.exit_code
        status = self.status()
        good = status.state in ("finished", "pulled") and set(status.outcomes) <= {"succeeded"}
        return Exit.GOOD if good else Exit.TRIAL_FAILED

    def status(self) -> "RunStatus":
        """Return the state of the run, from its files and one query to its batch system; for a pulled run, from the
        tables."""
        from benchhouse.runs import pulled_runs
        from benchhouse.runs.status import status

        return pulled_runs.status(self.workspace.folder, self.id) or status(self.workspace.folder, self.id)

    def overview(self) -> "RunOverview":
        """Return what ran, where, how it ended, and which commands show more."""
        from benchhouse.runs import pulled_runs
        from benchhouse.runs.status import overview

        return pulled_runs.overview(self.workspace.folder, self.id) or overview(self.workspace.folder, self.id)

    def wait(self, poll_s: float = 1.0) -> "Run":
        """Wait until the run has ended, wherever it runs, then collect it. On a cluster, resubmit broken trials."""
        import time

        while True:
            while self.status().state in ("running", "waiting"):
                time.sleep(poll_s)
            if not self.collect().under_way:
                return self

    def stop(self) -> "Stopped":
        """Stop the run and everything it started. Sealed trials are kept."""
        from benchhouse.runs.batch import stop

        return stop(self.workspace.folder, self.id)

    def resume(self, *, budget: "Budget | None" = None) -> "SubmittedRun":
        """Continue the missing trials of the run in the background. `wait` waits for its end.

        From now on, the whole run is limited by `budget`, and refused if its plan needs more; without a budget, by its
        scenario. An approved run keeps the budget that was approved.
        """
        from benchhouse.api import execution
        from benchhouse.runs.allowance import excess
        from benchhouse.runs.approval import NeedsApprovalError
        from benchhouse.runs.ledger import Ledger
        from benchhouse.runs.records import resume_run

        known = Ledger(self.workspace.folder.run(self.id))
        if (owner := known.owner()) is not None:
            raise known.busy(owner)
        if known.record.budget != budget and not known.record.approval:
            if budget:
                prepared = resume_run(self.workspace.folder, self.id)[1]
                if over := excess(self.workspace.folder, prepared, budget):
                    raise NeedsApprovalError(prepared.plan.digest, over)
            known.hold_to(budget)
        ledger, prepared = resume_run(self.workspace.folder, self.id)
        return execution.submit(self.workspace.folder, prepared, ledger, execution.QUIET)

    def collect(self, *, progress: "bool | RunListener" = False) -> "CollectionReport":
        """Put the sealed trials into the tables and check the alarms. On a cluster, resubmit broken trials."""
        from benchhouse.api.execution import collect_run, listener_of

        return collect_run(self.workspace.folder, self.id, listener_of(progress))

    def failures(self) -> "list[UnsuccessfulTrial]":
        """Return the trials that failed, each with its message, its last output, and the command that runs it again."""
        from benchhouse.runs.status import explained

        return explained(self.workspace.folder, self.id, self.status().failures)

    def invalid(self) -> "list[UnsuccessfulTrial]":
        """Return the trials that completed but whose measurements were rejected, with the reason."""
        from benchhouse.runs.status import explained

        return explained(self.workspace.folder, self.id, self.status().invalid)

    def warnings(self) -> "list[RunWarning]":
        """Return named doubts about the run's values, most frequent first."""
        from benchhouse.runs.status import warnings

        return warnings(self.workspace.folder, self.id)

    def contract(self) -> "RunContract | None":
        """Return the contract that governs the run, what was observed of each guarantee, and the class that remains."""
        from benchhouse.results.contracts import contract_of

        return contract_of(self.workspace.folder, self.id)

    def points(self) -> "Points":
        """Return the values of the run: one typed row per point, metric, and statistic."""
        return self.workspace.points(self.id)

    def point_page(self, *, metrics: Sequence[str] = (), after: str | None = None, limit: int = 200) -> "PointPage":
        """Return at most `limit` of the run's values, in the order of `points`. `after` is the cursor of the previous
        page.

        With `metrics`, return only these, each `metric` or `metric.stat`.
        """
        from benchhouse.results.run_points import point_page

        (run_id,) = self.workspace.collected(self.id)
        return point_page(self.workspace.folder, run_id, metrics, after, limit)

    @overload
    def compare(self, base: str, /, **options: Unpack["PairKeywords"]) -> "Comparison": ...
    @overload
    def compare(
        self, base: str | None = None, /, **options: Unpack["CompareKeywords"]
    ) -> "Comparison | CurveComparison | TargetComparison": ...
    def compare(
        self, base: str | None = None, /, **options: Unpack["CompareKeywords"]
    ) -> "Comparison | CurveComparison | TargetComparison":
        """Compare this run with `base`; without one, its own targets side by side. Options: `Workspace.compare`."""
        return self.workspace.compare(*([base] if base else []), self.id, **options)

    def why(self, vs: str | None = None) -> "Diagnosis":
        """Return why the run got slower than `vs` or, by default, than the newest earlier run of its plan."""
        return self.workspace.why(self.id, vs)

    def trials(self) -> "list[SealedTrial]":
        """Return the sealed trials of the run, including superseded attempts, in the order in which they ended."""
        from benchhouse.api import sealed_trials

        return sealed_trials.trials(self.workspace.folder, self.id)

    def evidence(self, trial: str, *, fetch: bool = False) -> "TrialEvidence":
        """Return the files of one of `trials()`, by its name: their sizes, digests, and contents.

        With `fetch`, missing evidence of a pulled run is fetched from the store that workspace.yaml names.
        """
        from benchhouse.api import sealed_trials

        return sealed_trials.evidence(self.workspace.folder, self.id, trial, fetch=fetch)

    def report_data(self, *, most_numbers: int | None = None) -> "ReportData":
        """Return the data of the run's report, from the trials that are in the tables. Nothing is written.

        If there are more values than `most_numbers`, only the leading statistics of each metric are included.
        """
        from benchhouse.report.data import gather
        from benchhouse.runs.status import rerun_line

        folder = self.workspace.folder
        return gather(
            folder, [self.id], rerun=lambda _, trial: rerun_line(trial), published=False, most_numbers=most_numbers
        )

    def report(self) -> "Report":
        """Write the page of the run, and the same as Markdown and JSON."""
        return self.workspace.report(self.id)

    def export(self, kind: str, output: str | None = None, *, force: bool = False) -> "Export":
        """Export the run's valid values in the format of another tool, as `Workspace.export` does."""
        return self.workspace.export(self.id, kind, output, force=force)

    def verify(self) -> "Verification":
        """Hash every file of the run's sealed trials again."""
        return self.workspace.verify(self.id)

    @property
    def folder(self) -> Path:
        """The folder of the run's ledger: what was submitted, and every event since."""
        return self.workspace.folder.run(self.id).path
