"""Container images, pinned by digest: pull, build, add, list, verify."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchhouse.schema.site import Site
    from benchhouse.sites.images import Found

_EXAMPLES = """\b
Examples:
  bench images pull docker://vllm/vllm-openai:v0.11.0       on a login node; prints the digest
  bench images add $WORK/containers/vllm.sif                pin one that is there
  bench images verify                                       exit code 1 where one has changed
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


def _site(ctx: click.Context, name: str | None) -> "Site":
    from benchhouse.sites import places

    return places.site(options.workspace(ctx).folder, name)


_site_option = click.option("--site", help="Site profile: its `folders.containers` is where images lie.")
_name_option = click.option("--name", default="", help="Name of the .sif file.")
_licence_option = click.option("--licence", default="", help="Licence, where the image's labels don't say.")


@command.command(
    help="Bring an image from a registry. A tag is resolved to its digest, and that is pinned."
    + examples(
        "bench images pull docker://vllm/vllm-openai:v0.11.0",
        "bench images pull docker://vllm/vllm-openai:v0.11.0 --name vllm",
    )
)
@click.argument("source", metavar="docker://NAME[:TAG|@sha256:...]")
@_name_option
@_licence_option
@_site_option
@options.json_option
@click.pass_context
def pull(ctx: click.Context, source: str, name: str, licence: str, site: str | None, as_json: bool) -> None:
    from benchhouse.sites import images

    _made(images.pull(_site(ctx, site), source, name, licence, screen.note), as_json)


@command.command(help="Build an image from a definition file." + examples("bench images build vllm.def"))
@click.argument("definition", metavar="FILE.def", type=click.Path(path_type=Path))
@_name_option
@_licence_option
@_site_option
@options.json_option
@click.pass_context
def build(ctx: click.Context, definition: Path, name: str, licence: str, site: str | None, as_json: bool) -> None:
    from benchhouse.sites import images

    _made(images.build(_site(ctx, site), definition, name, licence), as_json)


@command.command(
    help="Pin a .sif file that is there, as it is now."
    + examples("bench images add containers/vllm.sif --licence Apache-2.0")
)
@click.argument("path", metavar="FILE.sif", type=click.Path(path_type=Path))
@_licence_option
@options.json_option
def add(path: Path, licence: str, as_json: bool) -> None:
    from benchhouse.sites import images

    _made(images.add(path, licence), as_json)


def _made(found: "Found", as_json: bool) -> None:
    if as_json:
        screen.as_json(found.row())
        return
    click.echo(found.path)
    screen.note(f"sha256 {found.image.sha256}")
    screen.note(f"next:  runtime: {{kind: apptainer, image: {found.path}}}")


@command.command("list", help="Pinned images; nothing is read but the record." + examples("bench images list"))
@_site_option
@options.json_option
@click.pass_context
def list_(ctx: click.Context, site: str | None, as_json: bool) -> None:
    from benchhouse.sites import images

    _show(ctx, site, as_json, images.images)
    if not as_json:
        screen.note("check their bytes:  bench images verify")


@command.command(
    help="Read all images again; exit code 1 where one is not what was pinned." + examples("bench images verify")
)
@_site_option
@options.json_option
@click.pass_context
def verify(ctx: click.Context, site: str | None, as_json: bool) -> int:
    from benchhouse.sites import images

    wrong = [item for item in _show(ctx, site, as_json, images.verify) if item.state != "unchanged"]
    for item in wrong:
        is_gone = item.state == "gone"
        screen.note(f"{item.path} is {'gone' if is_gone else 'not the one that was pinned'}")
    return Exit.TRIAL_FAILED if wrong else Exit.GOOD


def _show(ctx: click.Context, site: str | None, as_json: bool, find: "Callable[[Site], list[Found]]") -> "list[Found]":
    from benchhouse.schema.quantities import show_bytes

    found = find(_site(ctx, site))
    if as_json:
        screen.as_json([item.row() for item in found])
        return found
    rows = [
        (item.path.name, item.state, show_bytes(item.image.size), item.image.sha256[:12], item.image.licence,
         item.image.source)
        for item in found
    ]  # fmt: skip
    screen.table(("image", "state", "size", "sha256", "licence", "source"), rows, whole=("image", "state", "sha256"))
    return found
