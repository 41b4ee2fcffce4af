"""Judge a change for a pipeline: worse by more than is tolerated, not worse, or can't tell."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.cli.shares import SHARE
from benchhouse.schema.errors import Exit


@click.command(
    help=f"{__doc__}\n\nExit code 0: the intervals exclude a worsening of --mde. 3: a regression. 6: these repetitions "
    "can't tell, and it is said how many would."
    + examples(
        "bench gate @last-1..@last --mde 3%",
        "bench gate main..@last --mde 5% --metric latency   main: the last run of a scenario of that name",
        "bench gate @last-1..@last --mde 3% --json",
    )
)
@click.argument("runs", metavar="BASE..NEW")
@click.option("--mde", type=SHARE, default="3%", show_default=True, help="The smallest worsening that matters.")
@click.option("--metric", "metrics", multiple=True, help="Only this metric; may be repeated.")
@click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))
@click.option("--outliers", type=click.Choice(["keep", "mad"]), default="keep", show_default=True,
              help="mad: leave out what lies 5 robust deviations off, and tell how many.")  # fmt: skip
@click.option("--undecided", type=click.Choice(["fail", "pass"]), default="fail", show_default=True,
              help="Whether \"can't tell\" fails the gate (6) or passes it (0).")  # fmt: skip
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    runs: str,
    mde: float,
    metrics: tuple[str, ...],
    confidence: float,
    outliers: str,
    undecided: str,
    as_json: bool,
) -> int:
    from benchhouse.api.screen import percent, titled
    from benchhouse.results import gate

    base, dots, new = runs.partition("..")
    if not (base and dots and new):
        raise click.UsageError(f"{runs!r} is not BASE..NEW, for example @last-1..@last")
    found = gate.gate(options.workspace(ctx).folder, base, new, mde, list(metrics), confidence, outliers)
    code = found.exit_code
    if code == Exit.UNDECIDED and undecided == "pass":
        code = Exit.GOOD
    if as_json:
        screen.as_json(found.as_dict() | {"exit_code": int(code)})
        return code
    click.echo(f"BASE  {found.table.a}\nNEW   {found.table.b}")
    rows = [
        (item.row.point, titled(item.row.name_marked, item.row.unit), item.row.change_text,
         percent(item.ruling.visible, signed=False), f"{item.row.n_a}/{item.row.n_b}", item.ruling.judgement)
        for item in found.rows
    ]  # fmt: skip
    columns = ("point", "metric", "change, interval", "can see", "n", "judgement")
    screen.table(
        columns, rows, right=("can see",), whole=("metric", "can see", "n", "judgement"), spare=("n", "can see")
    )
    for point in found.missing:
        screen.note(f"not in NEW, so nothing can be said of it: {point}")
    for difference in found.table.differences:
        screen.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    for note in found.table.notes:
        screen.note(note)
    if found.needed:
        screen.note(f"to see a worsening of {mde:.2%} 4 times in 5: repetitions: {found.needed} on both sides")
    screen.note(found.selftest)
    click.echo(f"gate: {found.judgement} (worse by {mde:.2%} or more is what matters)")
    screen.note(f"look closer:  bench compare {base} {new}")
    return code
