"""Signatures of third-party code: of a distribution's files, or of the commit that a folder is checked out from.

A signature counts if trusted.yaml lists its key, unexpired today, for a person who may register.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path

from benchhouse.catalog.distribution_files import (
    DistributionFiles,
    differences,
    editable_source,
    entry_modules,
    in_short,
    installed_files,
    planted,
)
from benchhouse.evidence.writing import now, write_text
from benchhouse.processes.durable import make_folders
from benchhouse.runs.commits import changed_since_commit, commit_signature
from benchhouse.runs.signed_files import UnreadableError, read_signed, signed_text
from benchhouse.runs.signers import owner_of, signature_doubt
from benchhouse.runs.ssh_signatures import fingerprint, sign
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.packages import SIGNATURES, SignedFiles, SignedPackage
from benchhouse.schema.quoting import quote
from benchhouse.schema.trust import TrustedFile
from benchhouse.sites import places

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")
_SIGSTORE = ("*.sigstore", "*.sigstore.json", "*.attestation")


@dataclass(frozen=True)
class SignatureStanding:
    """The signature status of third-party code."""

    subject: str
    """The distribution and its version, or the folder."""
    signed: bool
    signed_by: str
    """The person whose signature counts; empty if none does."""
    says: str
    """The signature that counts, or why none does, with the file."""
    next: str = ""
    """The remedy; empty if none is needed."""


def sign_files(workspace: WorkspaceFolder, trusted: TrustedFile, files: DistributionFiles, key: Path) -> Path:
    """Sign the files of a distribution. Return the file in `signatures/` of the nexus, or otherwise the workspace."""
    _check_name(files)
    signer = owner_of(trusted, key)
    if not trusted.may_register(signer):
        raise BenchError(
            f"{signer} may not register packages: {workspace.trusted}",
            "somebody with `registers: true`, or an admin, signs",
            Exit.NEEDS_APPROVAL,
        )
    signed = SignedFiles(package=files.package, version=files.version, files=files.files, signed_by=signer, time=now())
    item = SignedPackage(signed=signed, signature=sign(signed.signed_bytes(), key, SIGNATURES))
    if why := signature_doubt(trusted, signer, signed.signed_bytes(), item.signature, SIGNATURES):
        raise BenchError(f"{files.package} {files.version} was not signed: {why}", "sign with another key: --key FILE")
    path = _folder(workspace) / f"{files.package}-{files.version}-{digest(files.files)[:8]}.json"
    try:
        make_folders(path.parent)
        write_text(path, signed_text(item))
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def of_files(workspace: WorkspaceFolder, trusted: TrustedFile, files: DistributionFiles) -> SignatureStanding:
    """Return the status by the files in `signatures/`: one of them must cover exactly these files."""
    _check_name(files)
    subject, reasons = f"{files.package} {files.version}", list[str]()
    for path in sorted(_folder(workspace).glob(f"{files.package}-{files.version}-*.json")):
        try:
            item = read_signed(path, SignedPackage)
        except UnreadableError as error:
            reasons.append(error.message)
            continue
        if item is None:
            continue
        if why := _doubt(trusted, files, item):
            reasons.append(f"{path}: {why}")
        else:
            return SignatureStanding(subject, True, item.signed.signed_by, f"signed by {item.signed.signed_by}: {path}")
    reasons += [f"{path}: bundles of sigstore are not checked here" for path in _sigstores(workspace, files)]
    then = f"somebody who may register signs it:  bench packages sign {files.package}"
    then = f"install what was signed; or {then}" if reasons else then
    return SignatureStanding(subject, False, "", in_short(reasons) or "it is not signed", then)


def of_distribution(
    workspace: WorkspaceFolder, trusted: TrustedFile, distribution: Distribution, *, here: bool = True
) -> SignatureStanding:
    """Return the status of an installed distribution; a linked folder counts by its commit. `here`: in this Python."""
    source = editable_source(distribution)
    name = f"{distribution.metadata['Name']} {distribution.version}"
    try:
        if source is not None:
            standing = of_folder(trusted, source, name)
            wrong = _is_shadowed(distribution, source, set()) if here else ""
        else:
            files = installed_files(distribution)
            standing = of_files(workspace, trusted, files)
            site = Path(str(distribution.locate_file("")))
            wrong = _is_shadowed(distribution, site, set(files.files)) if here else ""
            wrong = wrong or in_short([f"{site / path} was not signed" for path in planted(distribution, files.files)])
    except BenchError as error:
        return SignatureStanding(name, False, "", error.message, error.hint or "")
    if standing.signed and wrong:
        return SignatureStanding(standing.subject, False, "", wrong, "take it away, or install the package anew")
    return standing


def of_folder(trusted: TrustedFile, folder: Path, subject: str = "") -> SignatureStanding:
    """Return the status of a folder in a git checkout: its commit must be signed, and the folder unchanged since."""
    subject = subject or str(folder)
    today = datetime.now(UTC).date()
    keys = {name: trusted.keys_of(name, today) for name in trusted.people}
    try:
        found = commit_signature(folder, keys)
        changed = changed_since_commit(folder, found.commit) if found.signer else []
    except BenchError as error:
        return SignatureStanding(subject, False, "", error.message, error.hint or "")
    commit = f"commit {found.commit[:12]} of {folder}"
    if not found.signer:
        unknown = f": {found.fingerprint}" if found.fingerprint else ""
        why = _ended(trusted, found.fingerprint) or f"{found.why}{unknown}"
        then = f"somebody who may register signs it:  git -C {folder} commit --amend --no-edit -S"
        return SignatureStanding(subject, False, "", f"{commit} {why}", then)
    if not trusted.may_register(found.signer):
        why = f"{commit} is signed by {found.signer}, who may not register packages, by trusted.yaml"
        return SignatureStanding(subject, False, "", why, "ask somebody with `registers: true` to sign it")
    if changed:
        why = in_short([f"{folder / name.partition(' ')[0]} {name.partition(' ')[2]}" for name in changed])
        then = f"commit and sign it, or put it back:  git -C {folder} status"
        return SignatureStanding(subject, False, "", why, then)
    return SignatureStanding(subject, True, found.signer, f"signed by {found.signer}: {commit}")


def _check_name(files: DistributionFiles) -> None:
    """Raise BenchError if a package's name could lead to a file other than its signature."""
    for text in (files.package, files.version):
        if not _NAME.fullmatch(text):
            raise BenchError(f"{quote(text[:60])} is no name or version of a package", "see its METADATA")


