"""Compare runs, or points of runs: how much, how sure, and whether there is evidence at all."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.report.terminal import curves
from benchhouse.schema.lists import shortened

if TYPE_CHECKING:
    from benchhouse.results.comparison import ComparisonTable, PointRow
    from benchhouse.results.curves import Scaling, Tradeoff

Found = TypeVar("Found", bound="Tradeoff | Scaling")
_ROOMY = 110
_MOST_ROWS = 40
_MOST_NAMES = 8
_SHORT = {"no evidence of a difference": "no evidence", "too few repetitions": "too few"}


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
    outliers: str,
    paired: bool | None,
    confidence: float,
    markdown: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    from benchhouse.api import looking
    from benchhouse.results import selftest_record

    workspace = options.workspace(ctx).folder
    _check(at, of, along, write, metrics, every, len(runs))
    if (paired is not None or outliers != "keep") and (at or along or len(runs) != 2):
        raise click.UsageError("--paired and --outliers are for two runs against each other")
    if svg and (at or along or len(runs) != 2):
        raise click.UsageError("--svg is for two runs against each other; otherwise: bench report writes charts")
    if at:
        tradeoff, run_ids = looking.compare_at(workspace, list(runs), at, of, along, confidence)
        _show(tradeoff, as_json, markdown, curves.show_tradeoff)
        if write:
            screen.note(f"also {looking.report(workspace, run_ids, tradeoff)}")
    elif along:
        _show(
            looking.compare_along(workspace, list(runs), along, of, confidence), as_json, markdown, curves.show_scaling
        )
    elif len(runs) == 2:
        compared = looking.compare(
            workspace, *runs, list(metrics), confidence, every=every, outliers=outliers, paired=paired
        )
        trust = selftest_record.sentence(workspace, looking.scenario_of(workspace, runs[1]))
        _pair(compared, as_json, markdown, trust)
        if svg:
            looking.comparison_svg(compared, svg)
            screen.note(f"also {svg}")
    elif markdown:
        raise click.UsageError("--markdown is for two runs, --at or --along; otherwise: bench report writes report.md")
    else:
        beside = looking.compare_beside(workspace, list(runs), list(metrics), confidence)
        if as_json:
            labels = {member.at: member.label for member in beside.members}
            cases = [case.model_dump(mode="json") for case in beside.cases]
            screen.as_json({"cases": cases, "points": labels, "alone": beside.alone, "notes": beside.notes})
        else:
            curves.show_beside(beside)


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


def _show(found: Found, as_json: bool, markdown: bool, tell: Callable[[Found], None]) -> None:
    from benchhouse.api import looking

    if as_json:
        screen.as_json(found.model_dump(mode="json"))
    elif markdown:
        click.echo(looking.curves_markdown(found))
    else:
        tell(found)


def _pair(compared: "ComparisonTable", as_json: bool, markdown: bool, trust: str) -> None:
    from benchhouse.api import looking

    if as_json:
        screen.as_json(compared.as_dict() | {"selftest": trust})
        return
    if markdown:
        click.echo(looking.comparison_markdown(compared).rstrip("\n"))
        click.echo(f"\n{trust[:1].upper()}{trust[1:]}.")
        return
    click.echo(f"A  {compared.a}\nB  {compared.b}")
    verdicts, rows = looking.comparison_digest(compared, _MOST_ROWS)
    _show_rows(rows, several_points=compared.several_points)
    if len(rows) < len(compared.rows):
        more = len(compared.rows) - len(rows)
        screen.note(
            f"{verdicts}; and {more:,} more rows: --metric NAME, a selector (RUN:key=value), --json or --markdown"
        )
    _show_notes(compared)
    screen.note(trust)


def _show_rows(rows: "Sequence[PointRow]", *, several_points: bool) -> None:
    narrow = screen.console().width < _ROOMY
    if not (narrow and several_points):
        _table(rows, narrow=narrow, named=several_points)
        return
    points: dict[str, list[PointRow]] = {}
    for row in rows:
        points.setdefault(row.point, []).append(row)
    for point, own in points.items():
        click.echo(f"\n{point}")
        _table(own, narrow=narrow, named=False)


def _table(rows: "Sequence[PointRow]", *, narrow: bool, named: bool) -> None:
    """One line a number; `named` says the point of each, and where it is `narrow` the verdict is shortened."""
    from benchhouse.api.screen import number, titled

    verdicts = _SHORT if narrow else {}
    told = [
        (row.point, titled(row.name_marked, row.unit), number(row.mean_a), number(row.mean_b), row.change_text,
         row.effect_text, f"{row.n_a}/{row.n_b}", verdicts.get(row.verdict, row.verdict))
        for row in rows
    ]  # fmt: skip
    columns = ("point", "metric", "A", "B", "change, interval", "effect g", "n", "verdict")
    first = 0 if named else 1
    screen.table(
        columns[first:],
        [line[first:] for line in told],
        right=("A", "B", "effect g"),
        whole=("metric", "A", "B", "effect g", "n", "verdict"),
        spare=("n", "effect g"),
    )


def _show_notes(compared: "ComparisonTable") -> None:
    from benchhouse.report.terminal.points import SHAKY

    if any(row.shaky for row in compared.rows):
        screen.note(SHAKY)
    for line in compared.notes:
        screen.note(line)
    for difference in compared.differences:
        screen.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    if compared.unmatched_metrics:
        screen.note(f"not compared: {', '.join(compared.unmatched_metrics)}")
    for side, only in (("A", compared.only_a), ("B", compared.only_b)):
        if only:
            screen.note(f"only in {side}: {shortened(only, _MOST_NAMES)}")
