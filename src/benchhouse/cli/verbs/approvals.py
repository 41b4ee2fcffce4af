"""Plans beyond a budget: what was requested, who approved it, and whether the approval holds."""

from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.approvals import ApprovalStanding

command = commands.group(
    f"{__doc__} A request is made by whoever starts such a plan; `bench approve` answers it.",
    "bench approvals list",
    "bench approvals show 4f1c2a90",
    "bench approvals verify 4f1c2a90",
    "bench approvals revoke 4f1c2a90 --reason 'the cluster is needed'",
)


def names(workspace: Workspace) -> dict[str, str]:
    return {item.name: f"{item.scenario} by {item.asked_by}" for item in workspace.approvals.list()}


_digest_argument = click.argument("digest", shell_complete=commands.completing(names))


@command.verb("All requests and what became of them, the newest first.", "bench approvals list")
def list_(workspace: Workspace, as_json: bool) -> None:
    standings = workspace.approvals.list()
    if as_json:
        screen.as_json(standings)
        return
    if not standings:
        click.echo("nobody has asked for approval here")
        screen.note("that is asked for by:  bench run   of a plan beyond the budget of trusted.yaml")
        return
    rows = [
        (item.name, item.state, item.scenario, item.executor, item.asked_by, item.asked[:16], item.says)
        for item in standings
    ]
    heads = ("request", "state", "scenario", "executor", "asked by", "when", "says")
    screen.table(heads, rows, whole=("request", "state"))
    if any(item.state == "asked" for item in standings):
        screen.note("next:  bench approve REQUEST")


@command.verb("One request: what it is for, and who approved it.", "bench approvals show 4f1c2a90")
@_digest_argument
def show_(workspace: Workspace, digest: str, as_json: bool) -> None:
    standing = workspace.approvals.show(digest)
    if as_json:
        screen.as_json(standing)
        return
    facts_of(standing)


@command.verb(
    "Whether an approval holds: its signature, by whose key, its time, and who may approve by trusted.yaml now. "
    "Exit code 5 where it does not.",
    "bench approvals verify 4f1c2a90",
)
@_digest_argument
def verify(workspace: Workspace, digest: str, as_json: bool) -> int:
    standing = workspace.approvals.verify(digest)
    code = Exit.GOOD if standing.holds else Exit.NEEDS_APPROVAL
    if as_json:
        screen.as_json(standing)
        return code
    mark = click.style("✓", fg="green") if standing.holds else click.style("✗", fg="red")
    click.echo(f"{mark} {standing.name}: {standing.says}")
    return code


@command.verb(
    "Take an approval back: no run begins or goes on by it any more. One that is under way is ended by bench stop.",
    "bench approvals revoke 4f1c2a90 --reason 'the cluster is needed'",
)
@_digest_argument
@click.option("--reason", default="", metavar="TEXT", help="Why, for people who read it later.")
def revoke(workspace: Workspace, digest: str, reason: str, as_json: bool) -> None:
    standing = workspace.approvals.revoke(digest, reason=reason)
    if as_json:
        screen.as_json(standing)
        return
    click.echo(f"{standing.name}: {standing.says}")
    if standing.run_id:
        screen.note(f"its run may be under way:  bench stop {standing.run_id}")


def facts_of(standing: "ApprovalStanding") -> None:
    """Print a request as people read it before and after they approve it."""
    budget = [
        (name, screen.duration(value) if name in ("wall", "cpu") else f"{value:g}")
        for name, value in standing.budget.items()
    ]
    rows = [
        ("request", standing.name),
        ("state", f"{standing.state}: {standing.says}"),
        ("scenario", f"{standing.scenario}, {standing.experiment}"),
        ("runs on", f"{standing.executor} at {standing.site}"),
        ("budget", ", ".join(f"{name} {value}" for name, value in budget) or "not limited"),
        ("beyond", "; ".join(standing.over)),
        ("asked", f"by {standing.asked_by}, {standing.asked[:16]} UTC"),
        ("approved", f"by {standing.approved_by}, {standing.approved[:16]} UTC" if standing.approved else ""),
        ("said", standing.door),
        ("reason", standing.reason),
        ("until", f"{standing.expires[:16]} UTC" if standing.expires else ""),
        ("used by", f"run {standing.run_id}" if standing.run_id else ""),
    ]
    screen.facts([row for row in rows if row[1]])
