"""Entry points: which plugs the installed packages offer. Nothing is imported here."""

import importlib
import importlib.metadata
from collections.abc import Collection
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError


class EntryPointLine(NamedTuple):
    """One entry-point line of one installed distribution."""

    name: str
    object: str  # `module:attribute` or `module`
    distribution: str
    distribution_version: str
    group: str = "benchhouse.experiments"


def entries(group: str) -> tuple[EntryPointLine, ...]:
    """All lines of `benchhouse.<group>`, sorted; of a distribution that is on the path twice, those of the first."""
    return tuple(sorted(installed().get(f"benchhouse.{group}", ())))


ADO = ("ado.custom_experiments", "ado.actuators")


def ado_entries() -> tuple[EntryPointLine, ...]:
    """Experiments that packages offer to ado; not our own actuator, by which ado runs ours."""
    offered = [entry for group in ADO for entry in installed().get(group, ())]
    return tuple(sorted(entry for entry in offered if entry.distribution.lower() != "benchhouse"))


@cache
def installed() -> dict[str, set[EntryPointLine]]:
    """The lines of all our groups, from one look at every installed distribution: there may be hundreds."""
    groups: dict[str, set[EntryPointLine]] = {}
    seen: set[str] = set()
    for package in importlib.metadata.distributions():
        ours = [point for point in package.entry_points if point.group.startswith("benchhouse.") or point.group in ADO]
        name, version = _name_and_version(package) if ours else ("", "")
        canonical = name.lower().replace("_", "-")
        if ours and canonical not in seen:  # those that come first on the path are those that get imported
            seen.add(canonical)
            for point in ours:
                entry = EntryPointLine(point.name, point.value, name, version, point.group)
                groups.setdefault(point.group, set()).add(entry)
    return groups


def _name_and_version(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    about = distribution.metadata  # parsed with every look at it
    return about["Name"] or "?", about["Version"] or "0"


@cache
def environment_stamp() -> str:
    """Changes with every package that is installed, removed or replaced by another version."""
    return digest(sorted(set(map(_name_and_version, importlib.metadata.distributions()))))


def find_plug(group: str, name: str, kin: Collection[str] = ()) -> EntryPointLine:
    """The one entry point of that name, not yet imported. Where there is none, `kin` are told, or all without them."""
    matches = [entry for entry in entries(group) if entry.name == name]
    kind = group.removesuffix("s")
    if not matches:
        from benchhouse.documents.problems import guess_hint

        every = entries(group)  # what the names of packages that have none of `kin` are for is not known
        known = {entry.distribution for entry in every if entry.name in kin}
        names = sorted({entry.name for entry in every if entry.name in kin or entry.distribution not in known})
        hint = guess_hint(name, names)
        raise BenchError(f"no {kind} named '{name}' is installed", f"{hint}installed: {', '.join(names) or 'none'}")
    if len(matches) > 1:
        owners = ", ".join(sorted(f"{entry.distribution} {entry.distribution_version}" for entry in matches))
        raise BenchError(f"{len(matches)} packages offer the {kind} '{name}': {owners}", "uninstall all but one")
    return matches[0]


def plug(group: str, name: str) -> Any:
    """Load the one executor, runtime or recipe of that name."""
    return load_object(find_plug(group, name).object)


def load_object(path: str) -> Any:
    """Import `module:attribute` (or `module`)."""
    module, _, attribute = path.partition(":")
    loaded = importlib.import_module(module)
    return attrgetter(attribute)(loaded) if attribute else loaded
