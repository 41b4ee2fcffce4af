"""The evidence store: sealed trial folders by content, on a disk or on S3, in one layout.

    objects/ab/abcd...                            bytes whose sha256 is abcd...: a file of a trial, or its manifest
    trials/RUN/SCENARIO/FOLDER/MANIFEST-SHA256    this folder is in the store; written after all of its parts

Nothing is ever changed or removed. Equal files are stored once, and concurrent pushes of the same folder agree.
"""

import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar
from uuid import uuid4

from pydantic import Field, ValidationError

from benchhouse.evidence import older
from benchhouse.evidence.folder import read_manifest
from benchhouse.evidence.manifest import Manifest, ManifestEntry
from benchhouse.evidence.verify import Damage, DamageKind, manifest_digest, verify
from benchhouse.processes.durable import make_folders, put_in_place, sync, sync_tree
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.model import Model

_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)"  # a name that can't lead out of its folder
_POINTER = re.compile(rf"trials/{_NAME}/{_NAME}/{_NAME}/([0-9a-f]{{64}})")  # the fields of a Pointer
_MOST_MANIFEST_BYTES = 128 << 20  # an entry for a file takes about 150 bytes
_PIECE_BYTES = 1 << 20
_BATCH = 32  # folders whose objects are sent together; their pointers follow when all objects have arrived
_AT_ONCE = 8  # requests

Item = TypeVar("Item")


