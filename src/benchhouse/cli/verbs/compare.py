"""Compare runs, or points of runs: how much, how sure, and whether there is evidence at all."""

from pathlib import Path
from typing import Literal

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.command(
    help=f"{__doc__}\n\nA run (@last, an id, a scenario) or points of one: @last:index=flat,ef_search=64. Of two, the "
    "second is told against the first. Of one, or of three and more, targets that were put to the same test stand side "
    "by side."
    + examples(
        "bench compare @last-1 @last   B against A",
        "bench compare @last   targets side by side under identical load",
        "bench compare @last --at recall=0.95   at equal recall, from a sweep of the search parameter",
        "bench compare @last --along concurrency   how each target scales, and where it stops",
    )
)
@click.argument("runs", nargs=-1, required=True, shell_complete=options.complete_run)
@click.option("--at", metavar="METRIC=VALUE", help="Compare targets where they have this much of a metric.")
@click.option("--of", metavar="METRIC", help="With --at or --along: what is compared. By default, the throughput.")
@click.option("--along", metavar="KEY", default="", help="Curves along this number; with --at, the search parameter.")
@click.option("--report", "write", is_flag=True, help="With --at: write the report, with the curves and the level.")
@click.option("--metric", "metrics", multiple=True, help="Only this metric; may be repeated.")
@click.option("--all", "every", is_flag=True, help="Every statistic, not only value or mean, and p99.")
@click.option("--outliers", type=click.Choice(["keep", "mad"]), default="keep", show_default=True,
              help="mad: leave out what lies 5 robust deviations off; how many is told either way.")  # fmt: skip
@click.option("--paired/--no-paired", default=None,
              help="Repetition with repetition; by itself where the sides took turns in time.")  # fmt: skip
@click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request: the verdict, then a table.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Of two runs: also write the changes as a chart.")  # fmt: skip
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    runs: tuple[str, ...],
    at: str | None,
    of: str | None,
    along: str,
    write: bool,
    metrics: tuple[str, ...],
    every: bool,
    outliers: Literal["keep", "mad"],
    paired: bool | None,
    confidence: float,
    markdown: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    from benchhouse.api.answers import Comparison, CurveComparison, TargetComparison
    from benchhouse.api.comparisons import CompareKeywords

    workspace = options.workspace(ctx)
    _check(at, of, along, write, metrics, every, len(runs))
    if (paired is not None or outliers != "keep") and (at or along or len(runs) != 2):
        raise click.UsageError("--paired and --outliers are for two runs against each other")
    if svg and (at or along or len(runs) != 2):
        raise click.UsageError("--svg is for two runs against each other; otherwise: bench report writes charts")
    wanted = CompareKeywords(at=at, along=along, of=of, metrics=metrics, confidence=confidence)
    if not (at or along) and len(runs) == 2:
        wanted |= {"every": every, "outliers": outliers, "paired": paired}
    compared = workspace.compare(*runs, **wanted)
    if as_json:
        screen.as_json(compared.to_dict())
    elif not markdown:
        compared.show()
    elif isinstance(compared, TargetComparison):
        raise click.UsageError("--markdown is for two runs, --at or --along; otherwise: bench report writes report.md")
    else:
        click.echo(compared.markdown().rstrip("\n"))
    if svg and isinstance(compared, Comparison):
        compared.write_svg(svg)
        screen.note(f"also {svg}")
    if write and isinstance(compared, CurveComparison):
        screen.note(f"also {workspace.report(*compared.run_ids, curves=compared).html}")


def _check(
    at: str | None, of: str | None, along: str, write: bool, metrics: tuple[str, ...], every: bool, runs: int
) -> None:
    """Options that would silently do nothing are refused."""
    if of and not (at or along):
        raise click.UsageError("--of goes with --at or --along; --metric picks metrics")
    if write and not at:
        raise click.UsageError("--report goes with --at; otherwise: bench report")
    if metrics and (at or along):
        raise click.UsageError("--metric picks metrics of points; with --at or --along it is --of METRIC")
    if every and (at or along or runs != 2):
        raise click.UsageError("--all is for two runs against each other")
