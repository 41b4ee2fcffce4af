"""Entry points: which plugs the installed packages offer. Nothing is imported here."""

import importlib.metadata
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError


class Entry(NamedTuple):
    """One entry-point line of one installed distribution."""

    name: str
    object: str  # `module:attribute` or `module`
    distribution: str
    distribution_version: str
    group: str = "benchhouse.experiments"


def entries(group: str) -> tuple[Entry, ...]:
    """All lines of `benchhouse.<group>`, sorted; of a distribution that is on the path twice, those of the first."""
    return tuple(sorted(installed().get(f"benchhouse.{group}", ())))


ADO = ("ado.custom_experiments", "ado.actuators")


def ado_entries() -> tuple[Entry, ...]:
    """Experiments that packages offer to ado; not our own actuator, by which ado runs ours."""
    offered = [entry for group in ADO for entry in installed().get(group, ())]
    return tuple(sorted(entry for entry in offered if entry.distribution.lower() != "benchhouse"))


@cache
def installed() -> dict[str, set[Entry]]:
    """The lines of all our groups, from one look at every installed distribution: there may be hundreds."""
    groups: dict[str, set[Entry]] = {}
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        ours = [point for point in distribution.entry_points if _is_ours(point.group)]
        name, version = _name_and_version(distribution) if ours else ("", "")
        canonical = name.lower().replace("_", "-")
        if ours and canonical not in seen:  # those that come first on the path are those that get imported
            seen.add(canonical)
            for point in ours:
                entry = Entry(point.name, point.value, name, version, point.group)
                groups.setdefault(point.group, set()).add(entry)
    return groups


def _is_ours(group: str) -> bool:
    return group.startswith("benchhouse.") or group in ADO


def _name_and_version(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    about = distribution.metadata  # parsed with every look at it
    return about["Name"] or "?", about["Version"] or "0"


def environment_stamp() -> str:
    """Changes with every package that is installed, removed or replaced by another version."""
    return digest(sorted(set(map(_name_and_version, importlib.metadata.distributions()))))


def find_plug(group: str, name: str, kin: Collection[str] = ()) -> Entry:
    """The one entry point of that name, not yet imported. Where there is none, `kin` are told, or all without them."""
    matches = [entry for entry in entries(group) if entry.name == name]
    kind = group.removesuffix("s")
    if not matches:
        from benchhouse.documents.problems import guess_hint

        names = _names(group, kin)
        hint = guess_hint(name, names)
        raise BenchError(f"no {kind} named '{name}' is installed", f"{hint}installed: {', '.join(names) or 'none'}")
    if len(matches) > 1:
        owners = ", ".join(sorted(f"{entry.distribution} {entry.distribution_version}" for entry in matches))
        raise BenchError(f"{len(matches)} packages offer the {kind} '{name}': {owners}", "uninstall all but one")
    return matches[0]


def _names(group: str, kin: Collection[str]) -> list[str]:
    """All, or those of `kin` and of packages that have none of them: what those are for is not known."""
    found = entries(group)
    known = {entry.distribution for entry in found if entry.name in kin}
    return sorted({entry.name for entry in found if entry.name in kin or entry.distribution not in known})


def plug(group: str, name: str) -> Any:
    """Load the one executor, runtime or recipe of that name."""
    return load_object(find_plug(group, name).object)


def load_object(path: str) -> Any:
    """Import `module:attribute` (or `module`)."""
    import importlib

    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found
