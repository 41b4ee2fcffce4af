"""The folder of one infrastructure and the record of the files written there; no other file is replaced or removed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from benchhouse.evidence.writing import write_model, write_text
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.infra import InfraManifest, Stage
from benchhouse.sites.infra.providers import steps

MANIFEST = "bench-infra.json"
FileState = Literal["planned", "written", "outdated", "missing", "edited", "made", "foreign"]


@dataclass(frozen=True)
class InfraFile:
    """A file and its state.

    planned: to be written; written: as `bench infra` wrote it; outdated, missing: left by an interrupted create;
    edited: changed by a user; made: created by the commands that were run; foreign: of unknown origin.
    """

    name: str
    state: FileState


class InfraFolder:
    """Reads and writes one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._book = path / MANIFEST

    def manifest(self) -> InfraManifest | None:
        """Return the record of the files written here; None if there is none."""
        try:
            text = self._book.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return InfraManifest.model_validate_json(text)
        except ValidationError as error:
            raise BenchError(
                f"{self._book} is not what `bench infra` wrote: {error.errors()[0]['msg']}",
                "bring it back from version control; without it nothing here is touched",
            ) from error

    def entries(self) -> list[str]:
        """Return the names of all files and folders here, except the record itself."""
        return sorted(item.name for item in self.path.iterdir() if item.name != MANIFEST) if self.path.is_dir() else []

    def states(self, manifest: InfraManifest) -> list[InfraFile]:
        """Return the states of its own files, then those of other files."""
        own = [InfraFile(name, self._state(name, digests)) for name, digests in manifest.files.items()]
        makes = steps(manifest.request, self.path).makes
        others = [name for name in self.entries() if name not in manifest.files]
        return own + [InfraFile(name, "made" if name in makes else "foreign") for name in others]

    def _state(self, name: str, digests: tuple[str, ...]) -> FileState:
        path = self.path / name
        if not path.exists() and not path.is_symlink():
            return "missing"
        digest = file_digest(path) if path.is_file() and not path.is_symlink() else ""
        return "written" if digest == digests[-1] else "outdated" if digest in digests else "edited"

    def write(self, manifest: InfraManifest, files: Mapping[str, str]) -> InfraManifest:
        """Write `files` and the manifest, and return the manifest as stored. Files that a user edited stay unchanged.

        The record is written before the files, with their current and future digests. After a kill, every file is
        therefore known as ours, and the next call continues.
        """
        before = self.manifest()
        known = before.files if before else {}
        new = {name: sha256(text.encode()).hexdigest() for name, text in files.items()}
        gone = {name: known[name] for name in known if name not in files}
        both = {name: (*(old for old in known.get(name, ()) if old != new[name]), new[name]) for name in files}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            sweep_temporaries(self.path)
            self.keep(manifest.model_copy(update={"files": both | gone}))
            for name, state in self._ours(both | gone):
                if name in gone:
                    (self.path / name).unlink(missing_ok=True)
                elif state != "written":
                    write_text(self.path / name, files[name])
            final = manifest.model_copy(update={"files": {name: self._settled(name, both[name]) for name in files}})
            self.keep(final)
        except OSError as error:
            raise unwritable(self.path, error) from error
        return final

    def _ours(self, files: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, FileState]]:
        states = ((name, self._state(name, digests)) for name, digests in files.items())
        return ((name, state) for name, state in states if state != "edited")

    def _settled(self, name: str, digests: tuple[str, ...]) -> tuple[str, ...]:
        return digests if self._state(name, digests) == "edited" else digests[-1:]

    def keep(self, manifest: InfraManifest) -> None:
        write_model(self._book, manifest)

    def advance(self, manifest: InfraManifest, stage: Stage) -> InfraManifest:
        moved = manifest.model_copy(update={"stage": stage})
        self.keep(moved)
        return moved

    def remove(self, manifest: InfraManifest) -> list[str]:
        """Remove the files that are unchanged since they were written, then the record. Return the remaining names."""
        sweep_temporaries(self.path)
        for name, _ in self._ours(manifest.files):
            (self.path / name).unlink(missing_ok=True)
        self._book.unlink(missing_ok=True)
        left = self.entries()
        if not left:
            self.path.rmdir()
        return left
