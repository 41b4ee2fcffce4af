"""Walk a number back: report row, query, digests, and the bytes on disk."""

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import Exit


@click.command(
    help=f"{__doc__}\n\nREF is the reference beside a number, a trial id, or RUN:metric[.stat]; points are picked "
    "as in RUN:key=value:metric."
)
@click.argument("ref")
@options.json_option
@click.pass_context
def command(ctx: click.Context, ref: str, as_json: bool) -> int:
    from benchhouse.api import looking

    traced = looking.trace(options.workspace(ctx), ref)
    if as_json:
        show.as_json(traced.as_dict())
    else:
        for number, step in enumerate(traced.steps, start=1):
            mark = click.style("✓", fg="green") if step.ok else click.style("✗", fg="red")
            click.echo(f"{number}. {mark} {step.name}")
            for line in step.says:
                click.echo(f"     {line}")
        click.echo("every step holds" if traced.ok else "the lineage is broken: see ✗ above")
    return Exit.GOOD if traced.ok else Exit.TRIAL_FAILED
