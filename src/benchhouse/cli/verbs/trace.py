"""Walk a number back: report row, query, digests, and the bytes on disk."""

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import Exit

_EXAMPLES = """\b
Examples:
  bench trace f6741a41b4              a number of a report, by its reference
  bench trace @last:index=hnsw:qps    a metric of a run, computed now
  bench trace 4f1c2a90e1d37b58        a claim
"""


@click.command(
    help=f"{__doc__}\n\n{_EXAMPLES}\nREF is the reference beside a number, a claim, a trial id, or RUN:metric[.stat]; "
    "points are picked as in RUN:key=value:metric."
)
@click.argument("ref")
@click.option("--sql", "with_sql", is_flag=True, help="Print the text of the query, too.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, ref: str, with_sql: bool, as_json: bool) -> int:
    from benchhouse.api import trace

    traced = trace.trace(options.workspace(ctx), ref)
    if as_json:
        show.as_json(traced.as_dict())
    else:
        for number, step in enumerate(traced.steps, start=1):
            mark = click.style("✓", fg="green") if step.ok else click.style("✗", fg="red")
            click.echo(f"{number}. {mark} {step.name}")
            for line in step.says:
                click.echo(f"     {line}")
            if with_sql and step.name == "query":
                for line in step.details[0]["sql"].splitlines() if step.details else ():
                    click.echo(f"     | {line}")
        click.echo("every step holds" if traced.ok else "the lineage is broken: see ✗ above")
    return Exit.GOOD if traced.ok else Exit.TRIAL_FAILED
