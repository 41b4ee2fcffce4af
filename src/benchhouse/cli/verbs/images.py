"""Container images, pinned by digest: pin, pull, build, add, list, verify."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.images import LockedImage, PinnedImage, PinnedReference


command = commands.group(
    __doc__,
    "bench images pin vllm   what the recipe's image is, into images.lock.yaml",
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
    "Pin images of registries: the digest of NAME:TAG goes into images.lock.yaml of the workspace. Without a name, "
    "those of all recipes. What is pinned stays so without --update.",
    "bench images pin   every recipe that names a published image",
    "bench images pin vllm docker.io/library/postgres:17.6",
    "bench images pin --check   exit code 1 where a tag is another image by now",
    "bench images pin NAME:TAG@sha256:...   as it is, without asking the registry",
)
@click.argument(
    "names",
    nargs=-1,
    metavar="[RECIPE|NAME:TAG]...",
    shell_complete=commands.completing(lambda ws: ws.images.published()),
)
@click.option("--check", is_flag=True, help="Only compare with the registries; exit code 1 where a tag has moved.")
@click.option("--update", is_flag=True, help="Also what is pinned already: take what the tag is now.")
def pin(workspace: Workspace, names: tuple[str, ...], check: bool, update: bool, as_json: bool) -> int:
    if check and update:
        raise BenchError("--check only looks, and --update writes: give one of them")
    images, progress = workspace.images, screen.RunProgress()
    results = images.check(*names, progress=progress) if check else images.pin(*names, update=update, progress=progress)
    _show_references(results, as_json)
    return Exit.TRIAL_FAILED if any(item.state in ("failed", "moved") for item in results) else Exit.GOOD


def _show_references(results: "list[PinnedReference]", as_json: bool) -> None:
    if as_json:
        screen.as_json(results)
        return
    rows = [(item.reference, item.state, _short(item.digest), item.source, item.pinned) for item in results]
    screen.table(("image", "state", "digest", "source", "since"), rows, whole=("image", "digest"), spare=("since",))
    failures = {item.message: item.hint for item in results if item.state == "failed"}
    for message, hint in failures.items():
        screen.note(f"{message}\n  {hint}")
    for item in results:
        if item.state == "moved":
            take = f"bench images pin {item.reference} --update"
            screen.note(f"{item.reference} is {_short(item.current)} by now; to take that:  {take}")
    if fresh := [item for item in results if item.state in ("pinned", "updated")]:
        screen.note(f"next:  bench images pull docker://{fresh[0].reference}")


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 12]


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
    images = workspace.images
    _show(images.pinned(site), as_json, images.references(site))
    if not as_json:
        screen.note("check their bytes:  bench images verify;  and tags:  bench images pin --check")


@command.verb("Read all images again; exit code 1 where one differs from what was pinned.", "bench images verify")
@_site_option
def verify(workspace: Workspace, site: str | None, as_json: bool) -> int:
    pinned = workspace.images.verify(site)
    _show(pinned, as_json)
    wrong = [item for item in pinned if item.state != "unchanged"]
    for item in wrong:
        screen.note(f"{item.path} is {'gone' if item.state == 'gone' else 'not the one that was pinned'}")
    return Exit.TRIAL_FAILED if wrong else Exit.GOOD


def _show(pinned: "list[PinnedImage]", as_json: bool, locked: "Sequence[LockedImage]" = ()) -> None:
    """Print the image files, then the locked images that were not pulled."""
    names = {item.path: item.reference for item in locked}
    missing = [item for item in locked if not item.path]
    if as_json:
        files = [{**item.to_dict(), "reference": names.get(str(item.path), "")} for item in pinned]
        screen.as_json([*files, *({**asdict(item), "state": "not pulled"} for item in missing)])
        return
    rows = [
        (item.path.name, item.state, screen.size(item.image.size), item.image.sha256[:12], item.image.licence,
         names.get(str(item.path)) or item.image.source)
        for item in pinned
    ]  # fmt: skip
    rows += [("", "not pulled", "", "", "", f"{item.reference}@{_short(item.digest)}") for item in missing]
    screen.table(("image", "state", "size", "sha256", "licence", "source"), rows, whole=("image", "state", "sha256"))
