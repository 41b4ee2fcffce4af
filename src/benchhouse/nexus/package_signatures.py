"""Signatures of a nexus: on the commit of each package, and on the Python packages that it installs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.catalog.distribution_files import find_distribution, installed_files, wheel_files
from benchhouse.catalog.nexus import Nexus, Package
from benchhouse.catalog.nexus_requirements import Requirement, requirements
from benchhouse.documents.problems import ProblemsError
from benchhouse.runs.package_signatures import SignatureStanding, of_distribution, of_files, of_folder, sign_files
from benchhouse.runs.signers import signing_key
from benchhouse.runs.trust_file import read_trusted
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trust import TrustedFile

_WHEEL = ".whl"
_BUNDLES = (".sigstore", ".sigstore.json", ".attestation")


@dataclass(frozen=True)
class VerifiedPackage:
    """A package of the nexus, or a file, and the status of one of its signatures."""

    package: str
    standing: SignatureStanding


@dataclass(frozen=True)
class VerifiedPackages:
    """The results of all checks."""

    packages: list[VerifiedPackage]

    @property
    def exit_code(self) -> Exit:
        """Exit code of `bench packages verify`: 2 if a signature is missing or does not count."""
        return Exit.GOOD if all(item.standing.signed for item in self.packages) else Exit.BAD_INPUT


def sign_package(workspace: WorkspaceFolder, what: str, key: str | Path | None) -> Path:
    """Sign a wheel, or a distribution as it is installed here. Return the signature file."""
    trusted = _trusted(workspace)
    _refuse_bundle(what)
    files = wheel_files(Path(what)) if what.endswith(_WHEEL) else installed_files(find_distribution(what))
    return sign_files(workspace, trusted, files, signing_key(trusted, key))


def verify_wheel(workspace: WorkspaceFolder, path: str) -> VerifiedPackages:
    """Verify a wheel by the signatures of the nexus, or otherwise of the workspace."""
    _refuse_bundle(path)
    return VerifiedPackages([VerifiedPackage(path, of_files(workspace, _trusted(workspace), wheel_files(Path(path))))])


def verify_packages(workspace: WorkspaceFolder, packages: list[Package], nexus: Nexus) -> VerifiedPackages:
    """Verify the commit of each package's folder, and the packages that it installs, as installed here."""
    trusted = _trusted(workspace)
    return VerifiedPackages(
        [
            VerifiedPackage(item.name, standing)
            for item in packages
            for standing in _all_of(workspace, trusted, nexus, item)
        ]
    )


def signature_state(
    workspace: WorkspaceFolder, trusted: TrustedFile, nexus: Nexus, package: Package
) -> Literal["signed", "not signed"]:
    """Return whether all of a package is signed by people who may register."""
    standings = _all_of(workspace, trusted, nexus, package)
    return "signed" if all(item.signed for item in standings) else "not signed"


def is_wheel(name: str) -> bool:
    """Return whether `name` is a file, and not a package of a nexus."""
    return name.endswith((_WHEEL, *_BUNDLES))


def _all_of(
    workspace: WorkspaceFolder, trusted: TrustedFile, nexus: Nexus, package: Package
) -> Iterator[SignatureStanding]:
    yield of_folder(trusted, package.path)
    needs, problems = requirements(package, nexus.root)
    if problems:
        raise ProblemsError(problems)
    for requirement in needs:
        yield _of_requirement(workspace, trusted, requirement)


def _of_requirement(workspace: WorkspaceFolder, trusted: TrustedFile, requirement: Requirement) -> SignatureStanding:
    try:
        if not requirement.name:
            raise BenchError(f"{requirement.place}: which distribution {requirement.text} is can't be known before")
        return of_distribution(workspace, trusted, find_distribution(requirement.name))
    except BenchError as error:
        return SignatureStanding(requirement.text, False, "", error.message, error.hint)


def _trusted(workspace: WorkspaceFolder) -> TrustedFile:
    trusted = read_trusted(workspace)
    if trusted is None:
        raise BenchError(f"nothing says whose signature counts: there is no {workspace.trusted}", "write one")
    return trusted


def _refuse_bundle(name: str) -> None:
    if name.endswith(_BUNDLES):
        message = f"{name} is a bundle of sigstore, which is not checked here: it vouches for nothing"
        raise BenchError(message, "somebody who may register signs the wheel:  bench packages sign FILE.whl")
