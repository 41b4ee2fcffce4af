"""Verbs that read what runs automatically and who has access: changes, schedules, GitHub, and tokens."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from benchhouse.api.workspace import Workspace
from benchhouse.serve.verbs import NoParams, Token, VerbParams, verb

if TYPE_CHECKING:
    from benchhouse.serve import answer_types


class Since(VerbParams):
    since: Token = "24h"
    """Only changes since this time: `2026-11-15T10:00` (UTC, or with a zone), or `7d` for a week ago."""


@verb("GET", "/changes")
def changes(workspace: Workspace, params: Since) -> "answer_types.Changes":
    """List what changed and what needs attention: runs, levels, broken baselines, and alarms."""
    return workspace.changes(params.since)


@verb("GET", "/schedules")
def schedules(workspace: Workspace, params: NoParams) -> "list[answer_types.ScheduleStanding]":
    """List all schedules, with when each is due next and how its last run ended."""
    return workspace.schedules.list()


class OfSchedule(VerbParams):
    schedule: Token
    """The name of the schedule."""
    slots: Annotated[int, Field(ge=1, le=1000)] = 20
    """The number of slots to show; the newest are returned."""


@verb("GET", "/schedules/{schedule}")
def schedule_show(workspace: Workspace, params: OfSchedule) -> "answer_types.ScheduleStanding":
    """Show a schedule with its settings and its newest slots."""
    return workspace.schedules.get(params.schedule, slots=params.slots)


class Newest(VerbParams):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 20
    """The maximum number of entries."""


@verb("GET", "/github")
def github_orders(workspace: Workspace, params: Newest) -> "list[answer_types.GitHubOrder]":
    """List commands and events that came from GitHub, newest first, with the result of each."""
    return workspace.github.list(params.limit)


@verb("GET", "/tokens", scope="admin")
def tokens(workspace: Workspace, params: NoParams) -> "list[answer_types.TokenSummary]":
    """List all tokens, including those that are no longer valid; their secrets are never shown."""
    return workspace.tokens.list()
