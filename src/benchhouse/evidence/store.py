"""The evidence store: sealed trial folders by content, on a disk or on S3, in one layout.

    objects/ab/abcd...                            bytes whose sha256 is abcd...: a file of a trial, or its manifest
    trials/RUN/SCENARIO/FOLDER/MANIFEST-SHA256    this folder is in the store; written after all that it is made of

Nothing is ever changed or removed. Equal files are kept once, and two who push the same end with the same.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from uuid import uuid4

from pydantic import Field, ValidationError

from benchhouse.evidence import older
from benchhouse.evidence.folder import read_manifest
from benchhouse.evidence.manifest import Manifest
from benchhouse.evidence.verify import Damage, manifest_digest, verify
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.model import Model

_POINTER = re.compile(r"trials/([^/.][^/]*)/([^/.][^/]*)/([^/.][^/]*)/([0-9a-f]{64})")  # the fields of a Pointer
_PIECE_BYTES = 1 << 20


class Shelf(Protocol):
    """Where objects lie, by key. A key that is there is there whole."""

    @property
    def name(self) -> str: ...

    def keys(self, prefix: str) -> Iterable[str]: ...

    def put(self, key: str, source: Path | bytes, sha256: str) -> None: ...

    def read(self, key: str) -> Iterable[bytes]:
        """Piece by piece; raises FileNotFoundError where there is none."""


class Carried(Model):
    """What became of one trial folder."""

    run_id: str
    folder: str = Field(description="scenario/trial, as below results/.")
    what: Literal["new", "same", "refused"] = Field(description="same: it was there already.")
    objects: int = Field(0, description="Objects that were written, or would be.")
    size: int = Field(0, description="Their bytes.")
    reason: str = Field("", description="Why it was refused; of a new one, why it is in no table.")


@dataclass(frozen=True)
class Pointer:
    """One trial folder of a store."""

    run_id: str
    scenario: str
    folder: str
    manifest: str

    @property
    def key(self) -> str:
        return f"trials/{self.run_id}/{self.scenario}/{self.folder}/{self.manifest}"

    @property
    def path(self) -> str:
        return f"{self.scenario}/{self.folder}"


class DiskShelf:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self._root, self.name = root, str(root)

    def keys(self, prefix: str) -> Iterator[str]:
        for parent, folders, files in os.walk(self._root / prefix):
            folders.sort()
            for file in sorted(files):
                if not file.startswith("."):
                    yield Path(parent, file).relative_to(self._root).as_posix()

    def put(self, key: str, source: Path | bytes, sha256: str) -> None:
        path = self._root / key
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                temporary.write_bytes(source)
            else:
                shutil.copyfile(source, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise unwritable(self._root, error) from error

    def read(self, key: str) -> Iterator[bytes]:
        with (self._root / key).open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece


def object_key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def pointers(shelf: Shelf, runs: Iterable[str] | None = None) -> list[Pointer]:
    """The trial folders of a store; of all runs, or of `runs` alone. What has no name of ours is not looked at."""
    prefixes = ["trials/"] if runs is None else [f"trials/{run}/" for run in sorted(set(runs))]
    matches = (_POINTER.fullmatch(key) for prefix in prefixes for key in shelf.keys(prefix))
    return [Pointer(*match.groups()) for match in matches if match]


def push(shelf: Shelf, folders: Iterable[TrialFolder], *, dry_run: bool = False) -> Iterator[Carried]:
    """Put sealed folders into a store. Each is checked before it goes, and each new object is read back."""
    there: set[str] | None = None
    known: set[Pointer] = set()
    for folder in folders:
        if there is None:
            there, known = set(shelf.keys("objects/")), set(pointers(shelf))
        path = f"{folder.path.parent.name}/{folder.path.name}"
        if damage := verify(folder):
            yield Carried(run_id="", folder=path, what="refused", reason=_describe(damage))
            continue
        manifest = read_manifest(folder)
        pointer = Pointer(manifest.run_id, folder.path.parent.name, folder.path.name, manifest_digest(folder))
        if pointer in known:
            yield Carried(run_id=manifest.run_id, folder=path, what="same")
            continue
        parts = {object_key(entry.sha256): folder.path / name for name, entry in manifest.files.items()}
        parts[object_key(pointer.manifest)] = folder.manifest
        new = {key: part for key, part in parts.items() if key not in there}
        size = sum(part.stat().st_size for part in new.values())
        if not dry_run:
            for key, part in new.items():
                _put(shelf, key, part)
            text = f"{pointer.manifest}\n".encode()
            shelf.put(pointer.key, text, hashlib.sha256(text).hexdigest())
        there |= new.keys()
        yield Carried(run_id=manifest.run_id, folder=path, what="new", objects=len(new), size=size)


def pull(shelf: Shelf, results: Path, wanted: Iterable[Pointer], *, dry_run: bool = False) -> Iterator[Carried]:
    """Bring folders of a store below `results`, each checked whole before it gets its name."""
    for pointer in wanted:
        final = TrialFolder(results / pointer.scenario / pointer.folder)
        if final.path.exists():
            damage = verify(final, pointer.manifest)
            what: Literal["same", "refused"] = "refused" if damage else "same"
            reason = f"another one is here: {_describe(damage)}" if damage else ""
            yield Carried(run_id=pointer.run_id, folder=pointer.path, what=what, reason=reason)
            continue
        try:
            yield _bring(shelf, pointer, final, dry_run)
        except BenchError as error:
            yield Carried(run_id=pointer.run_id, folder=pointer.path, what="refused", reason=error.message)


def check(shelf: Shelf, wanted: Iterable[Pointer]) -> Iterator[tuple[Pointer, int, list[Damage]]]:
    """Hash every object of these folders, each once; the bytes that were read, and what is not as it was sealed."""
    seen: dict[str, tuple[str, int] | None] = {}
    for pointer in wanted:
        damage, read = list[Damage](), 0
        try:
            if b"".join(shelf.read(pointer.key)) != f"{pointer.manifest}\n".encode():
                damage.append(_damage(pointer, pointer.key, "its text does not fit its name"))
            manifest = _manifest(shelf, pointer)
        except BenchError as error:
            yield pointer, 0, [_damage(pointer, "manifest.json", error.message)]
            continue
        for name, entry in manifest.files.items():
            if entry.sha256 not in seen:
                seen[entry.sha256] = stored = _digest(shelf, object_key(entry.sha256))
                read += stored[1] if stored else 0
            if seen[entry.sha256] != (entry.sha256, entry.bytes):
                damage.append(_damage(pointer, name, _difference(seen[entry.sha256], entry.sha256)))
        yield pointer, read, damage


def _put(shelf: Shelf, key: str, source: Path) -> None:
    expected = key.rpartition("/")[2]
    shelf.put(key, source, expected)
    stored = _digest(shelf, key)
    if stored is None or stored[0] != expected:
        raise BenchError(f"{shelf.name}: {key}: {_difference(stored, expected)}, right after it was written")


def _bring(shelf: Shelf, pointer: Pointer, final: TrialFolder, dry_run: bool) -> Carried:
    manifest = _manifest(shelf, pointer)
    carried = Carried(
        run_id=pointer.run_id, folder=pointer.path, what="new", objects=len(manifest.files) + 1,
        size=sum(entry.bytes for entry in manifest.files.values()),
    )  # fmt: skip
    if dry_run:
        return carried
    partial = TrialFolder(final.path.with_name(f".pull-{final.path.name}.{uuid4().hex}"))
    try:
        for name, entry in manifest.files.items():
            _fetch(shelf, entry.sha256, partial.path / name)
        _fetch(shelf, pointer.manifest, partial.manifest)
        if damage := verify(partial, pointer.manifest):
            raise BenchError(f"it came changed: {_describe(damage)}")
        partial.path.rename(final.path)
    except OSError as error:
        raise unwritable(final.path.parent, error) from error
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return carried


def _fetch(shelf: Shelf, sha256: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fetched = hashlib.sha256()
    with path.open("wb") as file:
        try:
            for piece in shelf.read(object_key(sha256)):
                file.write(piece)
                fetched.update(piece)
        except FileNotFoundError:
            raise BenchError(f"{path.name}: its object {sha256[:12]} is missing in {shelf.name}") from None
        file.flush()
        os.fsync(file.fileno())
    if fetched.hexdigest() != sha256:
        raise BenchError(f"{path.name}: {_difference((fetched.hexdigest(), 0), sha256)} in {shelf.name}")


def _manifest(shelf: Shelf, pointer: Pointer) -> Manifest:
    """Checked against the pointer; no name in it leaves its folder."""
    try:
        content = b"".join(shelf.read(object_key(pointer.manifest)))
    except FileNotFoundError:
        raise BenchError(f"the manifest {pointer.manifest[:12]} is missing in {shelf.name}") from None
    if (sha256 := hashlib.sha256(content).hexdigest()) != pointer.manifest:
        raise BenchError(f"the manifest: {_difference((sha256, 0), pointer.manifest)} in {shelf.name}")
    try:
        manifest = older.read(Manifest, content)
    except ValidationError as error:
        raise BenchError(f"the manifest {pointer.manifest[:12]} can't be read: {error.errors()[0]['msg']}") from error
    for what, named, entered in (
        ("run", manifest.run_id, pointer.run_id),
        ("scenario", manifest.scenario, pointer.scenario),
    ):
        if named != entered:
            raise BenchError(f"the manifest is of {what} {named}, entered as one of {entered}")
    return manifest


def _digest(shelf: Shelf, key: str) -> tuple[str, int] | None:
    sha256, size = hashlib.sha256(), 0
    try:
        for piece in shelf.read(key):
            sha256.update(piece)
            size += len(piece)
    except FileNotFoundError:
        return None
    return sha256.hexdigest(), size


def _difference(stored: tuple[str, int] | None, expected: str) -> str:
    return f"sha256 {stored[0][:12]}, sealed as {expected[:12]}" if stored else f"object {expected[:12]} is missing"


def _damage(pointer: Pointer, file: str, detail: str) -> Damage:
    kind: Literal["missing", "changed"] = "missing" if "is missing" in detail else "changed"
    return Damage(trial=pointer.path, file=file, kind=kind, detail=detail)


def _describe(damage: list[Damage]) -> str:
    first = damage[0]
    more = f" and {len(damage) - 1} more" if len(damage) > 1 else ""
    return f"{first.file}: {first.kind}" + (f" ({first.detail})" if first.detail else "") + more
