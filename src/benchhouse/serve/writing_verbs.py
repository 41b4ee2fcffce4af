"""Verbs that write: start and stop runs, accept a level, mute an alarm, claim a value. The audit log records the
caller.

Each write is done once per request: its result carries the name of the request, so that it is found after a kill.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from benchhouse.api.workspace import Workspace
from benchhouse.schema.quantities import Seconds
from benchhouse.serve.reading_verbs import OfRun
from benchhouse.serve.verbs import Name, Token, VerbParams, WriteContext, verb

if TYPE_CHECKING:
    from benchhouse.api.execution import ScenarioText
    from benchhouse.serve import answer_types

Words = Annotated[str, Field(max_length=2000)]


class ToSubmit(VerbParams):
    scenario: Annotated[str, Field(max_length=1 << 20)] | dict[str, Any] | None = None
    """The text of a scenario file, or its content. Relative paths in it start from the workspace."""
    file: Token | None = None
    """A scenario file of the workspace, by its path there, instead of `scenario`."""
    executor: Name | None = None
    """The executor, whatever the scenario states."""
    runtime: Name | None = None
    """The runtime, whatever the scenario states."""
    site: Name | None = None
    """The name of a site profile."""

    @model_validator(mode="after")
    def _one_source(self) -> "ToSubmit":
        if (self.scenario is None) == (self.file is None):
            raise ValueError("give one of scenario and file")
        return self


@verb("POST", "/runs", scope="run")
def submit(workspace: Workspace, params: ToSubmit, order: WriteContext) -> "answer_types.SubmittedRun":
    """Start a new run of a scenario in the background."""
    return workspace.submit(
        _source(workspace, params),
        run_id=order.request,
        budget=order.budget,
        by=order.by,
        executor=params.executor,
        runtime=params.runtime,
        site=params.site,
    )


@verb("POST", "/runs/{run}/stop", scope="run")
def stop(workspace: Workspace, params: OfRun, order: WriteContext) -> "answer_types.Stopped":
    """Stop a run and everything it started; sealed trials stay."""
    return workspace[params.run].stop()


@verb("POST", "/runs/{run}/resume", scope="run")
def resume(workspace: Workspace, params: OfRun, order: WriteContext) -> "answer_types.SubmittedRun":
    """Run the missing trials of a run, in the background."""
    return workspace[params.run].resume(budget=order.budget)


@verb("POST", "/runs/{run}/collect", scope="run")
def collect(workspace: Workspace, params: OfRun, order: WriteContext) -> "answer_types.CollectionReport":
    """Collect the sealed trials of a run into the tables and check the alarms; on a cluster, resubmit what broke."""
    return workspace[params.run].collect()


class OfCase(VerbParams):
    case: Token
    """A scenario with one point, `scenario/point`, or the id of a case."""
    metric: Token | None = None
    """The metric; by default the first that has a direction."""
    stat: Token | None = None
    """The statistic of the metric."""
    why: Words = ""
    """A note for people who read the record later."""


@verb("POST", "/baselines/accept", scope="approve")
def accept_baseline(workspace: Workspace, params: OfCase, order: WriteContext) -> "answer_types.BaselineRecord":
    """Accept the current level in the history of a case; new runs are compared with it."""
    return workspace.baselines.accept(
        params.case, params.metric, stat=params.stat, why=_signed(params.why, order), request=order.request
    )


@verb("POST", "/baselines/clear", scope="approve")
def clear_baseline(workspace: Workspace, params: OfCase, order: WriteContext) -> "answer_types.BaselineRecord":
    """Remove the accepted level of a case; its record stays."""
    return workspace.baselines.clear(
        params.case, params.metric, stat=params.stat, why=_signed(params.why, order), request=order.request
    )


class ToUnmute(VerbParams):
    alarm: Token
    """The name of the alarm in alarms.yaml."""


class ToMute(ToUnmute):
    why: Annotated[str, Field(min_length=1, max_length=2000)]
    """The reason for muting the alarm."""
    for_s: Seconds | None = None
    """The time in seconds; by default until the alarm is unmuted."""


@verb("POST", "/alarms/{alarm}/mute", scope="approve")
def mute_alarm(workspace: Workspace, params: ToMute, order: WriteContext) -> "answer_types.Notice":
    """Mute an alarm with a reason, so that it notifies no one."""
    return workspace.alarms.mute(
        params.alarm, _signed(params.why, order), for_s=params.for_s or None, request=order.request
    )


@verb("POST", "/alarms/{alarm}/unmute", scope="approve")
def unmute_alarm(workspace: Workspace, params: ToUnmute, order: WriteContext) -> "answer_types.Notice":
    """Unmute an alarm, so that it notifies again."""
    return workspace.alarms.unmute(params.alarm, request=order.request)


class ToApprove(VerbParams):
    request: Token
    """The name of the request, or the beginning of its plan's digest."""
    reason: Words = ""
    """The reason, for people who read the record later."""
    for_s: Annotated[float, Field(gt=0, le=366 * 86400)] = 7 * 86400.0
    """The time in seconds for which the approval is valid."""
    shown: Token = ""
    """The `request_digest` that the approver read; a request that has changed since is not approved."""


@verb("POST", "/approvals/{request}/approve", scope="approve")
def approve_plan(workspace: Workspace, params: ToApprove, order: WriteContext) -> "answer_types.ApprovalStanding":
    """Approve one run of a plan beyond its submitter's budget, as another person whom trusted.yaml lets approve."""
    return workspace.approvals.approve(
        params.request, by=order.by, for_s=params.for_s, reason=params.reason, door="bench serve", shown=params.shown
    )


class ToRevoke(VerbParams):
    request: Token
    """The name of the request, or the beginning of its plan's digest."""
    reason: Words = ""
    """The reason, for people who read the record later."""


@verb("POST", "/approvals/{request}/revoke", scope="approve")
def revoke_approval(workspace: Workspace, params: ToRevoke, order: WriteContext) -> "answer_types.ApprovalStanding":
    """Revoke an approval; no run starts or continues on it after that."""
    return workspace.approvals.revoke(params.request, by=order.by, reason=params.reason)


class ToClaim(VerbParams):
    number: Token
    """The reference of the value, or `RUN[:key=value]:metric[.stat]`."""
    against: Token | None = None
    """The value to compare with."""
    realism: bool = False
    """Label a value that is not publication-safe as REALISM-GRADE, if a label is enough."""


@verb("POST", "/claims", scope="approve")
def make_claim(workspace: Workspace, params: ToClaim, order: WriteContext) -> "answer_types.Claim":
    """Claim a value for publication; one that is not publication-safe is rejected with every reason."""
    return workspace.claims.make(params.number, params.against, realism=params.realism)


class ToAudit(VerbParams):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The maximum number of records."""


@verb("GET", "/audit", scope="admin")
def audit(workspace: Workspace, params: ToAudit) -> "list[answer_types.AuditRecord]":
    """List the writes through the server: who, when, what, and the answer; newest first."""
    return workspace.audit.list()[: params.limit]


def _source(workspace: Workspace, params: ToSubmit) -> "Path | ScenarioText":
    from benchhouse.api.execution import ScenarioText, scenario_inside

    if params.file is None:
        scenario = params.scenario
        return ScenarioText(scenario if isinstance(scenario, str) else json.dumps(scenario))
    return scenario_inside(workspace.root, params.file)


def _signed(why: str, order: WriteContext) -> str:
    return f"{why} ({order.by})" if why else order.by
