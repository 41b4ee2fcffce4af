"""Container images, pinned by digest: pull, build, add, list, verify."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.sites import PinnedImage


command = commands.group(
    __doc__,
    "bench images pull docker://vllm/vllm-openai:v0.11.0   on a login node; prints the digest",
    "bench images add $WORK/containers/vllm.sif   pin an existing one",
    "bench images verify   exit code 1 where one has changed",
)
_site_option = click.option("--site", help="Site profile; images are in its `folders.containers`.")
_licence_option = click.option("--licence", default="", help="Licence, where the image has no label for it.")
_new_image_options = commands.together(
    click.option("--name", default="", help="Name of the .sif file."), _licence_option, _site_option
)


@command.verb(
    "Pull an image from a registry. A tag is resolved to its digest, which is pinned.",
    "bench images pull docker://vllm/vllm-openai:v0.11.0",
    "bench images pull docker://vllm/vllm-openai:v0.11.0 --name vllm",
)
@click.argument("source", metavar="docker://NAME[:TAG|@sha256:...]")
@_new_image_options
def pull(workspace: Workspace, /, source: str, as_json: bool, **settings: Any) -> None:
    _show_one(workspace.images.pull(source, progress=screen.RunProgress(), **settings), as_json)


@command.verb("Build an image from a definition file.", "bench images build vllm.def")
@click.argument("definition", metavar="FILE.def", type=commands.FILE)
@_new_image_options
def build(workspace: Workspace, /, definition: Path, as_json: bool, **settings: Any) -> None:
    _show_one(workspace.images.build(definition, **settings), as_json)


@command.verb("Pin an existing .sif file as it is now.", "bench images add containers/vllm.sif --licence Apache-2.0")
@click.argument("path", metavar="FILE.sif", type=commands.FILE)
@_licence_option
def add(workspace: Workspace, path: Path, licence: str, as_json: bool) -> None:
    _show_one(workspace.images.add(path, licence=licence), as_json)


def _show_one(pinned: "PinnedImage", as_json: bool) -> None:
    if as_json:
        screen.as_json(pinned.to_dict())
        return
    click.echo(pinned.path)
    screen.note(f"sha256 {pinned.image.sha256}")
    screen.note(f"next:  runtime: {{kind: apptainer, image: {pinned.path}}}")


@command.verb("List pinned images, from their record.", "bench images list")
@_site_option
def list_(workspace: Workspace, site: str | None, as_json: bool) -> None:
    _show(workspace.images.pinned(site), as_json)
    if not as_json:
        screen.note("check their bytes:  bench images verify")


@command.verb("Read all images again; exit code 1 where one differs from what was pinned.", "bench images verify")
@_site_option
def verify(workspace: Workspace, site: str | None, as_json: bool) -> int:
    pinned = workspace.images.verify(site)
    _show(pinned, as_json)
    wrong = [item for item in pinned if item.state != "unchanged"]
    for item in wrong:
        screen.note(f"{item.path} is {'gone' if item.state == 'gone' else 'not the one that was pinned'}")
    return Exit.TRIAL_FAILED if wrong else Exit.GOOD


def _show(pinned: "list[PinnedImage]", as_json: bool) -> None:
    if as_json:
        screen.as_json([item.to_dict() for item in pinned])
        return
    rows = [
        (item.path.name, item.state, screen.size(item.image.size), item.image.sha256[:12], item.image.licence,
         item.image.source)
        for item in pinned
    ]  # fmt: skip
    screen.table(("image", "state", "size", "sha256", "licence", "source"), rows, whole=("image", "state", "sha256"))
