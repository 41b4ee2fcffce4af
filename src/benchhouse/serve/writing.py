"""Verbs that write: start and end runs, accept a level, mute an alarm, claim a number. Who asked is in the audit log.

Each is done once for a request: what was written carries its name, so that it is found again after a kill.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from benchhouse.api.workspace import Workspace
from benchhouse.schema.quantities import Seconds
from benchhouse.serve.reading import OfRun
from benchhouse.serve.verbs import Asked, Name, Order, Token, verb

if TYPE_CHECKING:
    from benchhouse.api.execution import ScenarioText
    from benchhouse.serve import answers

Words = Annotated[str, Field(max_length=2000)]


class ToSubmit(Asked):
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
def submit(workspace: Workspace, asked: ToSubmit, order: Order) -> "answers.Submitted":
    """Start a new run of a scenario in the background."""
    return workspace.submit(
        _source(workspace, asked),
        run_id=order.request,
        budget=order.budget,
        by=order.by,
        executor=asked.executor,
        runtime=asked.runtime,
        site=asked.site,
    )


@verb("POST", "/runs/{run}/stop", scope="run")
def stop(workspace: Workspace, asked: OfRun, order: Order) -> "answers.Stopped":
    """End a run and everything it started; what is sealed stays."""
    return workspace[asked.run].stop()


@verb("POST", "/runs/{run}/resume", scope="run")
def resume(workspace: Workspace, asked: OfRun, order: Order) -> "answers.Submitted":
    """Carry on what is missing of a run, in the background."""
    return workspace[asked.run].resume(budget=order.budget)


@verb("POST", "/runs/{run}/collect", scope="run")
def collect(workspace: Workspace, asked: OfRun, order: Order) -> "answers.Collected":
    """Put the sealed trials of a run into the tables, and check the alarms; on a cluster, submit again what broke."""
    return workspace[asked.run].collect()


class OfCase(Asked):
    case: Token
    """A scenario with one point, `scenario/point`, or the id of a case."""
    metric: Token | None = None
    """By default the first that has a direction."""
    stat: Token | None = None
    """Which statistic of it."""
    why: Words = ""
    """A note for people who read it later."""


@verb("POST", "/baselines/accept", scope="approve")
def accept_baseline(workspace: Workspace, asked: OfCase, order: Order) -> "answers.BaselineRecord":
    """Accept the level that the history of a case has now; new runs are held to it."""
    return workspace.baselines.accept(
        asked.case, asked.metric, stat=asked.stat, why=_signed(asked.why, order), request=order.request
    )


@verb("POST", "/baselines/clear", scope="approve")
def clear_baseline(workspace: Workspace, asked: OfCase, order: Order) -> "answers.BaselineRecord":
    """No baseline counts for a case any more; what was accepted stays on record."""
    return workspace.baselines.clear(
        asked.case, asked.metric, stat=asked.stat, why=_signed(asked.why, order), request=order.request
    )


class ToUnmute(Asked):
    alarm: Token
    """Its name in alarms.yaml."""


class ToMute(ToUnmute):
    why: Annotated[str, Field(min_length=1, max_length=2000)]
    """Why nobody needs to hear of it."""
    for_s: Seconds | None = None
    """How long; by default until it is unmuted."""


@verb("POST", "/alarms/{alarm}/mute", scope="approve")
def mute_alarm(workspace: Workspace, asked: ToMute, order: Order) -> "answers.Notice":
    """Notify nobody of an alarm, with a reason."""
    return workspace.alarms.mute(
        asked.alarm, _signed(asked.why, order), for_s=asked.for_s or None, request=order.request
    )


@verb("POST", "/alarms/{alarm}/unmute", scope="approve")
def unmute_alarm(workspace: Workspace, asked: ToUnmute, order: Order) -> "answers.Notice":
    """Notify of an alarm again."""
    return workspace.alarms.unmute(asked.alarm, request=order.request)


class ToApprove(Asked):
    request: Token
    """Its name, or the beginning of its plan's digest."""
    reason: Words = ""
    """Why, for people who read it later."""
    for_s: Annotated[float, Field(gt=0, le=366 * 86400)] = 7 * 86400.0
    """How long it counts."""
    shown: Token = ""
    """`request_digest` of what was read: a request that has changed since is not approved."""


@verb("POST", "/approvals/{request}/approve", scope="approve")
def approve_plan(workspace: Workspace, asked: ToApprove, order: Order) -> "answers.ApprovalStanding":
    """Let a plan that goes beyond its submitter's budget run once; by somebody else, whom trusted.yaml lets approve."""
    return workspace.approvals.approve(
        asked.request, by=order.by, for_s=asked.for_s, reason=asked.reason, door="bench serve", shown=asked.shown
    )


class ToRevoke(Asked):
    request: Token
    """Its name, or the beginning of its plan's digest."""
    reason: Words = ""
    """Why, for people who read it later."""


@verb("POST", "/approvals/{request}/revoke", scope="approve")
def revoke_approval(workspace: Workspace, asked: ToRevoke, order: Order) -> "answers.ApprovalStanding":
    """Take an approval back: no run begins or goes on by it any more."""
    return workspace.approvals.revoke(asked.request, by=order.by, reason=asked.reason)


class ToClaim(Asked):
    number: Token
    """Its reference, or `RUN[:key=value]:metric[.stat]`."""
    against: Token | None = None
    """The number that it is compared with."""
    realism: bool = False
    """Label what is not publication-safe as REALISM-GRADE, where a label may do."""


@verb("POST", "/claims", scope="approve")
def make_claim(workspace: Workspace, asked: ToClaim, order: Order) -> "answers.Claim":
    """Claim a number for publication; one that is not publication-safe is refused with every reason."""
    return workspace.claims.make(asked.number, asked.against, realism=asked.realism)


class ToAudit(Asked):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    """So many at most."""


@verb("GET", "/audit", scope="admin")
def audit(workspace: Workspace, asked: ToAudit) -> "list[answers.AuditRecord]":
    """What was written through the server: who, when, what, and what was answered; newest first."""
    return workspace.audit.list()[: asked.limit]


def _source(workspace: Workspace, asked: ToSubmit) -> "Path | ScenarioText":
    from benchhouse.api.execution import ScenarioText, scenario_inside

    if asked.file is None:
        scenario = asked.scenario
        return ScenarioText(scenario if isinstance(scenario, str) else json.dumps(scenario))
    return scenario_inside(workspace.root, asked.file)


def _signed(why: str, order: Order) -> str:
    return f"{why} ({order.by})" if why else order.by
