"""Hash the evidence of a run again: a single flipped byte is found and named."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.quoting import shortened

_REBUILD = "bench warehouse rebuild"


@commands.verb(
    f"{__doc__}\n\nRUN is a run, or the path of one trial folder.",
    "bench verify @last   every file of every trial of a run",
    "bench verify --all   all trials, the tables, their catalog, and the claims",
)
@commands.run_argument()
@click.option("--all", "everything", is_flag=True, help="All trials, the tables, their catalog, and the claims.")
def command(workspace: Workspace, run: str, everything: bool, as_json: bool) -> int:
    verification = workspace.verify(None if everything else run)
    checked, damage, outdated = verification.checked, verification.damage, verification.outdated
    if not checked and not damage:
        raise BenchError("there was no sealed trial to check", "see: bench status", Exit.TRIAL_FAILED)
    if as_json:
        screen.as_json({"checked": checked, "damage": damage} | ({"outdated": outdated} if everything else {}))
    else:
        for item in damage:
            click.echo(f"{item.trial}/{item.file}: {item.kind}" + (f" ({item.detail})" if item.detail else ""))
        verdict = f"{screen.count(len(damage), 'fault')}" if damage else "all as sealed"
        click.echo(f"{screen.count(checked, 'trial')} checked: {verdict}")
    if damage and all(item.trial == "warehouse" for item in damage):
        screen.note(f"the tables are only a view of the evidence; make them again:  {_REBUILD}")
    if outdated and not damage:
        screen.note(f"no damage, but tables of an older version lack what newer ones have: {shortened(outdated, 3)}")
        screen.note(f"make them again:  {_REBUILD}")
    return Exit.TRIAL_FAILED if damage else Exit.GOOD
