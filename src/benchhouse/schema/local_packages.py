"""Packages that have to be built: which of them may be built, and how folders are built in their current state."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from benchhouse.schema.errors import BenchError

_DIRECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*@\s*(.+)")
_ARCHIVE_NAME = re.compile(r"([A-Za-z0-9._-]+?)-[0-9][^-]*\.(?:tar\.gz|zip)")


@dataclass(frozen=True)
class SourceBuilds:
    """The packages that may be built from source. Building a package runs its code, so all others must be wheels."""

    names: tuple[str, ...] = ()
    """Names of distributions; `all` allows every one."""
    folder: Path | None = None
    """The workspace: packages in files or folders inside it may be built too."""

    def options(self, requirements: Iterable[str]) -> list[str]:
        """Return the options with which uv and pip build only these packages."""
        if "all" in self.names:
            return []
        sources = filter(None, map(_source, requirements))
        names = sorted({*self.names, *(item.name for item in sources if item.name and self._is_inside(item.path))})
        return ["--only-binary=:all:", *(f"--no-binary={name}" for name in names)]

    def check(self, requirements: Iterable[str]) -> None:
        """Raise BenchError for an option of the installer, and for an address or path of a source package that may not
        be built.

        The installer itself rejects packages of an index that have no wheel.
        """
        for item in requirements:
            if item.lstrip().startswith("-") or len(item.splitlines()) > 1:
                raise BenchError(f"{item[:80]!r} is not a requirement", "NAME==VERSION, an address, or a path")
            source = _source(item)
            if source and not self._allows(source):
                named = f"[{source.name}]" if source.name else "all"
                raise BenchError(
                    f"{item[:200]} is a source package, and building it would run its code",
                    f"give a wheel, or allow it in workspace.yaml: build_from_source: {named}",
                )

    def _allows(self, source: "_Source") -> bool:
        named = {re.sub(r"[-_.]+", "-", name).lower() for name in (source.name, "all")}
        return bool(named & {re.sub(r"[-_.]+", "-", name).lower() for name in self.names}) or self._is_inside(
            source.path
        )

    def _is_inside(self, path: Path | None) -> bool:
        return bool(path and self.folder and path.resolve().is_relative_to(self.folder.resolve()))


@dataclass(frozen=True)
class _Source:
    """A package that has to be built, as a requirement names it."""

    name: str
    """Empty if it is not known before the package is built."""
    path: Path | None
    """None if it is on another machine."""


def _source(requirement: str) -> _Source | None:
    """Return the source package that a requirement leads to; None for a wheel or a name that an index knows."""
    direct = _DIRECT.fullmatch(requirement.partition(" ;")[0].strip())
    name, address = direct.groups() if direct else ("", requirement.partition("[")[0].strip())
    parts = urlsplit(address)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else None if "://" in address else Path(address)
    if parts.path.endswith(".whl") or (path is not None and not direct and not path.exists()):
        return None
    if not name and path is not None and path.is_dir():
        name = _name(path) or ""
    elif not name and (archive := _ARCHIVE_NAME.fullmatch(Path(parts.path).name)):
        name = archive[1]
    return _Source(name, path)


def rebuilt(lines: Iterable[str]) -> list[str]:
    """Return uv options that rebuild the folders among requirements or the lines of a lock.

    Without them, uv reuses a wheel as long as the folder's pyproject.toml is unchanged, even if its code has changed.
    If a folder's package name is unknown, nothing is reused.
    """
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
