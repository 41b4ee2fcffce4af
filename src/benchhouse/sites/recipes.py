"""Recipes of servers, and which of them can be started on this machine."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchhouse.catalog.recipes import FoundRecipe, list_recipes
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.image import find_pinned
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.recipe import Recipe
from benchhouse.sites import places


@dataclass(frozen=True)
class RecipeStatus:
    """A recipe, and what of it is installed here."""

    recipe: str
    """Its name; empty where its file can't be read."""
    version: str | None = None
    """Version of the installed program."""
    program: str | None = None
    """Path of the program; None where it is not installed."""
    image: str | None = None
    """Container image that it may be started from, as the recipe names it."""
    pinned: bool = False
    """Whether that image was pulled and pinned at this site."""
    install: str = ""
    """How to install the program."""
    licence: str = ""
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    """Default of each parameter; None where it must be given."""
    description: str = ""
    origin: str = ""
    """The file, or the distribution that ships it."""
    broken: str | None = None
    """Why its file can't be read."""


def list_recipe_status(workspace: WorkspaceFolder) -> list[RecipeStatus]:
    """All recipes by name, then those that can't be read."""
    good, broken = list_recipes(workspace.recipes)
    images = places.images_if_known(places.site(workspace))
    return [_status(item, images) for item in good] + [RecipeStatus("", broken=error.message) for error in broken]


def _status(found: FoundRecipe, images: str) -> RecipeStatus:
    from benchhouse.processes.programs import find_program, version_of

    recipe = found.recipe
    program = version = None
    with suppress(ExperimentFailed):
        program = find_program(recipe)
        version = version_of(recipe)
    if recipe.version_command and not version:  # an interpreter without the package is not the server
        program = None
    return RecipeStatus(
        recipe=recipe.name,
        version=version,
        program=program,
        image=recipe.image or None,
        pinned=bool(recipe.image and images and find_pinned(Path(images), recipe.image)),
        install=recipe.install,
        licence=recipe.licence,
        parameters=recipe.parameters,
        description=recipe.description,
        origin=found.origin,
    )


def recipe_text(recipe: Recipe) -> str:
    """A recipe as the content of its file."""
    return dump_yaml({"schema_version": 1, **recipe.model_dump(mode="json", exclude_defaults=True)})
