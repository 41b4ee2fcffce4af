"""manifest.json: the sha256 and size of every file of a trial folder; written last, it seals the folder."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.model import Model
from benchhouse.schema.trial import Outcome


class FileEntry(Model):
    sha256: str
    bytes: int


class Manifest(Model):
    schema_version: Literal[1] = 1
    trial_id: str
    run_id: str
    scenario: str
    outcome: Outcome
    sealed: str = Field(description="When, UTC.")
    files: dict[str, FileEntry] = Field(description="Relative path -> digest and size; all files but this one.")
    self_digest: str = Field("", description="Digest of the fields above, so that a change in here is found too.")

    def content_digest(self) -> str:
        return digest(self.model_dump(exclude={"self_digest"}))

    def signed_off(self) -> "Manifest":
        return self.model_copy(update={"self_digest": self.content_digest()})

    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"


def list_files(folder: Path) -> list[str]:
    """Relative paths of all that is below `folder` but folders and the manifest, sorted; links are not followed."""
    found: list[str] = []
    for parent, folders, files in os.walk(folder):
        inside = Path(parent).relative_to(folder)
        links = [name for name in folders if Path(parent, name).is_symlink()]
        found += [(inside / name).as_posix() for name in (*files, *links)]
    return sorted(name for name in found if name != "manifest.json")


def describe(folder: Path) -> dict[str, FileEntry]:
    return {
        name: FileEntry(sha256=file_digest(folder / name), bytes=(folder / name).stat().st_size)
        for name in list_files(folder)
    }
