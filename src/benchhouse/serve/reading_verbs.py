"""Verbs that read runs and their results, as `bench status`, `bench compare`, and similar commands print them."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field

from benchhouse.api.workspace import Audience, Workspace
from benchhouse.runs.status import State
from benchhouse.serve.verbs import NoParams, Text, Token, VerbParams, verb

if TYPE_CHECKING:
    from benchhouse.api.pages import ReportForm
    from benchhouse.serve import answer_types

Confidence = Annotated[float, Field(gt=0.5, lt=1)]
REPORTS: dict["ReportForm", str] = {"html": "text/html", "markdown": "text/markdown", "json": "application/json"}


class OfRun(VerbParams):
    run: Token
    """The id of a run or its beginning, a scenario, `@last`, or `@last-1`."""


class ListRuns(VerbParams):
    scenario: Token | None = None
    """Only runs of this scenario."""
    state: State | None = None
    """Only runs in this state."""
    since: Token | None = None
    """Only runs started since this time: `2026-11-15T10:00` (UTC, or with a zone), or `2h` for two hours ago."""
    after: Token | None = None
    """The cursor of the previous page."""
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """The maximum number of runs per page."""


@verb("GET", "/runs", rows="runs")
def runs(workspace: Workspace, params: ListRuns) -> "answer_types.RunPage":
    """List runs with their state, newest first; pass `cursor` as `after` to get the next page."""
    return workspace.run_page(
        after=params.after, limit=params.limit, scenario=params.scenario, state=params.state, since=params.since
    )


@verb("GET", "/runs/{run}")
def run_overview(workspace: Workspace, params: OfRun) -> "answer_types.RunOverview":
    """Show what a run executed, where, how it ended, and which commands give details."""
    return workspace[params.run].overview()


@verb("GET", "/runs/{run}/status")
def run_status(workspace: Workspace, params: OfRun) -> "answer_types.RunStatus":
    """Show the state of a run, its trials by outcome, and what is left."""
    return workspace[params.run].status()


class OfPoints(OfRun):
    metric: tuple[Token, ...] = ()
    """Only these metrics, each as `metric` or `metric.stat`; repeatable."""
    after: Annotated[str, Field(max_length=2000)] | None = None
    """The cursor of the previous page."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 200
    """The maximum number of rows per page."""


@verb("GET", "/runs/{run}/points", rows="rows")
def run_points(workspace: Workspace, params: OfPoints) -> "answer_types.PointPage":
    """List the values of a run: a row per point, metric, and statistic, with the reference for `trace`; paged by
    cursor."""
    return workspace[params.run].point_page(metrics=params.metric, after=params.after, limit=params.limit)


@verb("GET", "/runs/{run}/failures")
def run_failures(workspace: Workspace, params: OfRun) -> "list[answer_types.UnsuccessfulTrial]":
    """List the failed trials of a run, each with its message and its last output."""
    return workspace[params.run].failures()


@verb("GET", "/runs/{run}/invalid")
def run_invalid(workspace: Workspace, params: OfRun) -> "list[answer_types.UnsuccessfulTrial]":
    """List the trials of a run that completed, but whose measurements were rejected, with the reason."""
    return workspace[params.run].invalid()


@verb("GET", "/runs/{run}/warnings")
def run_warnings(workspace: Workspace, params: OfRun) -> "list[answer_types.RunWarning]":
    """List the warnings about the values of a run, the most frequent first."""
    return workspace[params.run].warnings()


@verb("GET", "/runs/{run}/contract")
def run_contract(workspace: Workspace, params: OfRun) -> "answer_types.RunContract | None":
    """Show the contract of a run and what was observed of each guarantee; null if the run has no contract."""
    return workspace[params.run].contract()


