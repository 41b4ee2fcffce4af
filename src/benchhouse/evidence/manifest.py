"""manifest.json: the sha256 and size of every file of a trial folder. It is written last and seals the folder."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.digests import digest
from benchhouse.schema.model import Model
from benchhouse.schema.names import Name
from benchhouse.schema.quoting import quote
from benchhouse.schema.trial import Outcome

_PIECE_BYTES = 256 << 10


def _inside(name: str) -> str:
    """Return `name`. Raise ValueError if it leads out of its folder."""
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in name:
        raise ValueError(f"{quote(name)} is a file outside of its folder")
    return name


_Inside = Annotated[str, AfterValidator(_inside)]


class ManifestEntry(Model):
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int


class Manifest(Model):
    schema_version: Literal[1] = 1
    trial_id: Name
    run_id: Name
    scenario: Name
    outcome: Outcome
    sealed: str = Field(description="When, UTC.")
    files: dict[_Inside, ManifestEntry] = Field(description="Relative path -> digest and size; all files but this one.")
    self_digest: str = Field("", description="Digest of the fields above, so that a change in here is found too.")

    def signed_off(self) -> "Manifest":
        return self.model_copy(update={"self_digest": digest(self.model_dump(exclude={"self_digest"}))})

    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"


def list_files(folder: Path) -> list[str]:
    """Return the sorted relative paths of all files below `folder` except the manifest; links are not followed."""
    return sorted(name for name in walk(os.fspath(folder), lenient=True)[0] if name != "manifest.json")


def walk(root: str, *, lenient: bool = False) -> tuple[list[str], list[str]]:
    """Return the relative paths of all files, links included, and of all folders below `root`.

    Uses text only, because path objects take a tenth of the time of a short trial. With `lenient`, an unreadable folder
    counts as empty; a manifest made that way would lack its files.
    """
    files: list[str] = []
    folders: list[str] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with contextlib.suppress(*([OSError] if lenient else [])), os.scandir(f"{root}/{inside}") as entries:
            for entry in entries:
                name = inside + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                    waiting.append(f"{name}/")
                else:
                    files.append(name)
    return files, folders


def describe_file(path: str, *, sync: bool = False) -> ManifestEntry:
    """Return the digest and size of one file; with `sync` its content is on disk afterward."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sha256, size = hashlib.sha256(), 0
        piece = min(os.fstat(handle).st_size + 1, _PIECE_BYTES)
        while content := os.read(handle, piece):
            sha256.update(content)
            size += len(content)
        if sync and size:
            os.fsync(handle)
    finally:
        os.close(handle)
    return ManifestEntry(sha256=sha256.hexdigest(), bytes=size)
