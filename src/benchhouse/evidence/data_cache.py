"""The data cache: declared data, checked by sha256, and derived files, built once; both outlive the run."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from benchhouse.evidence.writing import write_text
from benchhouse.processes.durable import put_in_place, sync, sync_tree
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.experiment import Data

_NPM = "https://registry.npmjs.org/"
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)


class DataCache:
    """A cache that is safe for concurrent processes: a file gets its final name only when it is whole and checked."""

    def __init__(self, root: Path, experiment: str, data: Sequence[Data]) -> None:
        self.root = root
        self.experiment = experiment
        self.data = {item.name: item for item in data}

    def fetch(self, name: str) -> Path:
        if name not in self.data:
            declared = ", ".join(self.data) or "none"
            raise BenchError(f"experiment {self.experiment} declares no data '{name}' (declared: {declared})")
        item = self.data[name]
        path = self.root / "data" / item.sha256
        try:
            with self._lock(item.sha256):
                if not _is_sound(path, item.sha256):
                    self._fill(path, lambda part: _bring(item, part), item)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            if not _is_sound(path, item.sha256):  # a cache that another account fills need only be readable
                raise unwritable(self.root, error) from error
        return path

    def keep(self, source: Path, sha256: str) -> Path:
        """Return an unchanging copy of a file, under its own name. Raise BenchError if its digest is not `sha256`."""
        item = Data(name=source.name, source=f"file://{quote(str(source.absolute()))}", sha256=sha256)
        path = self.root / "datasets" / sha256 / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock(sha256):
            if not _is_sound(path, sha256):
                self._fill(path, lambda part: _bring(item, part), item)
        return path

    def build(self, key: str, make: Callable[[Path], None]) -> Path:
        name = f"{_file_name(key)[:60]}-{digest(key)[:12]}"
        path = self.root / "built" / _file_name(self.experiment) / name
        with self._lock(f"{self.experiment}-{name}"):
            if not _is_sound(path, _noted_digest(path)):
                self._fill(path, make, None)
                if path.is_file():
                    write_text(_note(path), file_digest(path))
        return path

    def _fill(self, path: Path, make: Callable[[Path], None], item: Data | None) -> None:
        """Build an entry. The caller holds the lock, so existing parts are left over from a killed process."""
        folder = path.parent / f".part-{path.name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            part = folder / path.name
            make(part)
            if item and (sha256 := file_digest(part)) != item.sha256:
                raise BenchError(
                    f"wrong data: '{item.name}' from {item.source} has sha256 {sha256}, declared is {item.sha256}",
                    "the source has changed, or the declaration is of another file",
                )
            if part.is_file():
                sync(part)  # before it has its name: a power failure must not leave a named, unchecked, empty file
                if item:
                    part.chmod(0o444)  # shared by all experiments that declare it, so read-only
            elif part.is_dir():
                sync_tree(part)
            put_in_place(part, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _file_name(name)).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


def _is_sound(path: Path, sha256: str) -> bool:
    """Return whether the entry exists with its original bytes; a damaged one is built again."""
    if path.is_dir():
        return True  # a derived folder is checked when it is built
    return path.is_file() and file_digest(path) == sha256


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _noted_digest(path: Path) -> str:
    try:
        return _note(path).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def nearest_source(url: str, environ: Mapping[str, str]) -> str:
    """Return the address for `url` from here: npm's setting for another registry applies to npm's packages."""
    registry = environ.get("npm_config_registry") or environ.get("NPM_CONFIG_REGISTRY") or _NPM
    return url.replace(_NPM, f"{registry.rstrip('/')}/", 1) if url.startswith(_NPM) else url


def _bring(item: Data, part: Path) -> None:
    if item.source.startswith(("http://", "https://")):
        _download(item.name, nearest_source(item.source, os.environ), part)
        return
    if item.source.startswith("file://"):
        try:
            shutil.copyfile(unquote(urlsplit(item.source).path), part)
        except OSError as error:
            raise BenchError(f"can't copy {item.name} from {item.source}: {error.strerror or error}") from error
        return
    package, _, inside = item.source.partition(":")
    from importlib.resources import files

    with files(package).joinpath(inside).open("rb") as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _download(name: str, url: str, part: Path) -> None:
    from benchhouse.http.client import DownloadLimits, HttpClient, NoAnswer

    limits = DownloadLimits()
    client = HttpClient(limits.max_time_s, wait_s=60, proxy=True, redirects=True)
    try:
        with part.open("wb") as target:
            client.download(url, target, limits)
    except NoAnswer as error:
        raise BenchError(f"can't download {name} from {error.message}", error.hint) from error
    except OSError as error:
        raise BenchError(f"can't write {part}: {error.strerror or error}") from error
