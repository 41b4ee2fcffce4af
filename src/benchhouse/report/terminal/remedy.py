"""The effect of a remedy: the number in the good run, without the remedy, and with it."""

import click

from benchhouse.report.terminal import screen
from benchhouse.results.numbers import quantity
from benchhouse.results.remedy_outcome import Tried


def show_tried(tried: Tried) -> None:
    if tried.numbers:
        click.echo(f"\nTRIED {tried.remedy}, {screen.count(tried.rounds, 'round')} in turns with it as it was")
        rows = [
            (item.name, *(quantity(value, item.unit) for value in (item.good, item.as_it_was, item.changed)),
             item.outcome)
            for item in tried.numbers
        ]  # fmt: skip
        columns = ("number", "good", "as it was", "changed", "outcome")
        screen.table(columns, rows, right=columns[1:4], whole=columns)
        for item in tried.numbers:
            click.echo(f"  {item.name}, against as it was: {item.against_as_it_was}")
            click.echo(f"  {item.name}, against the good run: {item.against_good}")
    click.echo(f"\n{tried.headline}")
    if tried.runs:
        screen.note(f"its runs, in turns:  bench compare {tried.runs[0]} {tried.runs[1]}")
