"""Sources of a trial, brought into the data cache and laid out below one folder."""

import hashlib
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.sources import Source

Build = Callable[[str, Callable[[Path], None]], Path]
"""Of a data cache: the path of what a key stands for, made once."""
_PIECE = 1 << 20
_MOST_RATIO = 200  # of what an archive holds to what it takes; sources and texts reach 20
_FREE_BYTES = 256 << 20  # unpacked before the ratio counts
_MOST_ENTRIES = 1_000_000


def stage(sources: Sequence[Source], folder: Path, build: Build) -> list[dict[str, Any]]:
    """Lay them out below `folder`, as links into the cache, and tell of each where it is from and its digest.

    Raises BenchError where one can't be had, or is not the one that was meant.
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
    """sha256 of a file; of a folder, that of the names and digests of all files in it."""
    if not path.is_dir():
        return file_digest(path) if path.exists() else ""
    return digest([[str(item.relative_to(path)), file_digest(item)] for item in sorted(_files(path))])


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _link(path: Path, place: Path) -> None:
    """Folders are made anew, of links to files: several sources may lie in one."""
    for file in _files(path) if path.is_dir() else [path]:
        link = place / file.relative_to(path) if path.is_dir() else place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(file)


def _bring(source: Source, part: Path) -> None:
    whole = part.with_name(f"{part.name}.whole") if source.unpack else part
    if source.file:
        _copy(Path(source.file), whole)
    elif source.url.startswith("s3://"):
        _get(source.url, whole)
    else:
        _download(source.url, whole)
    _check(source, whole)
    if source.unpack:
        _unpack(whole, part)


def _copy(path: Path, part: Path) -> None:
    try:
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, part)
    except OSError as error:
        raise BenchError(f"can't copy {path}: {error.strerror or error}") from error


def _download(url: str, part: Path) -> None:
    from benchhouse.http.client import HttpClient, NoAnswer

    client = HttpClient(timeout_s=60, total=False, proxy=True, redirects=True)
    try:
        with part.open("wb") as target:
            client.download(url, target)
    except NoAnswer as error:
        raise BenchError(
            f"can't fetch {error.message}", "check the address, and that this machine reaches it"
        ) from error


def _get(url: str, part: Path) -> None:
    """An object; where there is none of that name, all that lies below it."""
    from benchhouse.http.s3_bucket import S3Refused, open_bucket

    bucket, key = open_bucket(url, "", os.environ)
    try:
        if not url.endswith("/"):
            try:
                with part.open("wb") as target:
                    _write(bucket.read(key), target)
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
                _write(bucket.read(name), target)
    except S3Refused as refused:
        raise BenchError(f"can't fetch {url}: {refused.message}") from refused
    finally:
        bucket.close()


def _write(pieces: Iterator[bytes], target: BinaryIO) -> None:
    for piece in pieces:
        target.write(piece)


def _check(source: Source, path: Path) -> None:
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


def _unpack(archive: Path, folder: Path) -> None:
    most = _FREE_BYTES + _MOST_RATIO * archive.stat().st_size
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, members=_within(tar, most), filter="data")
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise BenchError(f"can't unpack {archive.name.removesuffix('.whole')}: {error}") from error
    archive.unlink()


def _within(tar: tarfile.TarFile, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield each member before it is unpacked. Raise for links and special files, and for too many members or bytes.

    Links are refused here because the filter of `tarfile` follows them out of the folder in some Python versions
    (CVE-2025-4517).
    """
    held = 0
    for count, member in enumerate(tar, 1):
        if not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a folder")
        held += member.size + tarfile.BLOCKSIZE
        if held > most:
            raise tarfile.TarError(f"it holds more than {_MOST_RATIO} times its size")
        if count > _MOST_ENTRIES:
            raise tarfile.TarError(f"it holds more than {_MOST_ENTRIES:,} files and folders")
        yield member
