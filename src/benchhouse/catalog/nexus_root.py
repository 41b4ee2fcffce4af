"""Find the nexus. Separate from its reader, because `bench list` needs it before any slow import."""

from collections.abc import Mapping
from pathlib import Path

from benchhouse.schema.errors import BenchError


def is_nexus(folder: Path) -> bool:
    """Return whether the folder contains packages of a nexus; a folder named `packages` alone is not conclusive."""
    return any(folder.glob("packages/*/nexus.yaml"))


def holds_models_benchmark(folder: Path) -> bool:
    """Return whether the folder is `packages/<package>/models/<model>/benchmark_instances/<name>`."""
    match [item.name for item in folder.absolute().parents][:5]:
        case ["benchmark_instances", _, "models", _, "packages"]:
            return True
    return False


def find_nexus(given: str | Path | None, environ: Mapping[str, str], *starts: Path) -> Path | None:
    """Return the root as given (`--nexus`, $BENCH_NEXUS), or the nearest at or above `starts`; None without one."""
    if named := given or environ.get("BENCH_NEXUS"):
        root = Path(named)
        if not (root / "packages").is_dir():
            raise BenchError(f"{root} is no nexus: it has no folder packages/", "start one: bench new package NAME")
        return root
    for start in starts:
        here = start.absolute()
        for folder in (here, *here.parents):
            if is_nexus(folder):
                return folder
    return None
