"""Where the nexus is. Apart from its reader: `bench list` looks for one before anything slow is imported."""

from collections.abc import Mapping
from pathlib import Path

from benchhouse.schema.errors import BenchError


def is_nexus(folder: Path) -> bool:
    """Whether packages are in it: a folder called `packages` alone may be anybody's."""
    return any(folder.glob("packages/*/nexus.yaml"))


def holds_models_benchmark(folder: Path) -> bool:
    """Whether it is `packages/<package>/models/<model>/benchmark_instances/<name>`."""
    match [item.name for item in folder.absolute().parents][:5]:
        case ["benchmark_instances", _, "models", _, "packages"]:
            return True
    return False


def find_nexus(given: str | Path | None, environ: Mapping[str, str], *starts: Path) -> Path | None:
    """The root as said (`--nexus`, $BENCH_NEXUS), else the nearest at or above one of `starts`; None: there is none."""
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
