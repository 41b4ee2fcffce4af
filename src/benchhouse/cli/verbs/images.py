"""Container images, pinned by digest: pull, build, add, list, verify."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.sites import PinnedImage

_EXAMPLES = """\b
Examples:
  bench images pull docker://vllm/vllm-openai:v0.11.0       on a login node; prints the digest
  bench images add $WORK/containers/vllm.sif                pin an existing one
  bench images verify                                       exit code 1 where one has changed
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


_site_option = click.option("--site", help="Site profile; images are in its `folders.containers`.")
_name_option = click.option("--name", default="", help="Name of the .sif file.")
_licence_option = click.option("--licence", default="", help="Licence, where the image has no label for it.")


@command.command(
    help="Pull an image from a registry. A tag is resolved to its digest, which is pinned."
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
    images = options.workspace(ctx).images
    _show_one(images.pull(source, name=name, licence=licence, site=site, progress=screen.RunProgress()), as_json)


@command.command(help="Build an image from a definition file." + examples("bench images build vllm.def"))
@click.argument("definition", metavar="FILE.def", type=click.Path(path_type=Path))
@_name_option
@_licence_option
@_site_option
@options.json_option
@click.pass_context
def build(ctx: click.Context, definition: Path, name: str, licence: str, site: str | None, as_json: bool) -> None:
    images = options.workspace(ctx).images
    _show_one(images.build(definition, name=name, licence=licence, site=site), as_json)


@command.command(
    help="Pin an existing .sif file as it is now."
    + examples("bench images add containers/vllm.sif --licence Apache-2.0")
)
@click.argument("path", metavar="FILE.sif", type=click.Path(path_type=Path))
@_licence_option
@options.json_option
@click.pass_context
def add(ctx: click.Context, path: Path, licence: str, as_json: bool) -> None:
    _show_one(options.workspace(ctx).images.add(path, licence=licence), as_json)


def _show_one(pinned: "PinnedImage", as_json: bool) -> None:
    if as_json:
        screen.as_json(pinned.to_dict())
        return
    click.echo(pinned.path)
    screen.note(f"sha256 {pinned.image.sha256}")
    screen.note(f"next:  runtime: {{kind: apptainer, image: {pinned.path}}}")


@command.command("list", help="List pinned images, from their record." + examples("bench images list"))
@_site_option
@options.json_option
@click.pass_context
def list_(ctx: click.Context, site: str | None, as_json: bool) -> None:
    _show(options.workspace(ctx).images.pinned(site), as_json)
    if not as_json:
        screen.note("check their bytes:  bench images verify")


@command.command(
    help="Read all images again; exit code 1 where one differs from what was pinned." + examples("bench images verify")
)
@_site_option
@options.json_option
@click.pass_context
def verify(ctx: click.Context, site: str | None, as_json: bool) -> int:
    pinned = options.workspace(ctx).images.verify(site)
    _show(pinned, as_json)
    wrong = [item for item in pinned if item.state != "unchanged"]
    for item in wrong:
        screen.note(f"{item.path} is {'gone' if item.state == 'gone' else 'not the one that was pinned'}")
    return Exit.TRIAL_FAILED if wrong else Exit.GOOD


def _show(pinned: "list[PinnedImage]", as_json: bool) -> None:
    from benchhouse.schema.quantities import show_bytes

    if as_json:
        screen.as_json([item.to_dict() for item in pinned])
        return
    rows = [
        (item.path.name, item.state, show_bytes(item.image.size), item.image.sha256[:12], item.image.licence,
         item.image.source)
        for item in pinned
    ]  # fmt: skip
    screen.table(("image", "state", "size", "sha256", "licence", "source"), rows, whole=("image", "state", "sha256"))