def _doubt(trusted: TrustedFile, files: DistributionFiles, item: SignedPackage) -> str:
    signed = item.signed
    if (signed.package, signed.version) != (files.package, files.version):
        return f"it is about {signed.package} {signed.version}"
    if why := signature_doubt(trusted, signed.signed_by, signed.signed_bytes(), item.signature, SIGNATURES):
        return why
    if not trusted.may_register(signed.signed_by):
        return f"{signed.signed_by} may not register packages, by trusted.yaml"
    return differences(signed.files, files.files)


def _is_shadowed(distribution: Distribution, folder: Path, names: set[str]) -> str:
    """Return why Python would import one of its modules from elsewhere, or ''. `names`: its files, if known."""
    home = folder.resolve()
    for module in sorted(entry_modules(distribution)):
        spec = find_spec(module)
        found = [spec.origin] if spec and spec.origin else list(spec.submodule_search_locations or ()) if spec else []
        for place in (Path(item).resolve() for item in found):
            inside = place.is_relative_to(home)
            if not inside or (names and place.is_file() and place.relative_to(home).as_posix() not in names):
                return f"{module} is taken from {place}, which is not of {distribution.metadata['Name']}"
    return ""


def _ended(trusted: TrustedFile, mark: str) -> str:
    today = datetime.now(UTC).date()
    ends = ((name, end) for name in trusted.people for end in trusted.ended_keys(name, today))
    return next(
        (f"is signed by a key of {name} that counts no more since {end.until}: {end.why}" for name, end in ends
         if fingerprint(end.key) == mark),
        "",
    )  # fmt: skip


def _folder(workspace: WorkspaceFolder) -> Path:
    return (places.nexus(None, workspace.root) or workspace.root) / workspace.signatures.name


def _sigstores(workspace: WorkspaceFolder, files: DistributionFiles) -> Iterator[Path]:
    folder = _folder(workspace)
    names = {files.package, files.package.replace("-", "_")}
    for pattern in _SIGSTORE:
        yield from (path for name in sorted(names) for path in sorted(folder.glob(f"{name}-{files.version}{pattern}")))
