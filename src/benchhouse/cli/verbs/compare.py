"""Compare two runs, or points of runs: how much, how sure, and whether there is evidence at all."""

import click

from benchhouse.cli import options, show


@click.command(
    help=f"{__doc__}\n\nA and B are runs (@last, an id, a scenario) or points of one: @last:index=flat,ef_search=64.\n"
    "B is told against A."
)
@click.argument("a", shell_complete=options.complete_run)
@click.argument("b", shell_complete=options.complete_run)
@click.option("--metric", "metrics", multiple=True, help="Only this metric; may be repeated.")
@click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, a: str, b: str, metrics: tuple[str, ...], confidence: float, markdown: bool, as_json: bool
) -> None:
    from benchhouse.api import looking

    compared = looking.compare(options.workspace(ctx), a, b, list(metrics), confidence)
    if as_json:
        show.as_json(compared.as_dict())
        return
    if markdown:
        click.echo(looking.comparison_markdown(compared))
        return
    click.echo(f"A  {compared.a}\nB  {compared.b}")
    show.table(
        ("point", "metric", "A", "B", "unit", "change, interval", "effect g", "n", "verdict"),
        [
            (row.point, row.name, show.number(row.mean_a), show.number(row.mean_b), row.unit,
             row.change_text, show.number(row.hedges_g, 2), f"{row.n_a}/{row.n_b}", row.verdict)
            for row in compared.rows
        ],
        right=("A", "B", "effect g"),
    )  # fmt: skip
    for line in compared.notes:
        show.note(line)
    for difference in compared.differences:
        show.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    if compared.exploratory:
        show.note("exploratory: more than one thing changed, so no change can be put down to any one of them")
    for side, only in (("A", compared.only_a), ("B", compared.only_b)):
        if only:
            show.note(f"only in {side}: {', '.join(only[:8])}")
