"""Re-hash the evidence of a run: one flipped byte is found and named."""

from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.lists import shortened

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
    from benchhouse.api import following, looking

    workspace = options.workspace(ctx)
    outdated: list[str] = []
    if everything:
        checked, damage = looking.verify_all(workspace)
        outdated = [] if damage else looking.outdated(workspace)
    elif Path(run).is_dir():
        checked, damage = 1, looking.verify_folder(Path(run))
    else:
        checked, damage = looking.verify_run(workspace, following.find_run(workspace, run))
    if not checked and not damage:
        raise BenchError("there was no sealed trial to check", "see: bench status", Exit.TRIAL_FAILED)
    if as_json:
        found = {"checked": checked, "damage": [item.model_dump() for item in damage]}
        show.as_json(found | ({"outdated": outdated} if everything else {}))
    else:
        for item in damage:
            click.echo(f"{item.trial}/{item.file}: {item.kind}" + (f" ({item.detail})" if item.detail else ""))
        verdict = f"{show.count(len(damage), 'fault')}" if damage else "all as sealed"
        click.echo(f"{show.count(checked, 'trial')} checked: {verdict}")
    if damage and all(item.trial == "warehouse" for item in damage):
        show.note(f"the tables are only a view of the evidence; make them again:  {_REBUILD}")
    if outdated:
        few = shortened(outdated, _SHOWN)
        runs = show.count(len(outdated), "run")
        show.note(f"no damage, but the tables of {runs} lack what newer ones have: {few}\nmake them again:  {_REBUILD}")
    return Exit.TRIAL_FAILED if damage else Exit.GOOD
