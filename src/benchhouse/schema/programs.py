"""Where a program is on this machine: in a Python package, in a folder of the distribution, or on PATH."""

import glob
import os
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


def locate(places: Iterable[str]) -> str | None:
    """The first that is here: `package:path/inside`, a path with `*` (the last of its matches), or a name on PATH."""
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
