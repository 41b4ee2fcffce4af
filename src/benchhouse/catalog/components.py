"""The distributions of a package: itself and its dependencies, as installed."""

from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path

from benchhouse.catalog.nexus_requirements import normal_name
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.packages import PackageComponent

_OURS = "benchhouse"
_LONGEST_LICENCE = 100


def components_of(distribution: str) -> list[PackageComponent]:
    """Return a distribution of this environment with its dependencies, except benchhouse and what only it needs.

    Raise BenchError if a dependency is not installed, because its own dependencies are then unknown.
    """
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError as error:
        raise BenchError("packages can't be scanned here", "pip install 'benchhouse[scan]'") from error
    installed = {normal_name(item.metadata["Name"]): item for item in reversed(list(distributions()))}
    found: dict[str, Distribution] = {}
    waiting = [(normal_name(distribution), frozenset[str](), distribution)]
    seen = set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras, by = waiting.pop()
        if name == _OURS or (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name not in installed:
            raise BenchError(f"{name}, which {by} needs, is not installed here", f"uv pip install {name}")
        found[name] = installed[name]
        for line in installed[name].requires or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement as error:
                raise BenchError(f"{name} needs {line[:100]!r}, which is no requirement") from error
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                waiting.append((normal_name(needed.name), frozenset(needed.extras), name))
    return sorted(map(_component, found.values()), key=lambda item: item.name)


def components_in(site: Path) -> list[PackageComponent]:
    """Return all distributions of a `site-packages` folder, except benchhouse."""
    found = {normal_name(item.metadata["Name"]): item for item in distributions(path=[str(site)])}
    return sorted((_component(item) for name, item in found.items() if name != _OURS), key=lambda item: item.name)


def lock_digest(components: Sequence[PackageComponent]) -> str:
    """Return a digest that is the same for the same versions everywhere."""
    return digest([[item.name, item.version] for item in components])[:16]


def _component(item: Distribution) -> PackageComponent:
    return PackageComponent(
        name=normal_name(item.metadata["Name"]), version=item.version, licence=_licence(item.metadata)
    )


def _licence(metadata: PackageMetadata) -> str:
    """Return the SPDX expression, otherwise the names of classifiers, otherwise the first line of the license field."""
    fields = {key: value for key in ("License-Expression", "License") if (value := metadata.get(key))}  # type: ignore[attr-defined]
    if expression := fields.get("License-Expression"):
        return str(expression)
    if names := list(_classified(metadata)):
        return " AND ".join(names)
    line = str(fields.get("License", "")).strip().partition("\n")[0].strip()
    return line if len(line) <= _LONGEST_LICENCE and line.upper() != "UNKNOWN" else ""


def _classified(metadata: PackageMetadata) -> Iterator[str]:
    for text in metadata.get_all("Classifier") or ():
        if text.startswith("License :: ") and text != "License :: OSI Approved":
            yield text.rpartition(" :: ")[2]
