"""Scans of experiment packages: their components, known vulnerabilities, and whether trusted.yaml lets them run.

A scan that failed allows nothing, and neither does an old one.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from pydantic import ValidationError

from benchhouse.catalog.advisories import read_advisories
from benchhouse.catalog.components import lock_digest
from benchhouse.evidence.writing import now, write_model, write_text
from benchhouse.processes.durable import make_folders
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.packages import PackageComponent, PackagePolicy, PackageScan, Vulnerability

_CLOCKS_S = 86400.0  # most by which clocks may differ
Subject = tuple[str, Sequence[PackageComponent]]
"""The name of the scanned package or environment, and its components."""


def scan(workspace: WorkspaceFolder, policy: PackagePolicy, subject: Subject) -> PackageScan:
    """Scan all components, and store the result with the parts list. A bad source of advisories never raises: it
    becomes the failure of the scan."""
    from benchhouse.catalog.sbom import sbom

    name, components = subject
    seen = PackageScan(time=now(), subject=name, lock_digest=lock_digest(components), components=list(components))
    try:
        advisories = read_advisories(workspace.root / (policy.advisories or ""), {item.name for item in components})
        age_s = (datetime.now(UTC) - _moment(advisories.newest)).total_seconds()
        if age_s < -_CLOCKS_S:
            raise BenchError(f"the newest advisory is of {advisories.newest}, which is not yet")
        if age_s > policy.max_age:
            raise BenchError(f"the newest advisory is {age_s / 86400:.0f} days old: fetch the export anew")
        flaws = [item for component in components for item in advisories.of(component)]
        known = {"advisories": advisories.count, "newest_advisory": advisories.newest, "vulnerabilities": flaws}
        seen = seen.model_copy(update=known)
    except BenchError as error:
        seen = seen.model_copy(update={"failure": error.message})
    try:
        make_folders(workspace.scans)
        write_text(workspace.scans / f"{seen.lock_digest}.cdx.json", sbom(name, components))
        write_model(workspace.scans / f"{seen.lock_digest}.json", seen)
    except OSError as error:
        raise unwritable(workspace.scans, error) from error
    return seen


def kept(workspace: WorkspaceFolder, components: Sequence[PackageComponent]) -> PackageScan | None:
    """Return the last scan of exactly these components; None if there is none or it can't be read."""
    try:
        path = workspace.scans / f"{lock_digest(components)}.json"
        return PackageScan.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def verdict(workspace: WorkspaceFolder, policy: PackagePolicy, components: Sequence[PackageComponent]) -> list[str]:
    """Return why these may not run, by their last scan; empty if they may."""
    seen = kept(workspace, components)
    return ["it was not scanned"] if seen is None else refusals(policy, seen, datetime.now(UTC))


def refusals(policy: PackagePolicy, seen: PackageScan, moment: datetime) -> list[str]:
    """Return why a scan allows nothing at that moment; empty if it does."""
    if seen.failure:
        return [f"the scan could not look: {seen.failure}"]
    oldest = min(_moment(seen.time), _moment(seen.newest_advisory))
    if moment - oldest > timedelta(seconds=policy.max_age):
        return [f"the scan of {seen.time[:10]} is too old, or its advisories are: scan again"]
    flaws = [item for item in seen.vulnerabilities if item.severity not in policy.severities]
    reasons = [_told(item) for item in flaws if not _excepted(policy, item, moment.date())]
    return reasons + [
        f"{item.name} {item.version} has {item.licence or 'no licence that it tells'}, which is not among the licences"
        for item in seen.components
        if policy.licences and not _may_have(policy, item, moment.date())
    ]


def _told(item: Vulnerability) -> str:
    mended = f", fixed in {', '.join(item.fixed)}" if item.fixed else ", not fixed"
    also = f" ({', '.join(item.aliases[:2])})" if item.aliases else ""
    return f"{item.package} {item.version} has {item.advisory}{also}, severity {item.severity}{mended}"


def _excepted(policy: PackagePolicy, item: Vulnerability, today: date) -> bool:
    names = {item.advisory, *item.aliases}
    return any(
        rule.package.lower() == item.package and rule.advisory in names and today <= date.fromisoformat(rule.until)
        for rule in policy.exceptions
    )


def _may_have(policy: PackagePolicy, item: PackageComponent, today: date) -> bool:
    allowed = {name.lower() for name in policy.licences}
    allowed |= {
        (rule.licence or "").lower()
        for rule in policy.exceptions
        if rule.licence is not None and rule.package.lower() == item.name and today <= date.fromisoformat(rule.until)
    }
    text = item.licence.lower()
    if text in allowed:
        return True
    choices = text.split(" or ") if "(" not in text else []
    return any(all(part.strip() in allowed for part in choice.split(" and ")) for choice in choices)


def _moment(stamp: str) -> datetime:
    """Return a time from a file; an unreadable one counts as the oldest possible."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
