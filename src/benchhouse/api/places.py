"""Where things are: the workspace, the cache and the site, by argument, environment or default."""

import os
from pathlib import Path

from benchhouse.schema.layout import Workspace
from benchhouse.schema.site import Site


def workspace(folder: str | Path | None = None) -> Workspace:
    """`folder`, else $BENCH_WORKSPACE, else the current folder."""
    return Workspace(Path(folder or os.environ.get("BENCH_WORKSPACE") or ".").absolute())


def cache() -> Path:
    """$BENCH_CACHE_DIR, else $XDG_CACHE_HOME/benchhouse, else ~/.cache/benchhouse."""
    if given := os.environ.get("BENCH_CACHE_DIR"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse"


def site(workspace: Workspace, name: str | None = None) -> Site:
    """`name` or file, else $BENCH_SITE, else site.yaml of the workspace, else a machine of which nothing is said."""
    from benchhouse.catalog.sites import find_site

    return find_site(name or os.environ.get("BENCH_SITE") or None, workspace.site)
