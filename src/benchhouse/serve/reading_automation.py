"""Verbs that only read of what happens by itself, and of who may ask: what changed, schedules, GitHub, tokens."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from benchhouse.api.workspace import Workspace
from benchhouse.serve.verbs import NoParams, Token, VerbParams, verb

if TYPE_CHECKING:
    from benchhouse.serve import answer_types


class Since(VerbParams):
    since: Token = "24h"
    """Since then: `2026-11-15T10:00` (UTC, or with a zone), or `7d` for a week ago."""


@verb("GET", "/changes")
def changes(workspace: Workspace, params: Since) -> "answer_types.Changes":
    """What changed, and what needs a person: runs, levels, broken baselines, alarms."""
    return workspace.changes(params.since)


@verb("GET", "/schedules")
def schedules(workspace: Workspace, params: NoParams) -> "list[answer_types.ScheduleStanding]":
    """All schedules: when each is due next, and how its last run ended."""
    return workspace.schedules.list()


class OfSchedule(VerbParams):
    schedule: Token
    """Its name."""
    slots: Annotated[int, Field(ge=1, le=1000)] = 20
    """How many of its slots, the newest."""


@verb("GET", "/schedules/{schedule}")
def schedule_show(workspace: Workspace, params: OfSchedule) -> "answer_types.ScheduleStanding":
    """One schedule: its settings and its newest slots."""
    return workspace.schedules.get(params.schedule, slots=params.slots)


class Newest(VerbParams):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 20
    """So many at most."""


@verb("GET", "/github")
def github_orders(workspace: Workspace, params: Newest) -> "list[answer_types.GitHubOrder]":
    """Commands and events that came from GitHub, the newest first, and what became of each."""
    return workspace.github.list(params.limit)


@verb("GET", "/tokens", scope="admin")
def tokens(workspace: Workspace, params: NoParams) -> "list[answer_types.TokenSummary]":
    """All tokens, also those that count no more; never what they are."""
    return workspace.tokens.list()
