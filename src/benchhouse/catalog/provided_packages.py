"""Check whether requirements provide a distribution: by name, inside a local package, or as a dependency."""

import re
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from benchhouse.catalog.nexus_requirements import index_name, normal_name

_ARCHIVE = re.compile(r"(?P<name>[A-Za-z0-9][\w.]*(?:-[A-Za-z][\w.]*)*)-\d.*\.(?:whl|tar\.gz|zip)")


def brings(requirements: Iterable[str], wanted: str, module: str) -> bool | None:
    """Return whether one of them is, contains, or depends on `wanted`; None if only an installer could determine it.

    A local wheel with the top-level `module` counts, whatever its name. The dependencies of a requirement are known if
    it is installed here.
    """
    unknown = False
    for requirement in requirements:
        name = _name(requirement)
        if name is None:
            unknown = True
        elif name == normal_name(wanted) or _has_module(requirement, module) or _depends(name, normal_name(wanted)):
            return True
    return None if unknown else False


def source_of(name: str) -> str:
    """Return a requirement for an installed distribution: its source folder or file, otherwise name and version."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return name
    origin = re.search(r'"url": *"file://([^"]+)"', package.read_text("direct_url.json") or "")
    return origin[1] if origin else f"{package.name}=={package.version}"


def _name(requirement: str) -> str | None:
    """Return the normalized name; None if only the source states it."""
    path = Path(requirement.partition("[")[0].strip())
    if match := _ARCHIVE.fullmatch(path.name.partition("#")[0]):
        return normal_name(match["name"])
    if path.is_absolute():
        return _project_name(path)
    return index_name(requirement) or None


def _project_name(folder: Path) -> str | None:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return None
    name = project.get("name")
    return normal_name(name) if isinstance(name, str) else None


def _has_module(requirement: str, module: str) -> bool:
    path = Path(requirement)
    if path.suffix != ".whl" or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as wheel:
            return any(name == f"{module}.py" or name.startswith(f"{module}/") for name in wheel.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _depends(name: str, wanted: str) -> bool:
    seen, todo = set[str](), [name]
    while todo:
        current = todo.pop()
        if current == wanted:
            return True
        if current in seen:
            continue
        seen.add(current)
        try:
            lines = distribution(current).requires or []
        except PackageNotFoundError:
            continue
        todo += [index_name(line.partition(";")[0].strip()) for line in lines if "extra ==" not in line]
    return False
