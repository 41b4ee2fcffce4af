"""Where things are: the workspace, the cache and the site, by argument, environment or default."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

if TYPE_CHECKING:
    from benchhouse.schema.site import Site


def workspace(folder: str | os.PathLike[str] | None = None) -> WorkspaceFolder:
    """`folder`, else $BENCH_WORKSPACE, else the current folder."""
    return WorkspaceFolder(Path(folder or os.environ.get("BENCH_WORKSPACE") or ".").absolute())


def cache() -> Path:
    """$BENCH_CACHE_DIR, else $XDG_CACHE_HOME/benchhouse, else ~/.cache/benchhouse."""
    if given := os.environ.get("BENCH_CACHE_DIR"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse"


def nexus(given: str | Path | None, *starts: Path) -> Path | None:
    """The root of the nexus: `given`, else $BENCH_NEXUS, else the nearest at or above `starts`; None: there is none."""
    from benchhouse.catalog.nexus_root import find_nexus

    path = find_nexus(given, os.environ, *starts)
    return near(path) if path else None


def near(path: Path) -> Path:
    """As a person would type it from here, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


def site(workspace: WorkspaceFolder, name: str | None = None) -> "Site":
    """`name` or file, else $BENCH_SITE, else site.yaml of the workspace, else a machine of which nothing is said."""
    from benchhouse.sites.profiles import find_site

    return find_site(name or os.environ.get("BENCH_SITE") or None, workspace.site)


def images_if_known(site: "Site") -> str:
    """The same for whoever may not need any: empty where the site's variable is not set."""
    try:
        return str(images(site))
    except BenchError:
        return ""


def images(site: "Site") -> Path:
    """Where images of containers lie: as the site says, else $WORK/containers, else in the cache."""
    from benchhouse.schema.site import site_folder

    if folder := site_folder(site, "containers"):
        return folder.absolute()
    work = os.environ.get("WORK")
    return Path(work).absolute() / "containers" if work else cache() / "containers" / "images"
