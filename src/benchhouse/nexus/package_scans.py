"""Scans of the Python packages that packages of a nexus install, and their results."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.catalog.components import components_of, lock_digest
from benchhouse.catalog.nexus import Nexus, Package
from benchhouse.catalog.nexus_requirements import Requirement, requirements
from benchhouse.documents.problems import ProblemsError
from benchhouse.nexus.packages import pick
from benchhouse.runs.package_gate import environment_name, environment_subject, policy_of, run_subjects, site_of
from benchhouse.runs.preparation import Where, environments_of, prepare_all
from benchhouse.runs.scans import Subject, kept, scan, verdict
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.packages import PackagePolicy, PackageScan
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings
from benchhouse.sites import places

State = Literal["passed", "refused", "failed", "not scanned"]
_WORST: tuple[State, ...] = ("passed", "not scanned", "failed", "refused")
_EXAMPLE = "packages: {advisories: /srv/osv/PyPI, max_age: 7d, severities: [low]}"


@dataclass(frozen=True)
class ScannedPackage:
    """The scan of one distribution or environment, and its verdict by trusted.yaml."""

    package: str
    """The package of the nexus, or the scenario."""
    subject: str
    """The distribution, or the environment."""
    state: State
    """failed: the scan could not be made, and nothing is allowed."""
    reasons: list[str]
    """Why it has not passed."""
    scan: PackageScan | None
    """None if the contents to scan are unknown."""
    parts_list: str
    """Path of the CycloneDX file."""


@dataclass(frozen=True)
class ScannedPackages:
    """The results of all scans."""

    packages: list[ScannedPackage]

    @property
    def exit_code(self) -> Exit:
        """Exit code of `bench packages scan`: 2 if anything is refused, 1 if a scan could not be made."""
        states = {item.state for item in self.packages}
        return Exit.BAD_INPUT if "refused" in states else Exit.TRIAL_FAILED if states - {"passed"} else Exit.GOOD


def scan_packages(workspace: WorkspaceFolder, nexus: Nexus, name: str | None) -> ScannedPackages:
    """Scan each Python package that one package of the nexus installs, or all of them."""
    policy = _policy(workspace)
    scanned = []
    for package in [pick(nexus, name)] if name else nexus.packages:
        for requirement in _requirements(package, nexus):
            try:
                subject = _subject(requirement)
            except BenchError as error:
                scanned.append(ScannedPackage(package.name, requirement.text, "failed", [error.message], None, ""))
                continue
            scanned.append(_scanned(workspace, policy, package.name, subject))
    return ScannedPackages(scanned)


def scan_scenario(workspace: WorkspaceFolder, path: Path, where: Where) -> ScannedPackages:
    """Scan what the runs of a scenario would use: all of each isolated environment, which is not made, or otherwise the
    distributions installed here."""
    policy, name = _policy(workspace), str(path)
    if environments := environments_of(workspace, path, where):
        return ScannedPackages([_environment(workspace, policy, name, spec) for spec in environments])
    scanned, subjects = list[ScannedPackage](), dict[str, Subject]()
    for prepared in prepare_all(workspace, path, where):
        subjects |= {subject[0]: subject for subject in run_subjects(prepared)}
        others = [spec for spec in prepared.plan.runtimes if spec.kind != "process"]
        scanned += [_environment(workspace, policy, name, spec) for spec in others]
    return ScannedPackages([*scanned, *(_scanned(workspace, policy, name, item) for item in subjects.values())])


def _environment(workspace: WorkspaceFolder, policy: PackagePolicy, name: str, spec: RuntimeSettings) -> ScannedPackage:
    try:
        with site_of(spec, RuntimeContext(places.cache())) as site:
            return _scanned(workspace, policy, name, environment_subject(spec, site))
    except BenchError as error:
        return ScannedPackage(name, environment_name(spec), "failed", [f"the scan could not look: {error}"], None, "")


def scan_state(workspace: WorkspaceFolder, policy: PackagePolicy, nexus: Nexus, package: Package) -> str:
    """Return the worst result of the last scans of a package; empty if it installs nothing."""
    states = list[State]()
    for requirement in _requirements(package, nexus):
        try:
            _, components = _subject(requirement)
        except BenchError:
            states.append("failed")
        else:
            states.append(_state(kept(workspace, components), verdict(workspace, policy, components)))
    return max(states, key=_WORST.index, default="")


def _policy(workspace: WorkspaceFolder) -> PackagePolicy:
    policy = policy_of(workspace)
    if policy is None or policy.advisories is None:
        raise BenchError(f"nothing says where known vulnerabilities are: {workspace.trusted}", f"write {_EXAMPLE}")
    return policy


def _requirements(package: Package, nexus: Nexus) -> Iterator[Requirement]:
    good, problems = requirements(package, nexus.root)
    if problems:
        raise ProblemsError(problems)
    yield from good


def _subject(requirement: Requirement) -> Subject:
    if not requirement.name:
        raise BenchError(f"{requirement.place}: which distribution {requirement.text} is can't be known before")
    return requirement.name, components_of(requirement.name)


def _scanned(workspace: WorkspaceFolder, policy: PackagePolicy, package: str, subject: Subject) -> ScannedPackage:
    seen = scan(workspace, policy, subject)
    reasons = verdict(workspace, policy, subject[1])
    parts_list = workspace.scans / f"{lock_digest(subject[1])}.cdx.json"
    return ScannedPackage(package, subject[0], _state(seen, reasons), reasons, seen, str(parts_list))


def _state(seen: PackageScan | None, reasons: list[str]) -> State:
    if seen is None:
        return "not scanned"
    return "failed" if seen.failure else "refused" if reasons else "passed"
