"""The entry points of installed packages. Nothing is imported here."""

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
    """Return the lines of `benchhouse.<group>`, sorted. For a distribution that is on the path twice, the
    first counts."""
    return tuple(sorted(installed().get(f"benchhouse.{group}", ())))


ADO = ("ado.custom_experiments", "ado.actuators")


def ado_entries() -> tuple[EntryPointLine, ...]:
    """Return the experiments that packages offer to ado, without our own actuator, through which ado runs ours."""
    offered = [entry for group in ADO for entry in installed().get(group, ())]
    return tuple(sorted(entry for entry in offered if entry.distribution.lower() != "benchhouse"))


@cache
def installed() -> dict[str, set[EntryPointLine]]:
    """Return the lines of all our groups, from one pass over the installed distributions, which may be hundreds."""
    groups: dict[str, set[EntryPointLine]] = {}
    seen: set[str] = set()
    for package in importlib.metadata.distributions():
        ours = [point for point in package.entry_points if point.group.startswith("benchhouse.") or point.group in ADO]
        name, version = _name_and_version(package) if ours else ("", "")
        canonical = name.lower().replace("_", "-")
        if ours and canonical not in seen:  # the first on the path is the one that gets imported
            seen.add(canonical)
            for point in ours:
                entry = EntryPointLine(point.name, point.value, name, version, point.group)
                groups.setdefault(point.group, set()).add(entry)
    return groups


def _name_and_version(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    about = distribution.metadata  # parsed at every access
    return about["Name"] or "?", about["Version"] or "0"


@cache
def environment_stamp() -> str:
    """Return a digest that changes when a package is installed, removed, or replaced by another version."""
    return digest(sorted(set(map(_name_and_version, importlib.metadata.distributions()))))


def find_plug(group: str, name: str, kin: Collection[str] = ()) -> EntryPointLine:
    """Return the one entry point of that name, not imported. If there is none, the error lists `kin`, or all."""
    matches = [entry for entry in entries(group) if entry.name == name]
    kind = group.removesuffix("s")
    if not matches:
        from benchhouse.documents.problems import guess_hint

        every = entries(group)  # the purpose of names of packages without any of `kin` is unknown
        known = {entry.distribution for entry in every if entry.name in kin}
        names = sorted({entry.name for entry in every if entry.name in kin or entry.distribution not in known})
        hint = guess_hint(name, names)
        raise BenchError(f"no {kind} named '{name}' is installed", f"{hint}installed: {', '.join(names) or 'none'}")
    if len(matches) > 1:
        owners = ", ".join(sorted(f"{entry.distribution} {entry.distribution_version}" for entry in matches))
        raise BenchError(f"{len(matches)} packages offer the {kind} '{name}': {owners}", "uninstall all but one")
    return matches[0]


def plug(group: str, name: str) -> Any:
    """Load the one executor, runtime, or recipe of that name."""
    return load_object(find_plug(group, name).object)


def load_object(path: str) -> Any:
    """Import `module:attribute` (or `module`)."""
    module, _, attribute = path.partition(":")
    loaded = importlib.import_module(module)
    return attrgetter(attribute)(loaded) if attribute else loaded
