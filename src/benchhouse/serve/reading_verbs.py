"""Verbs of runs and their results that only read: what `bench status`, `bench compare` and the like print."""

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
    """Id of a run or the beginning of it, a scenario, `@last` or `@last-1`."""


class ListRuns(VerbParams):
    scenario: Token | None = None
    """Of this scenario alone."""
    state: State | None = None
    """In this state alone."""
    since: Token | None = None
    """Begun since then: `2026-11-15T10:00` (UTC, or with a zone), or `2h` for two hours ago."""
    after: Token | None = None
    """The cursor of the page before."""
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """The most runs of a page."""


@verb("GET", "/runs", rows="runs")
def runs(workspace: Workspace, params: ListRuns) -> "answer_types.RunPage":
    """How runs stand, the newest first; `cursor` is what `after` takes for the next page."""
    return workspace.run_page(
        after=params.after, limit=params.limit, scenario=params.scenario, state=params.state, since=params.since
    )


@verb("GET", "/runs/{run}")
def run_overview(workspace: Workspace, params: OfRun) -> "answer_types.RunOverview":
    """What ran, where, how it ended, and which commands look closer."""
    return workspace[params.run].overview()


@verb("GET", "/runs/{run}/status")
def run_status(workspace: Workspace, params: OfRun) -> "answer_types.RunStatus":
    """How a run stands: its state, its trials by outcome, and what is left."""
    return workspace[params.run].status()


class OfPoints(OfRun):
    metric: tuple[Token, ...] = ()
    """Only these, each `metric` or `metric.stat`; repeatable."""
    after: Annotated[str, Field(max_length=2000)] | None = None
    """The cursor of the page before."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 200
    """The most rows of a page."""


@verb("GET", "/runs/{run}/points", rows="rows")
def run_points(workspace: Workspace, params: OfPoints) -> "answer_types.PointPage":
    """The numbers of a run: a row for each point, metric and statistic, with what `trace` takes; `cursor` leads on."""
    return workspace[params.run].point_page(metrics=params.metric, after=params.after, limit=params.limit)


@verb("GET", "/runs/{run}/failures")
def run_failures(workspace: Workspace, params: OfRun) -> "list[answer_types.UnsuccessfulTrial]":
    """Trials that failed, each with its message and its last output."""
    return workspace[params.run].failures()


@verb("GET", "/runs/{run}/invalid")
def run_invalid(workspace: Workspace, params: OfRun) -> "list[answer_types.UnsuccessfulTrial]":
    """Trials that ended well, but whose numbers are refused, with the reason."""
    return workspace[params.run].invalid()


@verb("GET", "/runs/{run}/warnings")
def run_warnings(workspace: Workspace, params: OfRun) -> "list[answer_types.RunWarning]":
    """Named doubts about the numbers of a run, the most frequent first."""
    return workspace[params.run].warnings()


@verb("GET", "/runs/{run}/contract")
def run_contract(workspace: Workspace, params: OfRun) -> "answer_types.RunContract | None":
    """The contract that governs a run, and what was seen of each guarantee; null where none does."""
    return workspace[params.run].contract()


@verb("GET", "/runs/{run}/contract/rendered")
def run_contract_rendered(workspace: Workspace, params: OfRun) -> "answer_types.ContractAnswer":
    """The contract that a run amounts to, and what whoever publishes has to confirm."""
    rendered = workspace.contracts.render(workspace[params.run].id)
    contract = rendered.contract.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cast("answer_types.ContractAnswer", {"contract": contract, "to_confirm": rendered.to_confirm})


class LogsParams(OfRun):
    lines: Annotated[int, Field(ge=0, le=10_000)] = 20
    """The most lines, the newest."""
    component: tuple[Token, ...] = ()
    """Only experiment, worker, orchestrator, slurm, or the server of that name; repeatable."""
    trial: tuple[Token, ...] = ()
    """Only trials whose ids begin so; repeatable."""
    since: Token | None = None
    """Only lines from this time on: 90s, 10m, 2h ago, or `2026-11-15T10:00`."""
    until: Token | None = None
    """Only lines before this time."""


@verb("GET", "/runs/{run}/logs")
def run_logs(workspace: Workspace, params: LogsParams) -> "list[answer_types.LogLine]":
    """The newest lines of all trials and components of a run, in the order of their times."""
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
    """Form of the document."""
    audience: Audience | None = None
    """A page for one reader."""
    base: Token | None = None
    """With `audience`, the run that it is compared with; by default the newest earlier one of its plan."""


@verb("GET", "/runs/{run}/report", texts=tuple(REPORTS.values()))
def run_report(workspace: Workspace, params: OfReport) -> Text:
    """The report of a run, or the page of one reader, as one document that opens offline."""
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
    """The run to compare with; by default the newest earlier one of its plan."""


@verb("GET", "/runs/{run}/why")
def run_why(workspace: Workspace, params: WhyParams) -> "answer_types.DiagnosisAnswer":
    """Why a run got slower: points that are worse, causes with their evidence, and what to look at next."""
    return cast("answer_types.DiagnosisAnswer", workspace.why(params.run, params.vs).to_dict())


class Compare(VerbParams):
    side: Annotated[tuple[Token, ...], Field(max_length=20)] = ()
    """`RUN` or `RUN:key=value,...`: two, the second against the first; else targets side by side."""
    at: Token | None = None
    """Compare targets at equal quality: `recall=0.95`."""
    along: Token | None = None
    """Compare the curves of targets along this number: `concurrency`."""
    of: Token | None = None
    """With `at` or `along`: the metric that is compared; by default the throughput."""
    metric: tuple[Token, ...] = ()
    """Only these, each `metric` or `metric.stat`."""
    confidence: Confidence = 0.95
    """Of the intervals."""
    every: bool | None = None
    """Every statistic, not only value or mean, and p99."""
    outliers: Literal["keep", "mad"] | None = None
    """mad: leave out values that lie 5 robust deviations off."""
    paired: bool | None = None
    """Repetition with repetition; by default where both sides took turns in time."""


@verb("GET", "/compare")
def compare(workspace: Workspace, params: Compare) -> "answer_types.Comparison":
    """Two runs or points of runs against each other, or targets side by side, at equal quality or along an axis."""
    given: dict[str, Any] = {key: getattr(params, key) for key in ("at", "along", "of", "every", "outliers", "paired")}
    options = {key: value for key, value in given.items() if value is not None}
    compared = workspace.compare(*params.side, metrics=params.metric, confidence=params.confidence, **options)
    return cast("answer_types.Comparison", compared.to_dict())


class GateParams(VerbParams):
    base: Token | None = None
    """The run to be held to; by default the one before."""
    new: Token = "@last"
    """The run that is judged."""
    mde: Annotated[float, Field(gt=0, lt=1)] = 0.03
    """The smallest worsening that matters, as a share."""
    metric: tuple[Token, ...] = ()
    """Those that decide; by default the experiment's primary metrics."""
    confidence: Confidence = 0.95
    """Of the intervals."""
    outliers: Literal["keep", "mad"] = "keep"
    """mad: leave out values that lie 5 robust deviations off."""