@verb("GET", "/runs/{run}/contract/rendered")
def run_contract_rendered(workspace: Workspace, params: OfRun) -> "answer_types.ContractAnswer":
    """Generate the contract that a run fulfills, and what its publisher has to confirm."""
    rendered = workspace.contracts.render(workspace[params.run].id)
    contract = rendered.contract.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cast("answer_types.ContractAnswer", {"contract": contract, "to_confirm": rendered.to_confirm})


class LogsParams(OfRun):
    lines: Annotated[int, Field(ge=0, le=10_000)] = 20
    """The maximum number of lines; the newest are returned."""
    component: tuple[Token, ...] = ()
    """Only lines of experiment, worker, orchestrator, slurm, or the server with this name; repeatable."""
    trial: tuple[Token, ...] = ()
    """Only trials whose ids start with this text; repeatable."""
    since: Token | None = None
    """Only lines since this time: 90s, 10m, 2h ago, or `2026-11-15T10:00`."""
    until: Token | None = None
    """Only lines before this time."""


@verb("GET", "/runs/{run}/logs")
def run_logs(workspace: Workspace, params: LogsParams) -> "list[answer_types.LogLine]":
    """List the newest log lines of all trials and components of a run, in order of time."""
    return workspace.logs.tail(
        params.run,
        params.lines,
        components=params.component,
        trials=params.trial,
        since=params.since,
        until=params.until,
    )


class OfReport(OfRun):
    form: Literal["html", "markdown", "json"] = "html"
    """The format of the document."""
    audience: Audience | None = None
    """The reader for whom a page is made; by default the full report."""
    base: Token | None = None
    """With `audience`, the run to compare with; by default the newest earlier run of the same plan."""


@verb("GET", "/runs/{run}/report", texts=tuple(REPORTS.values()))
def run_report(workspace: Workspace, params: OfReport) -> Text:
    """Return the report of a run, or its page for one reader, as one document that opens offline."""
    run = workspace[params.run].id
    chosen = [params.base, run] if params.base else [run]
    return Text(
        workspace.report_text(*chosen, audience=params.audience, form=params.form),
        REPORTS[params.form],
        f"{run}.{'md' if params.form == 'markdown' else params.form}",
    )


@verb("GET", "/runs/{run}/verify")
def run_verify(workspace: Workspace, params: OfRun) -> "answer_types.Verification":
    """Re-hash every file of the sealed trials of a run."""
    return workspace[params.run].verify()


@verb("GET", "/verify")
def verify(workspace: Workspace, params: NoParams) -> "answer_types.Verification":
    """Re-hash all evidence, tables and claims of the workspace."""
    return workspace.verify()


class WhyParams(OfRun):
    vs: Token | None = None
    """The run to compare with; by default the newest earlier run of the same plan."""


@verb("GET", "/runs/{run}/why")
def run_why(workspace: Workspace, params: WhyParams) -> "answer_types.DiagnosisAnswer":
    """Explain why a run got slower: points that are worse, causes with their evidence, and what to look at next."""
    return cast("answer_types.DiagnosisAnswer", workspace.why(params.run, params.vs).to_dict())


class Compare(VerbParams):
    side: Annotated[tuple[Token, ...], Field(max_length=20)] = ()
    """`RUN` or `RUN:key=value,...`. Two sides compare the second with the first; otherwise targets are compared."""
    at: Token | None = None
    """Compare targets at equal quality: `recall=0.95`."""
    along: Token | None = None
    """Compare the curves of targets along this number: `concurrency`."""
    of: Token | None = None
    """The metric to compare with `at` or `along`; by default the throughput."""
    metric: tuple[Token, ...] = ()
    """Only these metrics, each as `metric` or `metric.stat`."""
    confidence: Confidence = 0.95
    """The confidence level of the intervals."""
    every: bool | None = None
    """Include every statistic, not only value or mean, and p99."""
    outliers: Literal["keep", "mad"] | None = None
    """`mad` leaves out values that are more than 5 robust deviations off."""
    paired: bool | None = None
    """Compare repetition with repetition; by default if the trials of both sides alternated in time."""


