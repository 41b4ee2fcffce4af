"""Re-hash the evidence of a run: one flipped byte is found and named."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import BenchError, Exit

_SHOWN = 3
_REBUILD = "bench warehouse rebuild"
_EXAMPLES = """\b
Examples:
  bench verify @last         every file of every trial of a run
  bench verify --all         all trials, the tables, their catalog, and the claims
"""


@click.command(help=f"{__doc__}\n\n{_EXAMPLES}\nRUN is a run, or the path of one trial folder.")
@options.run_argument()
@click.option("--all", "everything", is_flag=True, help="All trials, the tables, their catalog, and the claims.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, everything: bool, as_json: bool) -> int:
    verification = options.workspace(ctx).verify(None if everything else run)
    checked, damage, outdated = verification.checked, verification.damage, verification.outdated
    if not checked and not damage:
        raise BenchError("there was no sealed trial to check", "see: bench status", Exit.TRIAL_FAILED)
    if as_json:
        document = {"checked": checked, "damage": [item.model_dump() for item in damage]}
        screen.as_json(document | ({"outdated": outdated} if everything else {}))
    else:
        for item in damage:
            click.echo(f"{item.trial}/{item.file}: {item.kind}" + (f" ({item.detail})" if item.detail else ""))
        verdict = f"{screen.count(len(damage), 'fault')}" if damage else "all as sealed"
        click.echo(f"{screen.count(checked, 'trial')} checked: {verdict}")
    if damage and all(item.trial == "warehouse" for item in damage):
        screen.note(f"the tables are only a view of the evidence; make them again:  {_REBUILD}")
    if outdated and not damage:
        more = f" and {len(outdated) - _SHOWN} more" if len(outdated) > _SHOWN else ""
        runs = f"{', '.join(outdated[:_SHOWN])}{more}"
        screen.note(f"no damage, but tables of an older version lack what newer ones have: {runs}")
        screen.note(f"make them again:  {_REBUILD}")
    return Exit.TRIAL_FAILED if damage else Exit.GOOD
