"""Packages that are folders of this machine: uv is to build them as they are now, not as they once were."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote


def rebuilt(lines: Iterable[str]) -> list[str]:
    """Options of uv for requirements or a lock: it takes the wheel that it once built of a folder while the folder's
    pyproject.toml is the same, whatever became of the code. Where a folder does not tell its name, nothing is taken."""
    names = [_name(folder) for line in lines if (folder := _folder(line)) is not None]
    return ["--refresh"] if None in names else [f"--refresh-package={name}" for name in names]


def _folder(line: str) -> Path | None:
    place = line.partition(" @ ")[2] or line
    place = place.partition(" #")[0].partition("[")[0].strip()
    if place.startswith("file:"):
        place = unquote(place.removeprefix("file:").replace("//", "", 1))
    return Path(place) if "/" in place and Path(place).is_dir() else None


def _name(folder: Path) -> str | None:
    try:
        name = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None
