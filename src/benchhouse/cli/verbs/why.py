"""Find out why a run got slower: points, nodes, ranks, and series that changed, a cause, and the raw evidence."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

_ROUNDS = 5


@commands.verb(
    f"{__doc__}\n\nA cause is named where a number is worse for sure and a series moved far outside the spread of "
    "its repetitions; else it says that there is no evidence. --try ends with 0 where the experiment restored the "
    "numbers, 3 where it did not or can't tell, 2 where the cause has none that can be run.",
    "bench why @last   against the newest earlier run of the same plan",
    "bench why @last --vs @last-3",
    "bench why @last --html   the same as one page",
    "bench why @last --try   run the playbook's experiment: does it restore the numbers?",
)
@commands.run_argument()
@click.option("--vs", metavar="RUN", shell_complete=commands.complete_run, help="The run that was still good.")
@click.option("--html", "as_page", is_flag=True, help="Write one page that opens offline, and print its path.")
@click.option(
    "--try", "tried", is_flag=True, help="Run the experiment of the surest cause, in turns with it as it was."
)
@click.option("--rounds", type=click.IntRange(3, 100), help="With --try: trials each way.  [default: 5]")
def command(
    workspace: Workspace, run: str, vs: str | None, as_page: bool, as_json: bool, tried: bool, rounds: int | None
) -> int:
    if rounds and not tried:
        raise click.UsageError("--rounds goes with --try")
    if tried and as_page:
        raise click.UsageError("--html shows the diagnosis alone; --try prints, also with --json")
    diagnosis = workspace.why(run, vs, rounds=(rounds or _ROUNDS) if tried else None, progress=screen.RunProgress())
    if as_page:
        click.echo(diagnosis.write())
    elif as_json:
        screen.as_json(diagnosis.to_dict())
    else:
        diagnosis.show()
    return diagnosis.exit_code