class Unfit(BenchError):  # noqa: N818 - what the object is
    """An object of a store that can't be used; `kind` classifies the damage."""

    def __init__(self, kind: DamageKind, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind: DamageKind = kind


class StoreRefused(Unfit):
    """The store is away or rejected the request: nothing is known about the object."""

    def __init__(self, message: str) -> None:
        super().__init__("unreadable", message, "Give the command again when the store is well: nothing is lost.")


class ObjectStore(Protocol):
    """A place for objects by key. Thread-safe; methods raise StoreRefused."""

    @property
    def name(self) -> str: ...

    def sizes(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Yield the keys below a prefix, with the bytes of each."""

    def put(self, key: str, source: Path | bytes, sha256: str) -> None: ...

    def read(self, key: str) -> Iterable[bytes]:
        """Yield the content in pieces. Raise FileNotFoundError if there is no such object."""


class Carried(Model):
    """The result of transferring one trial folder."""

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
    """An object store in a folder."""

    def __init__(self, root: Path) -> None:
        self._root, self.name = root, str(root)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for parent, folders, files in os.walk(self._root / prefix):
            folders.sort()
            for file in sorted(files):
                if not file.startswith("."):
                    path = Path(parent, file)
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size

    def put(self, key: str, source: Path | bytes, sha256: str) -> None:
        path = self._root / key
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            make_folders(path.parent)
            if isinstance(source, bytes):
                temporary.write_bytes(source)
            else:
                shutil.copyfile(source, temporary)
            sync(temporary)
            put_in_place(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise unwritable(self._root, error) from error

    def read(self, key: str) -> Iterator[bytes]:
        try:
            with (self._root / key).open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreRefused(f"can't read {key}: {error.strerror or error}") from error


def object_key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def pointers(shelf: ObjectStore, runs: Iterable[str] | None = None) -> list[Pointer]:
    """Return the trial folders of a store, of all runs or only of `runs`. Other keys are ignored."""
    prefixes = ["trials/"] if runs is None else [f"trials/{run}/" for run in sorted(set(runs))]
    matches = (_POINTER.fullmatch(key) for prefix in prefixes for key, _ in shelf.sizes(prefix))
    return [Pointer(*match.groups()) for match in matches if match]


@dataclass(frozen=True)
class _Planned:
    """The planned transfer of one folder; `pointer` is None if nothing is to be written."""

    carried: Carried
    pointer: Pointer | None = None
    new: Mapping[str, Path] = field(default_factory=dict)


def push(shelf: ObjectStore, folders: Iterable[TrialFolder], *, dry_run: bool = False) -> Iterator[Carried]:
    """Put sealed folders into a store. Each is checked before it is sent, and each new object is read back.

    An object that has another size is written again: some servers keep an empty object of a writer that was killed.
    """
    there: dict[str, int] | None = None
    with ThreadPoolExecutor(_AT_ONCE) as crew:
        for batch in _batches(folders):
            if there is None:
                there = dict(shelf.sizes("objects/")) | dict(shelf.sizes("trials/"))
            planned = [_plan(folder, there) for folder in batch]
            if not dry_run:
                list(crew.map(partial(_put, shelf), [item for plan in planned for item in plan.new.items()]))
                list(crew.map(partial(_enter, shelf), [plan.pointer for plan in planned if plan.pointer]))
            yield from (plan.carried for plan in planned)


def _plan(folder: TrialFolder, there: dict[str, int]) -> _Planned:
    """Check a folder and plan the objects that the store lacks, by the sizes in `there`, to which they are added."""
    path = f"{folder.path.parent.name}/{folder.path.name}"
    if damage := verify(folder):
        return _Planned(Carried(run_id="", folder=path, what="refused", reason=_describe(damage)))
    manifest = read_manifest(folder)
    pointer = Pointer(manifest.run_id, folder.path.parent.name, folder.path.name, manifest_digest(folder))
    parts = {object_key(entry.sha256): folder.path / name for name, entry in manifest.files.items()}
    parts[object_key(pointer.manifest)] = folder.manifest
    sizes = {key: part.stat().st_size for key, part in parts.items()}
    new = {key: part for key, part in parts.items() if there.get(key) != sizes[key]}
    if not new and there.get(pointer.key) == len(_text(pointer)):
        return _Planned(Carried(run_id=manifest.run_id, folder=path, what="same"))
    there |= sizes
    size = sum(sizes[key] for key in new)
    carried = Carried(run_id=manifest.run_id, folder=path, what="new", objects=len(new), size=size)
    return _Planned(carried, pointer, new)


def pull(shelf: ObjectStore, results: Path, wanted: Iterable[Pointer], *, dry_run: bool = False) -> Iterator[Carried]:
    """Fetch folders of a store into `results`, each checked as a whole before it gets its name."""
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


def check(shelf: ObjectStore, wanted: Iterable[Pointer]) -> Iterator[tuple[Pointer, int, list[Damage]]]:
    """Hash every object of these folders once. Yield the bytes read and the damage of each folder."""
    seen: dict[ManifestEntry, Unfit | None] = {}
    with ThreadPoolExecutor(_AT_ONCE) as crew:
        for batch in _batches(wanted):
            opened = list(crew.map(partial(_read_folder, shelf), batch))
            new = list(dict.fromkeys(entry for files, _ in opened for entry in files.values() if entry not in seen))
            compared = dict(zip(new, crew.map(partial(_compare, shelf), new), strict=True))
            seen |= {entry: fault for entry, (_, fault) in compared.items()}
            for pointer, (files, faults) in zip(batch, opened, strict=True):
                read = sum(compared.pop(entry)[0] for entry in files.values() if entry in compared)
                faults |= {name: fault for name, entry in files.items() if (fault := seen[entry])}
                yield pointer, read, [
                    Damage(trial=pointer.path, file=file, kind=fault.kind, detail=fault.message)
                    for file, fault in faults.items()
                ]  # fmt: skip


def _read_folder(shelf: ObjectStore, pointer: Pointer) -> tuple[Mapping[str, ManifestEntry], dict[str, Unfit]]:
    """Return the files of a folder as far as they are known, and the faults of its pointer and its manifest."""
    faults: dict[str, Unfit] = {}
    try:
        if _content(shelf, pointer.key) != _text(pointer):
            faults[pointer.key] = Unfit("changed", "its text does not fit its name")
    except Unfit as unfit:
        faults[pointer.key] = unfit
    try:
        return _manifest(shelf, pointer).files, faults
    except Unfit as unfit:
        return {}, faults | {"manifest.json": unfit}


def _compare(shelf: ObjectStore, entry: ManifestEntry) -> tuple[int, Unfit | None]:
    """Return the number of bytes read of an object, and its fault or None."""
    try:
        sha256, size = _digest(shelf, object_key(entry.sha256), entry.bytes)
    except Unfit as unfit:
        return 0, unfit
    return size, None if (sha256, size) == (entry.sha256, entry.bytes) else _changed(sha256, entry.sha256)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _put(shelf: ObjectStore, part: tuple[str, Path]) -> None:
    key, source = part
    expected = key.rpartition("/")[2]
    shelf.put(key, source, expected)
    try:
        if (sha256 := _digest(shelf, key, source.stat().st_size)[0]) != expected:
            raise _changed(sha256, expected)
    except StoreRefused:
        raise
    except Unfit as unfit:
        raise BenchError(f"{shelf.name}: {key}: {unfit.message}, right after it was written") from unfit


def _enter(shelf: ObjectStore, pointer: Pointer) -> None:
    text = _text(pointer)
    shelf.put(pointer.key, text, hashlib.sha256(text).hexdigest())


def _text(pointer: Pointer) -> bytes:
    return f"{pointer.manifest}\n".encode()


def _bring(shelf: ObjectStore, pointer: Pointer, final: TrialFolder, dry_run: bool) -> Carried:
    manifest = _manifest(shelf, pointer)
    carried = Carried(
        run_id=pointer.run_id, folder=pointer.path, what="new", objects=len(manifest.files) + 1,
        size=sum(entry.bytes for entry in manifest.files.values()),
    )  # fmt: skip
    if dry_run:
        return carried
    partial = TrialFolder(final.path.with_name(f".pull-{final.path.name}.{uuid4().hex}"))
    try:
        make_folders(final.path.parent)
        for name, entry in manifest.files.items():
            _fetch(shelf, entry.sha256, partial.path / name, entry.bytes)
        _fetch(shelf, pointer.manifest, partial.manifest, _MOST_MANIFEST_BYTES)
        if damage := verify(partial, pointer.manifest):
            raise BenchError(f"it came changed: {_describe(damage)}")
        sync_tree(partial.path)
        put_in_place(partial.path, final.path)
    except OSError as error:
        raise unwritable(final.path.parent, error) from error
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return carried


def _fetch(shelf: ObjectStore, sha256: str, path: Path, most_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        try:
            fetched, _ = _digest(shelf, object_key(sha256), most_bytes, file)
        except Unfit as unfit:
            raise BenchError(f"{path.name}: {unfit.message} in {shelf.name}") from unfit
    if fetched != sha256:
        raise BenchError(f"{path.name}: {_changed(fetched, sha256).message} in {shelf.name}")


def _manifest(shelf: ObjectStore, pointer: Pointer) -> Manifest:
    """Return the manifest, checked against the pointer; no name in it leads out of its folder. Raise Unfit."""
    content = _content(shelf, object_key(pointer.manifest))
    if (sha256 := hashlib.sha256(content).hexdigest()) != pointer.manifest:
        raise _changed(sha256, pointer.manifest, "the manifest: ")
    try:
        manifest = older.read(Manifest, content)
    except ValidationError as error:
        reason = f"the manifest {pointer.manifest[:12]} can't be read: {error.errors()[0]['msg']}"
        raise Unfit("unreadable", reason) from error
    for what, named, entered in (
        ("run", manifest.run_id, pointer.run_id),
        ("scenario", manifest.scenario, pointer.scenario),
    ):
        if named != entered:
            raise Unfit("changed", f"the manifest is of {what} {named}, entered as one of {entered}")
    return manifest


def _content(shelf: ObjectStore, key: str) -> bytes:
    content = io.BytesIO()
    _digest(shelf, key, _MOST_MANIFEST_BYTES, content)
    return content.getvalue()


def _digest(shelf: ObjectStore, key: str, most_bytes: int, into: BinaryIO | None = None) -> tuple[str, int]:
    """Return the sha256 and size of an object, and write it `into` a file if given. Raise Unfit.

    An object longer than `most_bytes` is not read to its end, because a faulty store may send it endlessly.
    """
    sha256, size = hashlib.sha256(), 0
    try:
        for piece in shelf.read(key):
            sha256.update(piece)
            size += len(piece)
            if size > most_bytes:
                raise Unfit("changed", f"object {key.rpartition('/')[2][:12]} has more than {most_bytes:,} bytes")
            if into is not None:
                into.write(piece)
    except FileNotFoundError:
        name = key.rpartition("/")[2]
        raise Unfit("missing", f"object {name[:12]} is missing") from None
    return sha256.hexdigest(), size


def _changed(sha256: str, sealed: str, where: str = "") -> Unfit:
    return Unfit("changed", f"{where}sha256 {sha256[:12]}, sealed as {sealed[:12]}")


def _describe(damage: list[Damage]) -> str:
    first = damage[0]
    more = f" and {len(damage) - 1} more" if len(damage) > 1 else ""
    return f"{first.file}: {first.kind}" + (f" ({first.detail})" if first.detail else "") + more
