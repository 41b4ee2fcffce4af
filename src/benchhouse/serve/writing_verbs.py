"""Verbs that write: start and end runs, accept a level, mute an alarm, claim a number. Who asked is in the audit log.

Each is done once for a request: what was written carries its name, so that it is found again after a kill.
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
    """In place of it: a scenario file of the workspace, by its path there."""
    executor: Name | None = None
    """Where jobs go, whatever the scenario says."""
    runtime: Name | None = None
    """What jobs run inside, whatever the scenario says."""
    site: Name | None = None
    """Name of a site profile."""

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
    """End a run and everything it started; what is sealed stays."""
    return workspace[params.run].stop()


@verb("POST", "/runs/{run}/resume", scope="run")
def resume(workspace: Workspace, params: OfRun, order: WriteContext) -> "answer_types.SubmittedRun":
    """Carry on what is missing of a run, in the background."""
    return workspace[params.run].resume(budget=order.budget)


@verb("POST", "/runs/{run}/collect", scope="run")
def collect(workspace: Workspace, params: OfRun, order: WriteContext) -> "answer_types.CollectionReport":
    """Put the sealed trials of a run into the tables, and check the alarms; on a cluster, submit again what broke."""
    return workspace[params.run].collect()


class OfCase(VerbParams):
    case: Token
    """A scenario with one point, `scenario/point`, or the id of a case."""
    metric: Token | None = None
    """By default the first that has a direction."""
    stat: Token | None = None
    """Which statistic of it."""
    why: Words = ""
    """A note for people who read it later."""


@verb("POST", "/baselines/accept", scope="approve")
def accept_baseline(workspace: Workspace, params: OfCase, order: WriteContext) -> "answer_types.BaselineRecord":
    """Accept the level that the history of a case has now; new runs are held to it."""
    return workspace.baselines.accept(
        params.case, params.metric, stat=params.stat, why=_signed(params.why, order), request=order.request
    )


@verb("POST", "/baselines/clear", scope="approve")
def clear_baseline(workspace: Workspace, params: OfCase, order: WriteContext) -> "answer_types.BaselineRecord":
    """No baseline counts for a case any more; what was accepted stays on record."""
    return workspace.baselines.clear(
        params.case, params.metric, stat=params.stat, why=_signed(params.why, order), request=order.request
    )


class ToUnmute(VerbParams):
    alarm: Token
    """Its name in alarms.yaml."""


class ToMute(ToUnmute):
    why: Annotated[str, Field(min_length=1, max_length=2000)]
    """Why nobody needs to hear of it."""
    for_s: Seconds | None = None
    """How long; by default until it is unmuted."""


@verb("POST", "/alarms/{alarm}/mute", scope="approve")
def mute_alarm(workspace: Workspace, params: ToMute, order: WriteContext) -> "answer_types.Notice":
    """Notify nobody of an alarm, with a reason."""
    return workspace.alarms.mute(
        params.alarm, _signed(params.why, order), for_s=params.for_s or None, request=order.request
    )


@verb("POST", "/alarms/{alarm}/unmute", scope="approve")
def unmute_alarm(workspace: Workspace, params: ToUnmute, order: WriteContext) -> "answer_types.Notice":
    """Notify of an alarm again."""
    return workspace.alarms.unmute(params.alarm, request=order.request)


class ToApprove(VerbParams):
    request: Token
    """Its name, or the beginning of its plan's digest."""
    reason: Words = ""
    """Why, for people who read it later."""
    for_s: Annotated[float, Field(gt=0, le=366 * 86400)] = 7 * 86400.0
    """How long it counts."""
    shown: Token = ""
    """`request_digest` of what was read: a request that has changed since is not approved."""


@verb("POST", "/approvals/{request}/approve", scope="approve")
def approve_plan(workspace: Workspace, params: ToApprove, order: WriteContext) -> "answer_types.ApprovalStanding":
    """Let a plan that goes beyond its submitter's budget run once; by somebody else, whom trusted.yaml lets approve."""
    return workspace.approvals.approve(
        params.request, by=order.by, for_s=params.for_s, reason=params.reason, door="bench serve", shown=params.shown
    )


class ToRevoke(VerbParams):
    request: Token
    """Its name, or the beginning of its plan's digest."""
    reason: Words = ""
    """Why, for people who read it later."""


@verb("POST", "/approvals/{request}/revoke", scope="approve")
def revoke_approval(workspace: Workspace, params: ToRevoke, order: WriteContext) -> "answer_types.ApprovalStanding":
    """Take an approval back: no run begins or goes on by it any more."""
    return workspace.approvals.revoke(params.request, by=order.by, reason=params.reason)


class ToClaim(VerbParams):
    number: Token
    """Its reference, or `RUN[:key=value]:metric[.stat]`."""
    against: Token | None = None
    """The number that it is compared with."""
    realism: bool = False
    """Label what is not publication-safe as REALISM-GRADE, where a label may do."""


@verb("POST", "/claims", scope="approve")
def make_claim(workspace: Workspace, params: ToClaim, order: WriteContext) -> "answer_types.Claim":
    """Claim a number for publication; one that is not publication-safe is refused with every reason."""
    return workspace.claims.make(params.number, params.against, realism=params.realism)


class ToAudit(VerbParams):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    """So many at most."""


@verb("GET", "/audit", scope="admin")
def audit(workspace: Workspace, params: ToAudit) -> "list[answer_types.AuditRecord]":
    """What was written through the server: who, when, what, and what was answered; newest first."""
    return workspace.audit.list()[: params.limit]


def _source(workspace: Workspace, params: ToSubmit) -> "Path | ScenarioText":
    from benchhouse.api.execution import ScenarioText, scenario_inside

    if params.file is None:
        scenario = params.scenario
        return ScenarioText(scenario if isinstance(scenario, str) else json.dumps(scenario))
    return scenario_inside(workspace.root, params.file)


def _signed(why: str, order: WriteContext) -> str:
    return f"{why} ({order.by})" if why else order.by
