"""Compare runs, or points of runs: how large each difference is, how certain, and whether there is evidence of one."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\nA run (@last, an id, a scenario) or points of one: @last:index=flat,ef_search=64. Of two, the "
    "second is compared with the first. Of one, or of three and more, targets that were put to the same test stand "
    "side by side.",
    "bench compare @last-1 @last   B against A",
    "bench compare @last   targets side by side under identical load",
    "bench compare @last --at recall=0.95   at equal recall, from a sweep of the search parameter",
    "bench compare @last --along concurrency   how each target scales, and where it stops",
)
@click.argument("runs", nargs=-1, required=True, shell_complete=commands.complete_run)
@click.option("--at", metavar="METRIC=VALUE", help="Compare targets where they have this much of a metric.")
@click.option("--of", metavar="METRIC", help="With --at or --along: what is compared. By default, the throughput.")
@click.option("--along", metavar="KEY", default="", help="Curves along this number; with --at, the search parameter.")
@click.option("--report", "write", is_flag=True, help="With --at: write the report, with the curves and the level.")
@click.option("--metric", "metrics", multiple=True, help="Only this metric; may be repeated.")
@click.option("--all", "every", is_flag=True, help="Every statistic, not only value or mean, and p99.")
@commands.outliers_option
@click.option("--paired/--no-paired", default=None,
              help="Repetition with repetition; by itself where the sides took turns in time.")  # fmt: skip
@commands.confidence_option
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request: the verdict, then a table.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Of two runs: also write the changes as a chart.")  # fmt: skip
def command(
    workspace: Workspace, /, runs: tuple[str, ...], write: bool, markdown: bool, svg: Path | None, as_json: bool,
    **settings: Any,
) -> None:  # fmt: skip
    from benchhouse.api.answers import Comparison, CurveComparison, TargetComparison

    for_two = {name: settings.pop(name) for name in ("every", "outliers", "paired")}
    curves = settings["at"] or settings["along"]
    two = len(runs) == 2 and not curves
    for would_do_nothing, message in (
        (settings["of"] and not curves, "--of goes with --at or --along; --metric picks metrics"),
        (write and not settings["at"], "--report goes with --at; otherwise: bench report"),
        (settings["metrics"] and curves, "--metric picks metrics of points; with --at or --along it is --of METRIC"),
        (for_two["every"] and not two, "--all is for two runs against each other"),
        (
            (for_two["paired"] is not None or for_two["outliers"] != "keep") and not two,
            "--paired and --outliers are for two runs against each other",
        ),
        (svg and not two, "--svg is for two runs against each other; otherwise: bench report writes charts"),
    ):
        if would_do_nothing:
            raise click.UsageError(message)
    compared = workspace.compare(*runs, **settings, **(for_two if two else {}))
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
