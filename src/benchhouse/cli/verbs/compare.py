"""Compare two runs, or points of runs: how much, how sure, and whether there is evidence at all."""

from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show

if TYPE_CHECKING:
    from benchhouse.report.comparison import ComparisonTable, PointRow

_ROOMY = 110
_SHORT = {"no evidence of a difference": "no evidence", "too few repetitions": "too few"}


@click.command(
    help=f"{__doc__}\n\nA and B are runs (@last, an id, a scenario) or points of one: @last:index=flat,ef_search=64.\n"
    "B is told against A."
)
@click.argument("a", shell_complete=options.complete_run)
@click.argument("b", shell_complete=options.complete_run)
@click.option("--metric", "metrics", multiple=True, help="Only this metric; may be repeated.")
@click.option("--all", "every", is_flag=True, help="Every statistic, not only value or mean, and p99.")
@click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    a: str,
    b: str,
    metrics: tuple[str, ...],
    every: bool,
    confidence: float,
    markdown: bool,
    as_json: bool,
) -> None:
    from benchhouse.api import looking

    compared = looking.compare(options.workspace(ctx), a, b, list(metrics), confidence, every=every)
    if as_json:
        show.as_json(compared.as_dict())
        return
    if markdown:
        click.echo(looking.comparison_markdown(compared))
        return
    click.echo(f"A  {compared.a}\nB  {compared.b}")
    _show_rows(compared)
    _show_notes(compared)


def _show_rows(compared: "ComparisonTable") -> None:
    narrow = show.console().width < _ROOMY
    if not (narrow and compared.several_points):
        _table(compared.rows, narrow=narrow, named=compared.several_points)
        return
    for point in dict.fromkeys(row.point for row in compared.rows):
        click.echo(f"\n{point}")
        _table([row for row in compared.rows if row.point == point], narrow=narrow, named=False)


def _table(rows: "list[PointRow]", *, narrow: bool, named: bool) -> None:
    """One line a number; `named` says the point of each, and where it is `narrow` the verdict is shortened."""
    from benchhouse.api.looking import number, titled

    verdicts = _SHORT if narrow else {}
    told = [
        (row.point, titled(row.name_marked, row.unit), number(row.mean_a), number(row.mean_b), row.change_text,
         row.effect_text, f"{row.n_a}/{row.n_b}", verdicts.get(row.verdict, row.verdict))
        for row in rows
    ]  # fmt: skip
    columns = ("point", "metric", "A", "B", "change, interval", "effect g", "n", "verdict")
    first = 0 if named else 1
    show.table(
        columns[first:],
        [line[first:] for line in told],
        right=("A", "B", "effect g"),
        whole=("metric", "A", "B", "effect g", "n", "verdict"),
        spare=("n", "effect g"),
    )


def _show_notes(compared: "ComparisonTable") -> None:
    from benchhouse.cli.tables import SHAKY

    if any(row.shaky for row in compared.rows):
        show.note(SHAKY)
    for line in compared.notes:
        show.note(line)
    for difference in compared.differences:
        show.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    if compared.unmatched_metrics:
        show.note(f"not compared: {', '.join(compared.unmatched_metrics)}")
    for side, only in (("A", compared.only_a), ("B", compared.only_b)):
        if only:
            show.note(f"only in {side}: {', '.join(only[:8])}")