@verb("GET", "/gate")
def gate(workspace: Workspace, params: GateParams) -> "answer_types.GateAnswer":
    """Judge a run for a pipeline: good, regression or can't tell; exit_code is that of `bench gate`."""
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
    """A scenario with one point, `scenario/point`, or the id of a case; by default the only one."""
    metric: Token | None = None
    """By default the experiment's first."""
    stat: Token | None = None
    """By default the one that leads the metric."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """The smallest change of level that counts, as a share."""


@verb("GET", "/history")
def history(workspace: Workspace, params: OfHistory) -> "answer_types.HistoryAnswer":
    """One metric over all runs: where its level changed, and whether new runs fit the accepted baseline."""
    shown = workspace.history(params.metric, params.case, stat=params.stat, floor=params.floor)
    return cast("answer_types.HistoryAnswer", shown.to_dict())


class OfMeasured(VerbParams):
    scenario: Token | None = None
    """Of this scenario alone; here and below, `*` or nothing takes all."""
    experiment: Token | None = None
    """Of this experiment alone."""
    run: Token | None = None
    """Of this run alone: an id or the beginning of it, a scenario, `@last`."""
    metric: Token | None = None
    """This metric alone."""
    stat: Token | None = None
    """This statistic alone: value, mean, p50, p99, ..."""
    since: Token | None = None
    """Of trials begun since then: `2026-11-15T10:00` (UTC, or with a zone), or `30d` for thirty days ago."""
    until: Token | None = None
    """Of trials begun before then."""
    after: Annotated[str, Field(max_length=2000)] | None = None
    """The cursor of the page before."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """The most rows of a page."""


@verb("GET", "/measured", rows="rows")
def measured(workspace: Workspace, params: OfMeasured) -> "answer_types.MeasuredPage":
    """Numbers of all runs as one table, for dashboards: a row for each run, point, metric and statistic."""
    given = params.model_dump()
    return workspace.measured(run_id=given.pop("run"), **given)


class OfBadge(VerbParams):
    case: Token
    """As for a history."""
    metric: Token
    """Its name."""
    stat: Token | None = None
    """By default the one that leads the metric."""


@verb("GET", "/badge")
def badge(workspace: Workspace, params: OfBadge) -> "answer_types.Badge":
    """The newest valid number of a metric, and whether it holds the accepted level; /badge/CASE/METRIC.svg draws it."""
    return workspace.badge(params.case, params.metric, params.stat)


@verb("GET", "/cases")
def cases(workspace: Workspace, params: NoParams) -> "list[answer_types.CaseSummary]":
    """What there is a history of."""
    return workspace.cases()


@verb("GET", "/baselines")
def baselines(workspace: Workspace, params: NoParams) -> "list[answer_types.BaselineRecord]":
    """Levels that were accepted, and that new runs are held to."""
    return workspace.baselines.list()


@verb("GET", "/alarms")
def alarms(workspace: Workspace, params: NoParams) -> "list[answer_types.AlarmState]":
    """How each alarm of alarms.yaml stands now; nobody is notified."""
    return workspace.alarms.list()


@verb("GET", "/alarms/log")
def alarm_log(workspace: Workspace, params: NoParams) -> "list[answer_types.Notice]":
    """What fired, what was over, and who was notified, oldest first."""
    return workspace.alarms.log()


@verb("GET", "/approvals")
def approvals(workspace: Workspace, params: NoParams) -> "list[answer_types.ApprovalStanding]":
    """Plans beyond their submitters' budgets, and whether somebody approved them, the newest first."""
    return workspace.approvals.list()


