"""Experiments that are installed only in an isolated environment: described there once, cached by its digest.

The environment's Python runs `python -m benchhouse.catalog.isolated_experiments`, which prints the descriptions. Only
these are used here, to list, show, and plan; nothing of the package is imported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchhouse.catalog.entries import EntryPointLine, ado_entries, entries
from benchhouse.catalog.listing import Listed, describe_apart
from benchhouse.processes.durable import write_whole
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.version import __version__

_FORMAT = 1  # of a description: increased when its keys change


def kept(cache: Path, identity: str) -> list[Listed] | None:
    """Return the cached content of the environment with that digest; None if it was not described yet."""
    record = _read(_file(cache, identity))
    return [Listed(**item) for item in record["items"]] if record else None


def keep(cache: Path, identity: str, python: str, items: Sequence[Listed]) -> None:
    """Cache the content for later calls and processes; `python` exists as long as the environment does."""
    path = _file(cache, identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"python": python, "items": [asdict(item) for item in items]})
    write_whole(path, text, durable=False)  # a file that a power cut emptied is written again


def all_descriptions(cache: Path) -> list[Listed]:
    """Return everything in existing environments; for the same name and version, the latest description."""
    latest: dict[tuple[str, str], Listed] = {}
    files = [path for path in (cache / "described").glob("*.json") if path.name.endswith(_suffix())]
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        record = _read(path)
        if record and Path(record["python"]).exists():
            latest |= {(item["name"], item["version"]): Listed(**item) for item in record["items"]}
    return sorted(latest.values(), key=lambda item: (item.name, item.version))


def understand(printed: str, requirements: Sequence[str]) -> list[Listed]:
    """Parse what `main` printed in an environment with these requirements. Raise BenchError if that fails."""
    try:
        items = json.loads(printed.splitlines()[-1])
        return [replace(Listed(**item), environment=list(requirements)) for item in items]
    except (ValueError, TypeError, IndexError) as error:
        raise BenchError(f"the isolated environment did not say what is in it: {error}") from error


def describe_here() -> list[Mapping[str, Any]]:
    """Return all experiments of this environment that are not our own, with the schemas of their inputs."""
    theirs: list[EntryPointLine] = [
        item for item in entries("experiments") if item.distribution.lower() != "benchhouse"
    ]
    described = describe_apart([*theirs, *ado_entries()], whole=True)
    return [item for record in described.values() for item in record["items"]]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return record


def _file(cache: Path, identity: str) -> Path:
    return cache / "described" / f"{identity}{_suffix()}"


def _suffix() -> str:
    return f"-{digest([__version__, _FORMAT])[:8]}.json"


def main() -> None:
    print(json.dumps(describe_here()))


if __name__ == "__main__":
    main()
