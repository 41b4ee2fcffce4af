"""Decides whether trusted.yaml allows the packages of a run, by their scans and by who signed them.

Every entry point goes through `check` when a run is opened or resumed, and through `check_environments` before an
isolated environment is made, because that already runs code of its packages.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchhouse.catalog.components import components_in, components_of
from benchhouse.catalog.distribution_files import bringing_experiments, find_distribution
from benchhouse.catalog.entries import plug
from benchhouse.catalog.nexus_root import is_nexus
from benchhouse.runs.package_signatures import SignatureStanding, of_distribution, of_folder
from benchhouse.runs.scans import Subject, verdict
from benchhouse.runs.trust_file import read_trusted
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.packages import PackagePolicy
from benchhouse.schema.protocols import Runtime, RuntimeContext, Unpacks
from benchhouse.schema.resources import RuntimeSettings as RuntimeSpec
from benchhouse.schema.trust import TrustedFile

if TYPE_CHECKING:
    from benchhouse.catalog.benchmarks import Registered
    from benchhouse.runs.prepared_run import PreparedRun

_OURS = "benchhouse"


def policy_of(workspace: WorkspaceFolder) -> PackagePolicy | None:
    """Return `packages:` of trusted.yaml; None if it has none."""
    trusted = read_trusted(workspace)
    return trusted.packages if trusted else None


def check(workspace: WorkspaceFolder, prepared: "PreparedRun") -> str:
    """Return a warning if trusted.yaml only advises against the packages of a run. Raise BenchError if it forbids them.

    Experiments that come with this Benchhouse are exempt; other contents of their environments are checked, and what a
    nexus registers must be signed nevertheless.
    """
    gate = _Gate.of(workspace)
    if gate is None:
        return ""
    for folder in registered_in(prepared) if gate.policy.signatures else ():
        gate.sign(of_folder(gate.trusted, folder))
    for name in _names(prepared):
        gate.installed(name)
    others = any(item.distribution != _OURS for item in prepared.listed)
    specs = [spec for spec in prepared.plan.runtimes if spec.kind != "process" and (others or spec.requirements)]
    gate.environments(specs, prepared.place(workspace))
    return gate.close(prepared.file.document.path)


def check_environments(
    workspace: WorkspaceFolder, specs: Iterable[RuntimeSpec], place: RuntimeContext, asked_by: str
) -> str:
    """Check isolated environments that were not made yet, so that nothing in them has run."""
    gate = _Gate.of(workspace)
    if gate is None:
        return ""
    gate.environments(specs, place)
    return gate.close(asked_by)


def run_subjects(prepared: "PreparedRun") -> list[Subject]:
    """Return the installed distributions that trials would use, with all their dependencies."""
    return [(name, components_of(name)) for name in _names(prepared)]


@contextmanager
def site_of(spec: RuntimeSpec, place: RuntimeContext) -> Iterator[Path]:
    """Yield `site-packages` of an isolated environment, or otherwise an unpacked copy of its packages."""
    runtime: Runtime = plug("runtimes", spec.kind)()
    if not isinstance(runtime, Unpacks):
        raise BenchError(f"what is inside of an image ({spec.kind}) can't be scanned", "run it in a venv")
    with TemporaryDirectory(prefix="bench-look-") as folder:
        yield runtime.unpack(spec, place, Path(folder, "site"))


def environment_subject(spec: RuntimeSpec, site: Path) -> Subject:
    return environment_name(spec), components_in(site)


def environment_name(spec: RuntimeSpec) -> str:
    return f"environment of {', '.join(spec.requirements) or spec.image or spec.kind}"


def registered_in(prepared: "PreparedRun") -> list[Path]:
    """Return the folders of a nexus that a scenario and its benchmarks come from; they are checked by their commits."""
    files = [prepared.home.absolute() / "scenario.yaml"]
    registered: Registered | None = prepared.registered
    while registered is not None:
        files.append(Path(registered.document.path).absolute())
        registered = registered.base
    return list(dict.fromkeys(folder for file in files for folder in _registered_folders(file)))


def _registered_folders(file: Path) -> Iterator[Path]:
    """Yield `packages/PACKAGE` or `benchmarks` of every nexus that has the file, because one may contain another."""
    for root in filter(is_nexus, file.parents):
        match file.relative_to(root).parts:
            case ("packages", package, _, *_):
                yield root / "packages" / package
            case ("benchmarks", _, *_):
                yield root / "benchmarks"


def _names(prepared: "PreparedRun") -> list[str]:
    """Return the distributions whose experiments run in this Python."""
    here = any(spec.kind == "process" for spec in prepared.plan.runtimes)
    names = dict.fromkeys(item.distribution for item in prepared.listed if item.distribution != _OURS)
    return list(names) if here else []


@dataclass
class _Gate:
    """One check of everything that is to run, by the rules of trusted.yaml."""

    workspace: WorkspaceFolder
    trusted: TrustedFile
    policy: PackagePolicy
    unscanned: list[str] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, workspace: WorkspaceFolder) -> "_Gate | None":
        trusted = read_trusted(workspace)
        return cls(workspace, trusted, trusted.packages) if trusted and trusted.packages else None

    def sign(self, standing: SignatureStanding) -> None:
        if self.policy.signatures and not standing.signed:
            self.unsigned.append(f"{standing.subject}: {standing.says}")
            self.hints.append(standing.next)

    def installed(self, name: str) -> None:
        """Check a distribution of this Python."""
        try:
            if self.policy.advisories:
                self._scan((name, components_of(name)))
            if self.policy.signatures:
                self.sign(of_distribution(self.workspace, self.trusted, find_distribution(name)))
        except BenchError as error:
            self._could_not_look(error)

    def environments(self, specs: Iterable[RuntimeSpec], place: RuntimeContext) -> None:
        for spec in specs:
            try:
                with site_of(spec, place) as site:
                    if self.policy.advisories:
                        self._scan(environment_subject(spec, site))
                    self._sign_all(bringing_experiments(site) if self.policy.signatures else ())
            except BenchError as error:
                self._could_not_look(error)

    def close(self, asked_by: str) -> str:
        """Return a warning or an empty text. Raise BenchError if something is forbidden."""
        scans, signatures = self.policy.scans == "required", self.policy.signatures == "required"
        refused = [*(self.unscanned if scans else ()), *(self.unsigned if signatures else ())]
        if not self.unscanned and not self.unsigned:
            return ""
        if not refused:
            return _told([*self.unscanned, *self.unsigned])
        exceptions = [f"bench packages scan -c {asked_by}", f"exceptions: packages: in {self.workspace.trusted}"]
        hints = [*(exceptions if scans and self.unscanned else ()), *dict.fromkeys(self.hints)]
        raise BenchError(_told(refused), "; ".join(hint for hint in hints if hint), Exit.NEEDS_APPROVAL)

    def _scan(self, subject: Subject) -> None:
        self.unscanned += [f"{subject[0]}: {text}" for text in verdict(self.workspace, self.policy, subject[1])]

    def _sign_all(self, distributions: Sequence[Distribution]) -> None:
        for item in distributions:
            self.sign(of_distribution(self.workspace, self.trusted, item, here=False))

    def _could_not_look(self, error: BenchError) -> None:
        """Record a check that could not be made as a failure."""
        if self.policy.advisories:
            self.unscanned.append(error.message)
        if self.policy.signatures:
            self.unsigned.append(error.message)
        self.hints.append(error.hint or "")


def _told(reasons: Sequence[str]) -> str:
    return "\n  - ".join(["packages that trusted.yaml does not let run:", *dict.fromkeys(reasons)])
