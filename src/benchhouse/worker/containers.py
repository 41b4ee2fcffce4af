"""A server inside a container, where its program is not installed and its image is pinned here."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.schema.container import Bind, Entry, parse_bind
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.image import Image, find_pinned
from benchhouse.schema.recipe import Recipe, fill


@dataclass(frozen=True)
class Container:
    """Turns the commands of a recipe into those that run in its image."""

    recipe: Recipe
    path: Path
    image: Image

    def places(self) -> dict[str, str]:
        """Programs are found by the image's own PATH."""
        named = next((Path(item.rpartition(":")[2]).name for item in self.recipe.program if "*" not in item), "")
        return {"program": named, "python": "python3"}

    def command(self, arguments: Sequence[str], places: dict[str, str], gpus: bool) -> list[str]:
        """What checks the image and then becomes `arguments` in it, with the server's folder and binds to be seen."""
        folder = places["folder"]
        binds, variables = [Bind(folder, folder), *find_binds(self.recipe, places)], tuple(self.recipe.environment)
        entry = Entry(str(self.path), self.image, binds, workdir=folder, gpus=gpus, variables=variables)
        try:
            return ["bash", "-c", entry.script([fill(word, places) for word in arguments]), "enter"]
        except BenchError as error:
            raise ExperimentFailed("bad_recipe", error.message) from error


def find_binds(recipe: Recipe, places: dict[str, str]) -> list[Bind]:
    """What the recipe wants to see; raises ExperimentFailed where that is not there."""
    try:
        binds = [parse_bind(fill(bind, places)) for bind in recipe.binds]
    except BenchError as error:
        raise ExperimentFailed("bad_bind", f"{recipe.name}: {error.message}") from error
    for bind in binds:
        if not Path(bind.source).exists():
            raise ExperimentFailed("no_such_bind", f"{recipe.name} needs {bind.source}, which is not there")
    return binds


def find_container(recipe: Recipe, images: str) -> Container:
    """Its image as it was pinned. Raises ExperimentFailed, saying how to bring it."""
    pinned = find_pinned(Path(images), recipe.image) if images else None
    lack = f"{recipe.name}: its program is not here, and"
    if pinned is None:
        where = f"its image is not pinned in {images or 'any folder'}; bench images pull {recipe.image}"
        raise ExperimentFailed("no_such_program", f"{lack} {where}")
    if not (shutil.which("apptainer") or shutil.which("singularity")):
        raise ExperimentFailed("no_such_program", f"{lack} without apptainer on PATH its image can't be entered")
    return Container(recipe, *pinned)
