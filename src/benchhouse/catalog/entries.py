"""Entry points: which plugs the installed packages offer. Nothing is imported here."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from benchhouse.schema.errors import BenchError


@dataclass(frozen=True, order=True)
class Entry:
    """One entry-point line of one installed distribution."""

    name: str
    object: str  # `module:attribute` or `module`
    distribution: str
    distribution_version: str


@cache
def entries(group: str) -> tuple[Entry, ...]:
    """All lines of `benchhouse.<group>`, sorted; a distribution that is on the path twice counts once."""
    from importlib.metadata import distributions

    found: dict[tuple[str, str, str], Entry] = {}
    for distribution in distributions():
        text = distribution.read_text("entry_points.txt")
        if not text or f"benchhouse.{group}" not in text:
            continue
        name = distribution.metadata["Name"]
        for point in distribution.entry_points:
            if point.group == f"benchhouse.{group}":
                entry = Entry(point.name, point.value, name, distribution.version)
                found.setdefault((name.lower().replace("_", "-"), point.name, point.value), entry)
    return tuple(sorted(found.values()))


def plug(group: str, name: str) -> Any:
    """Load the one driver, executor or runtime of that name."""
    matches = [entry for entry in entries(group) if entry.name == name]
    kind = group.removesuffix("s")
    if not matches:
        from benchhouse.schema.problems import did_you_mean

        names = sorted({entry.name for entry in entries(group)})
        guess = did_you_mean(name, names)
        hint = f"did you mean '{guess}'? " if guess else ""
        raise BenchError(f"no {kind} named '{name}' is installed", f"{hint}installed: {', '.join(names) or 'none'}")
    if len(matches) > 1:
        owners = ", ".join(sorted(f"{entry.distribution} {entry.distribution_version}" for entry in matches))
        raise BenchError(f"{len(matches)} packages offer the {kind} '{name}': {owners}", "uninstall all but one")
    return load_object(matches[0].object)


def load_object(path: str) -> Any:
    """Import `module:attribute` (or `module`)."""
    import importlib

    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found
