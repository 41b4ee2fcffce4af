"""Find recipes: of packages by entry point, and YAML files in `recipes/` of a workspace or given by their path."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchhouse.catalog.entries import entries, find_plug, load_object
from benchhouse.documents.problems import guess_hint
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.recipe import Recipe

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class FoundRecipe:
    recipe: Recipe
    origin: str  # the file, or the distribution


def load_recipe(path: Path) -> Recipe:
    """Return a recipe from its file. Raise every mistake with its place."""
    return validated(load_yaml(path), Recipe)


def find_recipe(name: str, *folders: Path) -> FoundRecipe:
    """Return a recipe by its file or its name; a file of `folders` has precedence over a package."""
    if name.endswith(_SUFFIXES) or "/" in name:
        path = next((path for path in (folder / name for folder in (Path(), *folders)) if path.is_file()), Path(name))
        return FoundRecipe(load_recipe(path), str(path.absolute()))
    for path in _files(folders):
        if path.stem == name:
            return FoundRecipe(load_recipe(path), str(path.absolute()))
    if name not in {entry.name for entry in entries("recipes")}:
        known = sorted({*(path.stem for path in _files(folders)), *(entry.name for entry in entries("recipes"))})
        hint = guess_hint(name, known)
        raise NotFoundError(f"there is no recipe '{name}'", f"{hint}see: bench servers list")
    entry = find_plug("recipes", name)
    return FoundRecipe(load_object(entry.object), entry.distribution)


def list_recipes(*folders: Path) -> tuple[list[FoundRecipe], list[BenchError]]:
    """Return all recipes that can be found by name, and the errors of those that cannot be read."""
    recipes: dict[str, FoundRecipe] = {}
    broken: list[BenchError] = []
    names = [path.stem for path in _files(folders)] + [entry.name for entry in entries("recipes")]
    for name in dict.fromkeys(names):
        try:
            recipes[name] = find_recipe(name, *folders)
        except BenchError as error:
            broken.append(error)
    return [recipes[name] for name in sorted(recipes)], broken


def _files(folders: tuple[Path, ...]) -> list[Path]:
    """Return non-empty files: before `bench servers show NAME > recipes/NAME.yaml`, the shell creates an empty one."""
    paths = [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in _SUFFIXES]
    return [path for path in paths if path.is_file() and path.stat().st_size]


def parameter_faults(recipe: Recipe, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield unknown parameters, and required ones that are not given, each with the message."""
    for name in given:
        if name not in (*recipe.parameters, "program"):
            yield name, f"the recipe {recipe.name} has no parameter '{name}'"
    for name, default in recipe.parameters.items():
        if default is None and name not in given:
            yield name, f"the recipe {recipe.name} needs the parameter '{name}'"
