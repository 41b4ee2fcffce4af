"""Hash evidence again: each changed, missing, or added byte in a sealed folder is found and named."""

import hashlib
import json
import stat
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from benchhouse.evidence.folder import read_manifest
from benchhouse.evidence.manifest import list_files
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.model import Model

DamageKind = Literal["changed", "missing", "added", "unreadable", "unsealed"]


class Damage(Model):
    """A difference from the sealed state, or a file that could not be checked."""

    trial: str
    file: str
    kind: DamageKind = Field(description="unreadable: its bytes were not to be had; it may be whole.")
    detail: str = ""


def manifest_digest(folder: TrialFolder) -> str:
    """Return the sha256 of manifest.json: the artifact_manifest_digest of every row that comes from this trial."""
    return hashlib.sha256(folder.manifest.read_bytes()).hexdigest()


def verify(folder: TrialFolder, expected_manifest: str | None = None, *, part: bool = False) -> list[Damage]:
    """Compare a folder with its manifest, and the manifest with the digest in the catalog, if given.

    `part`: the folder has only some of its files; a missing file is not damage.
    """
    trial = folder.path.name
    if not folder.path.exists():
        return [Damage(trial=trial, file=".", kind="missing", detail="the whole folder is gone")]
    if not folder.sealed:
        return [Damage(trial=trial, file="manifest.json", kind="unsealed", detail="no manifest: never finished")]
    damage: list[Damage] = []

    def note(file: str, kind: DamageKind, detail: str = "") -> None:
        damage.append(Damage(trial=trial, file=file, kind=kind, detail=detail))

    if expected_manifest and (sha256 := manifest_digest(folder)) != expected_manifest:
        note("manifest.json", "changed", f"sha256 {sha256[:12]}, collected as {expected_manifest[:12]}")
    try:
        manifest = read_manifest(folder)
    except (ValidationError, OSError) as error:
        note("manifest.json", "unreadable", str(error).split("\n")[0])
        return damage
    if not is_as_signed(folder.manifest.read_bytes()):
        note("manifest.json", "changed", "its bytes do not match its own digest")
    present = set(list_files(folder.path))
    for name, entry in manifest.files.items():
        if name not in present:
            if not part:
                note(name, "missing")
            continue
        try:
            sha256 = _digest(folder.path / name)
        except OSError as error:
            note(name, "unreadable", error.strerror or "")
            continue
        if sha256 != entry.sha256:
            note(name, "changed", f"sha256 {sha256[:12]}, sealed as {entry.sha256[:12]}")
    for name in sorted(present - set(manifest.files)):
        note(name, "added")
    return damage


def is_as_signed(content: bytes) -> bool:
    """Return whether a manifest's raw bytes match its own digest; the same for manifests of every version."""
    try:
        manifest: dict[str, object] = json.loads(content)
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        signed = manifest.pop("self_digest")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return text.encode() == content and digest(manifest) == signed


def _digest(path: Path) -> str:
    """Return the file's digest; a link or a pipe in its place has none, wherever it leads."""
    return file_digest(path) if stat.S_ISREG(path.lstat().st_mode) else "(no file)"
