"""Find out why a run got slower: points, nodes, ranks and series that changed, a cause, and the raw evidence."""

from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

_MOST_MOVED = 5

if TYPE_CHECKING:
    from benchhouse.report.why import PointWhy, Why


@click.command(
    help=f"{__doc__}\n\nA cause is named where a number is worse for sure and a series moved far outside the spread of "
    "its repetitions; else it says that there is no evidence."
    + examples(
        "bench why @last   against the newest earlier run of the same plan",
        "bench why @last --vs @last-3",
        "bench why @last --html   the same as one page",
        "bench why @last --json",
    )
)
@options.run_argument()
@click.option("--vs", metavar="RUN", shell_complete=options.complete_run, help="The run that was still good.")
@click.option("--html", "as_page", is_flag=True, help="Write one page that opens offline, and print its path.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, vs: str | None, as_page: bool, as_json: bool) -> int:
    from benchhouse.api import why

    workspace = options.workspace(ctx)
    found = why.why(workspace, run, vs)
    code = Exit.TRIAL_FAILED if found.failures and not found.base else Exit.GOOD
    if as_page:
        click.echo(why.page(workspace, found))
        return code
    if as_json:
        told = found.model_dump(mode="json")
        for point in told["points"]:
            for one in point["diagnoses"]:
                one["next"] = why.commands(found, one["next"])
        show.as_json({"headline": found.headline} | told)
        return code
    _show(found)
    return code


def _show(found: "Why") -> None:
    click.echo(f"RUN   {found.run_id}")
    click.echo(f"BASE  {found.base or '-'}  ({found.base_chosen})")
    for reason, count in found.pending.items():
        click.echo(f"QUEUE {reason}, said of {show.count(count, 'trial')}")
    for one in found.failures:
        click.echo(f"\n{one.outcome}: {one.point}  {one.code}: {one.message}")
        click.echo(f"  evidence  {one.folder}\n  logs      {one.logs}\n  again     {one.rerun}")
    for point in found.points:
        _show_point(found, point)
    click.echo(f"\n{found.headline}")
    for line in found.differences:
        show.note(f"differs: {line}")
    for line in found.notes:
        show.note(line)
    if found.points:
        show.note(f"for others:  bench report {found.base} {found.run_id} --for product")
    elif found.base:
        show.note(f"look closer:  bench compare {found.base} {found.run_id}")
    elif found.failures:
        show.note(f"all of it:  bench report {found.run_id}")
    else:
        show.note(f"compare it with another:  bench why {found.run_id} --vs RUN")


def _show_point(found: "Why", point: "PointWhy") -> None:
    from benchhouse.api import why

    click.echo(f"\n{point.point or 'all of it'}")
    for text in why.symptoms(point):
        click.echo(f"  worse     {text}")
    for at, one in enumerate(point.diagnoses):
        click.echo(f"  {'cause' if at == 0 else 'or':9} {one.title}  [{one.certainty}: {one.why_so_sure}]")
        click.echo(f"            {one.says}")
        for shown in one.evidence:
            click.echo(f"  evidence  {shown.says}")
        for line in why.commands(found, one.next):
            click.echo(f"  next      {line}")
        click.echo(f"  change    {one.change}")
        for line in one.also:
            click.echo(f"  also      {line}")
    if not point.diagnoses:
        click.echo("  cause     no evidence: no playbook fits, or no series moved far outside its repetitions' spread")
        for moved in point.moved[:_MOST_MOVED]:
            click.echo(f"  moved     {moved.says}")
        if len(point.moved) > _MOST_MOVED:
            click.echo(f"            and {len(point.moved) - _MOST_MOVED} more: --json")
    for trial in point.trials:
        told = why.trial_value(trial)
        click.echo(f"  trial     {trial.trial_id} on {trial.node}, {told}: {trial.folder}")
        for file in trial.files:
            click.echo(f"            {trial.folder}/{file}")
        for line in trial.slow:
            click.echo(f"            {trial.requests}: {line}")
    if point.trials:
        click.echo(f"  logs      {point.trials[0].logs}")
        click.echo(f"  proof     {point.trials[0].trace}")
        click.echo(f"  again     {point.repro}")
