"""Scans of experiment packages: what is in them, what is known of it, and whether trusted.yaml lets it run.

A scan that could not look lets nothing through, and neither does one that is old.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from benchhouse.catalog.advisories import read_advisories
from benchhouse.catalog.components import components_in, components_of, lock_digest
from benchhouse.catalog.entries import plug
from benchhouse.evidence.writing import now, write_model, write_text
from benchhouse.runs.trusted import read_trusted
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.packages import PackageComponent, PackagePolicy, PackageScan, Vulnerability
from benchhouse.schema.protocols import Runtime

if TYPE_CHECKING:
    from benchhouse.runs.preparation import Prepared

_OURS = "benchhouse"
_CLOCKS_S = 86400.0  # by which clocks may differ
Subject = tuple[str, Sequence[PackageComponent]]
"""What is looked at, and what is in it."""


def policy_of(workspace: WorkspaceFolder) -> PackagePolicy | None:
    """What `packages:` of trusted.yaml says; None where it says nothing."""
    trusted = read_trusted(workspace)
    return trusted.packages if trusted else None


def check(workspace: WorkspaceFolder, prepared: "Prepared") -> str:
    """Raises where trusted.yaml does not let the packages of a run through; a warning where it only advises.

    Experiments that come with this Benchhouse are no packages.
    """
    policy = policy_of(workspace)
    if policy is None or all(item.distribution == _OURS for item in prepared.listed):
        return ""
    try:
        subjects, reasons = run_subjects(workspace, prepared), []
    except BenchError as error:
        subjects, reasons = [], [error.message]
    for subject, components in subjects:
        reasons += [f"{subject}: {text}" for text in verdict(workspace, policy, components)]
    if not reasons:
        return ""
    message = "\n  - ".join(["packages that trusted.yaml does not let run:", *reasons])
    if policy.scans == "advised":
        return message
    hint = f"bench packages scan -c {prepared.file.document.path}; exceptions: packages: in {workspace.trusted}"
    raise BenchError(message, hint, Exit.NEEDS_APPROVAL)


def run_subjects(workspace: WorkspaceFolder, prepared: "Prepared") -> list[Subject]:
    """What a scenario would run: the experiment's distribution here, or all of an isolated environment."""
    subjects: dict[str, Subject] = {}
    for spec in prepared.plan.runtimes:
        if spec.kind == "process":
            for name in dict.fromkeys(item.distribution for item in prepared.listed if item.distribution != _OURS):
                subjects[name] = name, components_of(name)
        elif spec.kind == "venv":
            runtime: Runtime = plug("runtimes", spec.kind)()
            place = prepared.place(workspace)
            runtime.prepare(spec, place)
            folder = Path(runtime.python(spec, place)[0]).parent.parent
            name = f"environment of {', '.join(spec.requirements)}"
            subjects[name] = name, components_in(next((folder / "lib").glob("python*/site-packages")))
        else:
            raise BenchError(f"what is inside of an image ({spec.kind}) can't be scanned", "run it in a venv")
    return list(subjects.values())


def scan(workspace: WorkspaceFolder, policy: PackagePolicy, subject: Subject) -> PackageScan:
    """Look through all that a package brings, and keep what was seen with the parts list. Never raises for a bad
    source of advisories: that is what the scan then says."""
    from benchhouse.catalog.sbom import sbom

    name, components = subject
    seen = PackageScan(time=now(), subject=name, lock_digest=lock_digest(components), components=list(components))
    try:
        advisories = read_advisories(workspace.root / policy.advisories, {item.name for item in components})
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
        workspace.scans.mkdir(parents=True, exist_ok=True)
        write_text(workspace.scans / f"{seen.lock_digest}.cdx.json", sbom(name, components))
        write_model(workspace.scans / f"{seen.lock_digest}.json", seen)
    except OSError as error:
        raise unwritable(workspace.scans, error) from error
    return seen


def kept(workspace: WorkspaceFolder, components: Sequence[PackageComponent]) -> PackageScan | None:
    """The last scan of exactly these; None where there is none, or where it can't be read."""
    try:
        path = workspace.scans / f"{lock_digest(components)}.json"
        return PackageScan.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def verdict(workspace: WorkspaceFolder, policy: PackagePolicy, components: Sequence[PackageComponent]) -> list[str]:
    """Why these may not run, by the last scan of them; empty: they may."""
    seen = kept(workspace, components)
    return ["it was not scanned"] if seen is None else refusals(policy, seen, datetime.now(UTC))


def refusals(policy: PackagePolicy, seen: PackageScan, moment: datetime) -> list[str]:
    """Why a scan lets nothing through at that moment; empty: it does."""
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
    """A time that somebody wrote; one that can't be read is as old as can be."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
