"""Finds a program on this machine, and its version."""

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Recipe, fill

_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_ANSWER_S = 10.0


def locate(places: Iterable[str]) -> str | None:
    """Return the first that exists: `package:path/inside`, a path with `*` (the last of its matches), or a name on
    PATH."""
    return next(filter(None, map(_look, places)), None)


def _look(place: str) -> str | None:
    package, colon, inside = place.partition(":")
    if colon and not place.startswith("/"):
        spec = find_spec(package)
        roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
        return next((str(root / inside) for root in roots if os.access(root / inside, os.X_OK)), None)
    if "*" in place:
        matches = (path for path in glob.glob(os.path.expanduser(place)) if os.access(path, os.X_OK))  # noqa: PTH207, PTH111
        return max(matches, default=None)
    return shutil.which(place) or shutil.which(place, path=str(Path(sys.executable).parent))


def find_program(recipe: Recipe, chosen: str | None = None) -> str:
    """Return the program that the user names, otherwise the recipe's first existing one. Raises ExperimentFailed with
    advice."""
    if program := locate(recipe.program) if chosen is None else shutil.which(chosen):
        return program
    what = f"{recipe.program[0]!r} is not a program here" if recipe.program else "it comes as a container image alone"
    what += f"; {recipe.install}" if recipe.install else ""
    what += f"; or take its image: bench images pin {recipe.name}" if recipe.published else ""
    if chosen is not None:
        what = f"{chosen!r}, which program= names, is not a program here"
    raise ExperimentFailed("no_such_program", f"{recipe.name}: {what}")


def version_of(recipe: Recipe, chosen: str | None = None) -> str:
    """Return the version that the program reports; empty if it is missing or reports none."""
    try:
        program = find_program(recipe, chosen)
        command = [fill(word, {"program": program, "python": sys.executable}) for word in recipe.version_command]
        if not command:
            return ""
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False, stdin=subprocess.DEVNULL
        )
    except (ExperimentFailed, OSError, subprocess.TimeoutExpired):
        return ""
    version = _VERSION.search(completed.stdout + completed.stderr)
    return version[0] if version and not completed.returncode else ""
