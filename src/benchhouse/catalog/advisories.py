"""Known vulnerabilities from a local export of OSV: a folder of JSON files, or a zip of them.

An empty export, or one with an unreadable file, is an error: what is missing would appear harmless.
"""

import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from benchhouse.catalog.nexus_requirements import normal_name
from benchhouse.schema.errors import BenchError
from benchhouse.schema.packages import SEVERITIES, PackageComponent, Severity, Vulnerability

_ECOSYSTEM = "pypi"
_LARGEST = 16 << 20
_LONGEST = 200
_WORDS: Mapping[str, Severity] = {"moderate": "medium"}
_FETCH = "fetch https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip where there is a network"


@dataclass
class Advisories:
    """The advisories of an export about some distributions."""

    count: int = 0
    """Number of all advisories about PyPI."""
    newest: str = ""
    """When the newest was written, UTC, ISO 8601."""
    by_name: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def of(self, component: PackageComponent) -> list[Vulnerability]:
        """Return the known flaws of a component, one each: advisories that refer to each other are merged."""
        flaws: list[list[dict[str, Any]]] = []
        for record in self.by_name.get(component.name, ()):
            if any(_affects(item, component.version) for item in _affected(record, component.name)):
                same = [flaw for flaw in flaws if any(_names(record) & _names(other) for other in flaw)]
                flaws = [flaw for flaw in flaws if flaw not in same]
                flaws.append([record, *(other for flaw in same for other in flaw)])
        return [_vulnerability(component, flaw) for flaw in flaws]


def read_advisories(path: Path, wanted: Collection[str]) -> Advisories:
    """Return the advisories of the distributions with these names; all others are only counted."""
    found = Advisories()
    for place, content in _files(path):
        record = _record(place, content)
        names = {normal_name(item["package"]["name"]) for item in _affected(record)}
        if not names or record.get("withdrawn"):
            continue
        found.count += 1
        found.newest = max(found.newest, str(record.get("modified", "")))
        for name in names & set(wanted):
            found.by_name[name].append(record)
    if not found.count:
        raise BenchError(f"{path} has no advisory about PyPI", _FETCH)
    if not found.newest:
        raise BenchError(f"the advisories of {path} don't say when they were written", _FETCH)
    return found


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                if file.stat().st_size > _LARGEST:
                    raise BenchError(f"{file} is larger than an advisory can be", _FETCH)
                yield str(file), file.read_bytes()
            return
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                if item.filename.endswith(".json"):
                    if item.file_size > _LARGEST:
                        raise BenchError(f"{item.filename} in {path} is larger than an advisory can be", _FETCH)
                    yield f"{path}/{item.filename}", archive.read(item)
    except FileNotFoundError as error:
        raise BenchError(f"there are no advisories: {path}", _FETCH) from error
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:
        raise BenchError(f"the advisories of {path} can't be read: {error}", _FETCH) from error


def _record(place: str, content: bytes) -> dict[str, Any]:
    try:
        record = from_json(content)
        if not isinstance(record, dict) or not isinstance(record["id"], str):
            raise ValueError("it has no id")
        for item in record.get("affected", ()):
            str(item.get("package", {}).get("name", ""))
        return record
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{place} is no advisory of OSV: {error}", _FETCH) from error


def _affected(record: Mapping[str, Any], name: str | None = None) -> list[dict[str, Any]]:
    """Return an advisory's entries for distributions of PyPI, or for one of them."""
    items = [item for item in record.get("affected", ()) if isinstance(item.get("package"), dict)]
    items = [item for item in items if str(item["package"].get("ecosystem", "")).lower() == _ECOSYSTEM]
    items = [item for item in items if isinstance(item["package"].get("name"), str)]
    return [item for item in items if name is None or normal_name(item["package"]["name"]) == name]


def _names(record: Mapping[str, Any]) -> set[str]:
    return {record["id"], *record.get("aliases", ())}


def _affects(affected: Mapping[str, Any], version: str) -> bool:
    """Apply the rules of OSV's format. If they cannot be applied, the version counts as affected."""
    from packaging.version import InvalidVersion, Version

    listed = affected.get("versions", ())
    try:
        mine = Version(version)
        if version in listed or any(_same(text, mine) for text in listed):
            return True
        ranges = [item for item in affected.get("ranges", ()) if item.get("type") in ("ECOSYSTEM", "SEMVER")]
        if not ranges:
            return not listed
        return any(_in_range(item.get("events", ()), mine) for item in ranges)
    except (InvalidVersion, TypeError, AttributeError):
        return True


def _same(text: str, version: Any) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return bool(Version(text) == version)
    except InvalidVersion:
        return False


def _in_range(events: Sequence[Mapping[str, str]], version: Any) -> bool:
    from packaging.version import Version

    def moment(event: Mapping[str, str]) -> tuple[Any, bool]:
        ((kind, text),) = event.items()
        return Version(text if text != "0" else "0.dev0"), kind == "introduced"

    inside = False
    for event in sorted((item for item in events if not item.keys() & {"limit"}), key=moment):
        ((kind, _),) = event.items()
        at, _ = moment(event)
        if kind == "introduced":
            inside = inside or version >= at
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _vulnerability(component: PackageComponent, flaw: Sequence[Mapping[str, Any]]) -> Vulnerability:
    first = flaw[-1]
    names = sorted({name for record in flaw for name in _names(record)} - {first["id"]})
    summary = next((text for record in flaw if (text := record.get("summary") or record.get("details"))), "")
    ranges = [
        item for record in flaw for affected in _affected(record, component.name) for item in affected.get("ranges", ())
    ]
    return Vulnerability(
        package=component.name,
        version=component.version,
        advisory=first["id"],
        aliases=names,
        severity=max((_severity(record) for record in flaw), key=SEVERITIES.index),
        fixed=sorted(
            {
                event["fixed"]
                for item in ranges
                if item.get("type") != "GIT"
                for event in item.get("events", ())
                if "fixed" in event
            }
        ),
        summary=str(summary).strip().partition("\n")[0][:_LONGEST],
    )


def _severity(record: Mapping[str, Any]) -> Severity:
    """Return the highest severity in an advisory, from its CVSS vectors and its word."""
    from cvss import CVSS2, CVSS3, CVSS4, CVSSError

    kinds = {"CVSS_V2": CVSS2, "CVSS_V3": CVSS3, "CVSS_V4": CVSS4}
    words = [str(record.get("database_specific", {}).get("severity", ""))]
    for item in record.get("severity", ()):
        try:
            vector = kinds[item["type"]](item["score"])
            words.append(vector.severity if isinstance(vector, CVSS4) else vector.severities()[0])
        except (CVSSError, KeyError, TypeError):
            continue
    known = [_WORDS.get(word.lower(), word.lower()) for word in words]
    return max((word for word in SEVERITIES if word in known), key=SEVERITIES.index, default="unknown")
