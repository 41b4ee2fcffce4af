"""Views of the curated store: what changed from one release to another."""

from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

command = commands.group(
    __doc__,
    "bench views release --from 0.9.1 --to 0.10.0   claimed numbers of both, by model, hardware and version",
    "bench views release --from @last-1 --to @last --html",
)


@command.verb(
    "Show what got better, worse or stayed from one release to another, with claims only.\n\nA release is the version "
    "of a server (0.9.1, 'vllm 0.9.1'), an image digest, a commit, a framework, a package version or a run. Claims "
    "that do not hold any more, and REALISM-GRADE ones, are left out and named. Verdicts are corrected for all numbers "
    "shown.",
    "bench views release --from 0.9.1 --to 0.10.0",
    "bench views release --from 4f1c2a9 --to 90ab33e --realism   commits; realism-grade claims marked ~",
    "bench views release --from @last-1 --to @last --markdown > release.md",
)
@click.option("--from", "older", metavar="RELEASE", required=True, help="The older release.")
@click.option("--to", "newer", metavar="RELEASE", required=True, help="The newer release.")
@click.option("--realism", is_flag=True, help="Take in REALISM-GRADE claims, marked ~.")
@commands.confidence_option
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--html", "as_page", is_flag=True, help="Write one page that opens offline, and print its path.")
def release(workspace: Workspace, /, markdown: bool, as_page: bool, as_json: bool, **settings: Any) -> None:
    view = workspace.views.release(**settings)
    if as_page:
        click.echo(view.write())
    elif as_json:
        screen.as_json(view.to_dict())
    elif markdown:
        click.echo(view.markdown().rstrip("\n"))
    else:
        view.show()
