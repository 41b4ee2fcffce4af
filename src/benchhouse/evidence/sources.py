"""Data sources of a trial, fetched into the data cache and laid out below one folder."""

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.sources import DataSource

if TYPE_CHECKING:
    from benchhouse.http.client import DownloadLimits, DownloadMeter

Build = Callable[[str, Callable[[Path], None]], Path]
"""Builds an entry of a data cache once and returns its path, given its key and the function that makes it."""
_PIECE = 1 << 20
_MOST_RATIO = 200  # most bytes unpacked per byte of an archive; sources and texts reach 20
_FREE_BYTES = 256 << 20  # unpacked before the ratio counts
_MOST_ENTRIES = 1_000_000
_MOST_HEADER = 1 << 20  # most bytes of a member's names and attributes, which `tarfile` reads into memory
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


def stage(sources: Sequence[DataSource], folder: Path, build: Build) -> list[dict[str, Any]]:
    """Lay the sources out below `folder` as links into the cache. Return the origin, path, and digest of each.

    Raise BenchError if one can't be fetched or has another digest than expected.
    """
    facts = []
    for source in sources:
        key = digest([source.url or file_or_tree_digest(Path(source.file)), source.md5, source.sha256, source.unpack])
        name = Path(urlsplit(source.url).path or source.file).name
        path = build(f"source-{name}-{key}", partial(_bring, source))
        _link(path, folder / source.path)
        facts.append({"source": source.url or source.file, "path": source.path, "sha256": file_or_tree_digest(path)})
    return facts


def file_or_tree_digest(path: Path) -> str:
    """Return the sha256 of a file, or for a folder that of the names and digests of all files in it."""
    if not path.is_dir():
        return file_digest(path) if path.exists() else ""
    return digest([[str(item.relative_to(path)), file_digest(item)] for item in sorted(_files(path))])


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _link(path: Path, place: Path) -> None:
    """Make links to files in new folders, because several sources may share a folder."""
    for file in _files(path) if path.is_dir() else [path]:
        link = place / file.relative_to(path) if path.is_dir() else place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def _bring(source: DataSource, part: Path) -> None:
    whole = part.with_name(f"{part.name}.whole") if source.unpack else part
    if source.file:
        _copy(Path(source.file), whole)
    elif source.url.startswith("s3://"):
        _get(source, whole)
    else:
        _download(source, whole)
    _check(source, whole)
    if source.unpack:
        _unpack(whole, part, source.max_size)


def _copy(path: Path, part: Path) -> None:
    try:
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, part)
    except OSError as error:
        raise BenchError(f"can't copy {path}: {error.strerror or error}") from error


def _limits(source: DataSource) -> "DownloadLimits":
    from benchhouse.http.client import DownloadLimits

    return DownloadLimits(source.max_size, source.max_time)


def _download(source: DataSource, part: Path) -> None:
    from benchhouse.http.client import HttpClient, NoAnswer

    client = HttpClient(source.max_time, wait_s=60, proxy=True, redirects=True)
    try:
        with part.open("wb") as target:
            client.download(source.url, target, _limits(source))
    except NoAnswer as error:
        hint = error.hint or "check the address, and that this machine reaches it"
        raise BenchError(f"can't fetch {error.message}", hint) from error
    except OSError as error:
        raise BenchError(f"can't write {part}: {error.strerror or error}") from error


def _get(source: DataSource, part: Path) -> None:
    """Fetch an object, or all objects below that name if there is none."""
    from benchhouse.http.client import DownloadMeter, NoAnswer
    from benchhouse.http.s3_bucket import S3Refused, open_bucket

    url, meter = source.url, DownloadMeter(source.url, _limits(source))
    bucket, key = open_bucket(url, "", os.environ)
    try:
        if not url.endswith("/"):
            try:
                with part.open("wb") as target:
                    _write(bucket.read(key), target, meter)
                return
            except S3Refused as refused:
                if refused.kind != "http_404":
                    raise
                part.unlink()
        keys = [name for name, _ in bucket.sizes(f"{key}/") if not name.endswith("/")]
        if not keys:
            raise BenchError(f"can't fetch {url}: there is no such object, and none below it")
        for name in keys:
            file = part / name.removeprefix(f"{key}/")
            if not file.resolve().is_relative_to(part.resolve()):
                raise BenchError(f"can't fetch {url}: the object {name} would lie outside of its folder")
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as target:
                _write(bucket.read(name), target, meter)
    except S3Refused as refused:
        raise BenchError(f"can't fetch {url}: {refused.message}") from refused
    except NoAnswer as error:
        raise BenchError(f"can't fetch {error.message}", error.hint) from error
    finally:
        bucket.close()


def _write(pieces: Iterator[bytes], target: BinaryIO, meter: "DownloadMeter") -> None:
    for piece in pieces:
        meter.count(len(piece))
        target.write(piece)


def _check(source: DataSource, path: Path) -> None:
    if not source.md5 and not source.sha256:
        return
    where = source.url or source.file
    if path.is_dir():
        raise BenchError(f"{where} is a folder, and has no digest", "leave md5 and sha256 out, or name a file")
    for name, wanted in (("md5", source.md5), ("sha256", source.sha256)):
        if wanted and (found := _digest(path, name)) != wanted:
            message = f"wrong data: {where} has {name} {found}, the descriptor or scenario says {wanted}"
            raise BenchError(message, "the source has changed, or the digest is of another file")


def _digest(path: Path, name: str) -> str:
    running = hashlib.new(name, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            running.update(piece)
    return running.hexdigest()


def _unpack(archive: Path, folder: Path, max_size: int) -> None:
    most = min(_FREE_BYTES + _MOST_RATIO * archive.stat().st_size, max_size)
    try:
        with _opened(archive) as file, tarfile.TarFile(fileobj=_UnpackedArchive(file, most)) as tar:  # type: ignore[arg-type]
            tar.extractall(folder, members=_within(tar, most), filter="data")
    except (tarfile.TarError, OSError, EOFError, RecursionError, zlib.error, lzma.LZMAError) as error:
        hint = f"an archive may hold {_MOST_RATIO} times its own size, and `max_size` of the source at most"
        raise BenchError(f"can't unpack {archive.name.removesuffix('.whole')}: {error}", hint) from error
    archive.unlink()


def _opened(archive: Path) -> Any:
    with archive.open("rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), Path.open)(archive, "rb")


class _UnpackedArchive:
    """The bytes of an archive for `tarfile`, up to a limit and never many at once."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._most = file, most

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise tarfile.TarError(f"a header has {size:,} bytes")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, position: int) -> None:
        self._check(position)
        self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._most:
            raise tarfile.TarError(f"it holds more than {self._most:,} bytes")


def _within(tar: tarfile.TarFile, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield each member before it is unpacked. Raise for links and special files, and for too many members or bytes.

    Links are refused here because the filter of `tarfile` follows them out of the folder in some Python versions
    (CVE-2025-4517).
    """
    held = 0
    for count, member in enumerate(tar, 1):
        if not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a folder")
        if member.issparse() or member.size < 0:
            raise tarfile.TarError(f"{member.name!r} has a size that its bytes do not have")
        held += member.size + tarfile.BLOCKSIZE
        if held > most:
            raise tarfile.TarError(f"it holds more than {most:,} bytes")
        if count > _MOST_ENTRIES:
            raise tarfile.TarError(f"it holds more than {_MOST_ENTRIES:,} files and folders")
        yield member