class OfApproval(VerbParams):
    request: Token
    """Its name, or the beginning of its plan's digest."""


@verb("GET", "/approvals/{request}")
def approval_show(workspace: Workspace, params: OfApproval) -> "answer_types.ApprovalStanding":
    """What was asked for, who approved it, and whether that holds now: signature, time, roles."""
    return workspace.approvals.show(params.request)


class TraceParams(VerbParams):
    ref: Token
    """A reference of a report, a claim, a trial, or `RUN:metric[.stat]`."""


@verb("GET", "/trace")
def trace(workspace: Workspace, params: TraceParams) -> "answer_types.LineageTrace":
    """Walk a number back to its bytes: report, query, identity, evidence."""
    return workspace.trace(params.ref).trace


@verb("GET", "/claims")
def claims(workspace: Workspace, params: NoParams) -> "list[answer_types.ClaimEntry]":
    """Numbers that may be published, with the state of their signatures."""
    return workspace.claims.list()


class Documents(VerbParams):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    """The most files."""


@verb("GET", "/claims/documents")
def claim_documents(workspace: Workspace, params: Documents) -> "list[answer_types.Linted]":
    """Markdown files of the workspace: numbers that cite no claim, cite a wrong value, or cite an unsafe one."""
    return workspace.claims.lint(workspace.claims.documents()[: params.limit], traced=False)


class OfClaim(VerbParams):
    claim: Token
    """Its id, or the beginning of it."""


@verb("GET", "/claims/{claim}")
def claim_show(workspace: Workspace, params: OfClaim) -> "answer_types.SignedClaimAnswer":
    """One claim, whole."""
    return cast("answer_types.SignedClaimAnswer", workspace.claims.show(params.claim))


@verb("GET", "/claims/{claim}/verify")
def claim_verify(workspace: Workspace, params: OfClaim) -> "answer_types.CheckedClaim":
    """Whether a claim still holds: its number is computed again and its evidence hashed."""
    return workspace.claims.verify(workspace.claims.show(params.claim).id)


class ReleaseParams(VerbParams):
    older: Token
    """Version of the server, image digest, commit, framework, package version, or a run."""
    newer: Token
    """The same of the other release."""
    realism: bool = False
    """Take in REALISM-GRADE claims, which are marked."""
    confidence: Confidence = 0.95
    """Of the intervals."""


@verb("GET", "/views/release")
def release_view(workspace: Workspace, params: ReleaseParams) -> "answer_types.ReleaseAnswer":
    """What got better, worse or stayed from one release to another, by claims that hold."""
    view = workspace.views.release(params.older, params.newer, realism=params.realism, confidence=params.confidence)
    return cast("answer_types.ReleaseAnswer", view.to_dict())