@verb("GET", "/compare")
def compare(workspace: Workspace, params: Compare) -> "answer_types.Comparison":
    """Compare two runs or points of runs, or targets side by side, at equal quality or along an axis."""
    given: dict[str, Any] = {key: getattr(params, key) for key in ("at", "along", "of", "every", "outliers", "paired")}
    options = {key: value for key, value in given.items() if value is not None}
    compared = workspace.compare(*params.side, metrics=params.metric, confidence=params.confidence, **options)
    return cast("answer_types.Comparison", compared.to_dict())


class GateParams(VerbParams):
    base: Token | None = None
    """The run to compare with; by default the previous run."""
    new: Token = "@last"
    """The run to judge."""
    mde: Annotated[float, Field(gt=0, lt=1)] = 0.03
    """The smallest worsening that matters, as a share."""
    metric: tuple[Token, ...] = ()
    """The metrics that decide; by default the experiment's primary metrics."""
    confidence: Confidence = 0.95
    """The confidence level of the intervals."""
    outliers: Literal["keep", "mad"] = "keep"
    """`mad` leaves out values that are more than 5 robust deviations off."""


@verb("GET", "/gate")
def gate(workspace: Workspace, params: GateParams) -> "answer_types.GateAnswer":
    """Judge a run for a pipeline: good, regression, or can't tell; exit_code is that of `bench gate`."""
    judged = workspace.gate(
        params.base,
        params.new,
        mde=params.mde,
        metrics=params.metric,
        confidence=params.confidence,
        outliers=params.outliers,
    )
    return cast("answer_types.GateAnswer", judged.as_dict())


class OfHistory(VerbParams):
    case: Token | None = None
    """A scenario with one point, `scenario/point`, or the id of a case; by default the only case."""
    metric: Token | None = None
    """The metric; by default the experiment's first."""
    stat: Token | None = None
    """The statistic; by default the leading statistic of the metric."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """The smallest change of level that counts, as a share."""


@verb("GET", "/history")
def history(workspace: Workspace, params: OfHistory) -> "answer_types.HistoryAnswer":
    """Show one metric over all runs: where its level changed, and whether new runs fit the accepted level."""
    shown = workspace.history(params.metric, params.case, stat=params.stat, floor=params.floor)
    return cast("answer_types.HistoryAnswer", shown.to_dict())


class OfMeasured(VerbParams):
    scenario: Token | None = None
    """Only this scenario; here and below, `*` or no value selects all."""
    experiment: Token | None = None
    """Only this experiment."""
    run: Token | None = None
    """Only this run: its id or the beginning of it, a scenario, or `@last`."""
    metric: Token | None = None
    """Only this metric."""
    stat: Token | None = None
    """Only this statistic: value, mean, p50, p99, and so on."""
    since: Token | None = None
    """Only trials started since this time: `2026-11-15T10:00` (UTC, or with a zone), or `30d` for thirty days ago."""
    until: Token | None = None
    """Only trials started before this time."""
    after: Annotated[str, Field(max_length=2000)] | None = None
    """The cursor of the previous page."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """The maximum number of rows per page."""


@verb("GET", "/measured", rows="rows")
def measured(workspace: Workspace, params: OfMeasured) -> "answer_types.MeasuredPage":
    """List the values of all runs as one table for dashboards: a row per run, point, metric, and statistic."""
    given = params.model_dump()
    return workspace.measured(run_id=given.pop("run"), **given)


class OfBadge(VerbParams):
    case: Token
    """A scenario with one point, `scenario/point`, or the id of a case."""
    metric: Token
    """The name of the metric."""
    stat: Token | None = None
    """The statistic; by default the leading statistic of the metric."""


@verb("GET", "/badge")
def badge(workspace: Workspace, params: OfBadge) -> "answer_types.Badge":
    """Show the newest valid value of a metric and whether it holds the accepted level; drawn by
    /badge/CASE/METRIC.svg."""
    return workspace.badge(params.case, params.metric, params.stat)


@verb("GET", "/cases")
def cases(workspace: Workspace, params: NoParams) -> "list[answer_types.CaseSummary]":
    """List the cases that have a history."""
    return workspace.cases()


@verb("GET", "/baselines")
def baselines(workspace: Workspace, params: NoParams) -> "list[answer_types.BaselineRecord]":
    """List the accepted levels that new runs are compared with."""
    return workspace.baselines.list()


@verb("GET", "/alarms")
def alarms(workspace: Workspace, params: NoParams) -> "list[answer_types.AlarmState]":
    """Show the current state of each alarm of alarms.yaml, without notifying anyone."""
    return workspace.alarms.list()


@verb("GET", "/alarms/log")
def alarm_log(workspace: Workspace, params: NoParams) -> "list[answer_types.Notice]":
    """List alarms that fired or ended, and who was notified, oldest first."""
    return workspace.alarms.log()


@verb("GET", "/approvals")
def approvals(workspace: Workspace, params: NoParams) -> "list[answer_types.ApprovalStanding]":
    """List plans beyond their submitters' budgets, and whether they were approved, newest first."""
    return workspace.approvals.list()


