"""Where the program of a recipe is on this machine, and which version it has."""

import re
import shutil
import subprocess
import sys

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.programs import locate
from benchhouse.schema.recipe import Recipe, fill

_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_ANSWER_S = 10.0


def find_program(recipe: Recipe) -> str:
    """The first of the recipe's programs that is here. Raises ExperimentFailed, saying how to get it."""
    if program := locate(recipe.program):
        return program
    what = f"{recipe.program[0]!r} is not a program here" if recipe.program else "it comes as a container image alone"
    said = f"{recipe.name}: {what}"
    raise ExperimentFailed(
        "no_such_program", f"{said}{f'; {recipe.install}' if recipe.install else ''}", retryable=False
    )


def is_here(recipe: Recipe) -> bool:
    return locate(recipe.program) is not None


def chosen_program(recipe: Recipe, chosen: str | None) -> str:
    """The one that the user names, else the first that is here."""
    if chosen is None:
        return find_program(recipe)
    found = shutil.which(chosen)
    if found is None:
        raise ExperimentFailed(
            "no_such_program",
            f"{recipe.name}: {chosen!r}, which program= names, is not a program here",
            retryable=False,
        )
    return found


def version_of(recipe: Recipe, chosen: str | None = None) -> str:
    """The version that the program says it has; empty where it is not here or does not say."""
    try:
        program = chosen_program(recipe, chosen)
        command = [fill(word, {"program": program, "python": sys.executable}) for word in recipe.version_command]
        if not command:
            return ""
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False, stdin=subprocess.DEVNULL
        )
    except (ExperimentFailed, OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(said.stdout + said.stderr)
    return found[0] if found and not said.returncode else ""
