"""The steps from a number to its bytes, each with a mark."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from benchhouse.results.lineage import LineageTrace


def show_trace(trace: "LineageTrace", *, sql: bool = False) -> None:
    """Print the steps; with `sql`, also the text of the query."""
    for number, step in enumerate(trace.steps, start=1):
        mark = click.style("✓", fg="green") if step.ok else click.style("✗", fg="red")
        click.echo(f"{number}. {mark} {step.name}")
        for line in step.says:
            click.echo(f"     {line}")
        if sql and step.name == "query":
            for line in step.details[0]["sql"].splitlines() if step.details else ():
                click.echo(f"     | {line}")
    click.echo("every step holds" if trace.ok else "the lineage is broken: see ✗ above")