class OfApproval(VerbParams):
    request: Token
    """The name of the request, or the beginning of its plan's digest."""


@verb("GET", "/approvals/{request}")
def approval_show(workspace: Workspace, params: OfApproval) -> "answer_types.ApprovalStanding":
    """Show what was requested, who approved it, and whether the approval is valid now: signature, time, and roles."""
    return workspace.approvals.show(params.request)


class TraceParams(VerbParams):
    ref: Token
    """A reference of a report, a claim, a trial, or `RUN:metric[.stat]`."""


@verb("GET", "/trace")
def trace(workspace: Workspace, params: TraceParams) -> "answer_types.LineageTrace":
    """Trace a value back to its bytes: report, query, identity, and evidence."""
    return workspace.trace(params.ref).trace


@verb("GET", "/claims")
def claims(workspace: Workspace, params: NoParams) -> "list[answer_types.ClaimEntry]":
    """List the values that may be published, with the state of their signatures."""
    return workspace.claims.list()


class Documents(VerbParams):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    """The maximum number of files."""


@verb("GET", "/claims/documents")
def claim_documents(workspace: Workspace, params: Documents) -> "list[answer_types.Linted]":
    """Check the Markdown files of the workspace for numbers that cite no claim, a wrong value, or an unsafe one."""
    return workspace.claims.lint(workspace.claims.documents()[: params.limit], traced=False)


class OfClaim(VerbParams):
    claim: Token
    """The id of the claim, or the beginning of it."""


@verb("GET", "/claims/{claim}")
def claim_show(workspace: Workspace, params: OfClaim) -> "answer_types.SignedClaimAnswer":
    """Show all fields of a claim."""
    return cast("answer_types.SignedClaimAnswer", workspace.claims.show(params.claim))


@verb("GET", "/claims/{claim}/verify")
def claim_verify(workspace: Workspace, params: OfClaim) -> "answer_types.CheckedClaim":
    """Check whether a claim still holds: compute its value again and hash its evidence."""
    return workspace.claims.verify(workspace.claims.show(params.claim).id)


class ReleaseParams(VerbParams):
    older: Token
    """The older release: a server version, image digest, commit, framework, package version, or run."""
    newer: Token
    """The newer release, in the same form."""
    realism: bool = False
    """Include REALISM-GRADE claims, which are marked."""
    confidence: Confidence = 0.95
    """The confidence level of the intervals."""


@verb("GET", "/views/release")
def release_view(workspace: Workspace, params: ReleaseParams) -> "answer_types.ReleaseAnswer":
    """Show what got better, worse, or stayed the same from one release to another, based on claims that hold."""
    view = workspace.views.release(params.older, params.newer, realism=params.realism, confidence=params.confidence)
    return cast("answer_types.ReleaseAnswer", view.to_dict())
