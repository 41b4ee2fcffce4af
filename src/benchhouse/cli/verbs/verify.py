"""Re-hash the evidence of a run: one flipped byte is found and named."""

from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError, Exit


@click.command(help=f"{__doc__}\n\nRUN is a run, or the path of one trial folder.")
@options.run_argument()
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool) -> int:
    from benchhouse.api import following, looking

    workspace = options.workspace(ctx)
    if Path(run).is_dir():
        checked, damage = 1, looking.verify_folder(Path(run))
    else:
        checked, damage = looking.verify_run(workspace, following.find_run(workspace, run))
    if as_json:
        show.as_json({"checked": checked, "damage": [item.model_dump() for item in damage]})
    else:
        for item in damage:
            click.echo(f"{item.trial}/{item.file}: {item.kind}" + (f" ({item.detail})" if item.detail else ""))
        verdict = f"{show.count(len(damage), 'fault')}" if damage else "all as sealed"
        click.echo(f"{show.count(checked, 'trial')} checked: {verdict}")
    if not checked:
        raise BenchError("there was no sealed trial to check", "see: bench status", Exit.TRIAL_FAILED)
    return Exit.TRIAL_FAILED if damage else Exit.GOOD
