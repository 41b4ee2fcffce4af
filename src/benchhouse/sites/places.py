"""Find the workspace, the cache, and the site by argument, environment, or default."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

if TYPE_CHECKING:
    from benchhouse.schema.site import Site


def workspace(folder: str | os.PathLike[str] | None = None) -> WorkspaceFolder:
    """Return `folder`, otherwise $BENCH_WORKSPACE, otherwise the current folder."""
    return WorkspaceFolder(Path(folder or os.environ.get("BENCH_WORKSPACE") or ".").absolute())


def cache() -> Path:
    """Return $BENCH_CACHE_DIR, otherwise $XDG_CACHE_HOME/benchhouse, otherwise ~/.cache/benchhouse."""
    if given := os.environ.get("BENCH_CACHE_DIR"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse"


def nexus(given: str | Path | None, *starts: Path) -> Path | None:
    """Return the root of the nexus: `given`, $BENCH_NEXUS, or the nearest at or above `starts`; None without one."""
    from benchhouse.catalog.nexus_root import find_nexus

    path = find_nexus(given, os.environ, *starts)
    return near(path) if path else None


def near(path: Path) -> Path:
    """Return a path below the current folder relative to it, as a person would type it; others unchanged."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


def site(workspace: WorkspaceFolder, name: str | None = None) -> "Site":
    """Return the site by `name` or file, otherwise $BENCH_SITE, the workspace's site.yaml, or an empty profile."""
    from benchhouse.sites.profiles import find_site

    return find_site(name or os.environ.get("BENCH_SITE") or None, workspace.site)


def images_if_known(site: "Site") -> str:
    """Return the folder of images for callers that may not need it: empty if the site's variable is not set."""
    try:
        return str(images(site))
    except BenchError:
        return ""


def images(site: "Site") -> Path:
    """Return the folder of container images: as in the site, otherwise $WORK/containers, otherwise in the cache."""
    from benchhouse.schema.site import site_folder

    if folder := site_folder(site, "containers"):
        return folder.absolute()
    work = os.environ.get("WORK")
    return Path(work).absolute() / "containers" if work else cache() / "containers" / "images"
