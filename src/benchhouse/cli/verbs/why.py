"""Find out why a run got slower: points, nodes, ranks and series that changed, a cause, and the raw evidence."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\nA cause is named where a number is worse for sure and a series moved far outside the spread of "
    "its repetitions; else it says that there is no evidence.",
    "bench why @last   against the newest earlier run of the same plan",
    "bench why @last --vs @last-3",
    "bench why @last --html   the same as one page",
    "bench why @last --json",
)
@commands.run_argument()
@click.option("--vs", metavar="RUN", shell_complete=commands.complete_run, help="The run that was still good.")
@click.option("--html", "as_page", is_flag=True, help="Write one page that opens offline, and print its path.")
def command(workspace: Workspace, run: str, vs: str | None, as_page: bool, as_json: bool) -> int:
    diagnosis = workspace.why(run, vs)
    if as_page:
        click.echo(diagnosis.write())
    elif as_json:
        screen.as_json(diagnosis.to_dict())
    else:
        diagnosis.show()
    return diagnosis.exit_code
