"""Names that contain their owner, so that leftovers of a killed worker can be distinguished from what is in use."""

import contextlib
import itertools
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchhouse.processes.process_identity import OWNER, boot, identity, is_gone
from benchhouse.processes.tree import values_of

_OWNED = re.compile(r"(?P<name>[a-z0-9-]+)-(?P<owner>p\d+-s\d+-n\d+)-c\d+")
_TEMPORARY = re.compile(r"\..+\.(?P<boot>[0-9a-f]{12})-(?P<owner>p\d+-s\d+-n\d+)\.tmp")
_STALE_S = 3600.0  # writing any file of a workspace takes far less time
_serial = itertools.count(1)


def owned_name(name: str) -> str:
    clean = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100]
    return f"{clean or 'cage'}-{identity()}-c{next(_serial)}"


def is_left_behind(entry: str, prefix: str) -> bool:
    """Whether a folder or cgroup of that name starts with `prefix` and its owner has ended."""
    owned = _OWNED.fullmatch(entry)
    return owned is not None and owned["name"].startswith(prefix.lower()) and is_gone(owned["owner"])


def temporary_name(name: str) -> str:
    """Return the name to use until a file is complete and renamed to `name`; other machines may write to the same
    folder."""
    return f".{name}.{boot()}-{identity()}.tmp"


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything in it, as far as possible; links are removed, not followed.

    Folders may be nested deeper than a path can name, so each subfolder is moved to the top before it is emptied.
    """
    top = os.fspath(folder)
    with contextlib.suppress(OSError):
        os.chmod(top, 0o700)  # noqa: PTH101
        waiting = list(_emptied(top))
        while waiting:
            inner = waiting.pop()
            for number, path in enumerate(_emptied(inner)):
                waiting.append(f"{top}/.{len(waiting)}-{number}-{time.monotonic_ns()}")
                os.rename(path, waiting[-1])  # noqa: PTH104
            os.rmdir(inner)  # noqa: PTH106
        os.rmdir(top)  # noqa: PTH106


def _emptied(folder: str) -> Iterator[str]:
    """Remove the files of a folder. Yield the paths of its subfolders, made writable."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # noqa: PTH101
            yield entry.path
        else:
            os.unlink(entry.path)  # noqa: PTH108


def sweep_temporaries(folder: Path) -> list[str]:
    """Remove what killed processes left unfinished in a folder. Return the names.

    Files of living processes stay. For another machine or container, only the age can decide.
    """
    swept = []
    for name in os.listdir(folder) if folder.is_dir() else ():  # noqa: PTH208 - names
        owned, path = _TEMPORARY.fullmatch(name), folder / name
        if owned and ((owned["boot"] == boot() and is_gone(owned["owner"])) or _is_stale(path)):
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            swept.append(name)
    return swept


def _is_stale(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # its owner is done with it
        return time.time() - path.lstat().st_mtime > _STALE_S
    return False


def make_scratch(name: str) -> Path:
    """Create a private folder below $TMPDIR; `sweep_scratch` finds it if its owner is killed."""
    folder = Path(tempfile.gettempdir()) / owned_name(name)
    folder.mkdir(mode=0o700)
    return folder


class Scratch:
    """The private folder of a trial: an empty folder `work`, and the file `result`, which is also empty.

    A worker reuses it for its next trial if the previous one left nothing there: creating and removing three entries is
    a large part of the cost of a short trial.
    """

    def __init__(self, name: str) -> None:
        self.folder = make_scratch(name)
        self.work, self.result = self.folder / "work", self.folder / "result.json"
        self.work.mkdir()
        self._mode = self.work.stat().st_mode

    def renew(self) -> bool:
        """Empty the result. Return False if the folder contains anything else, which the next trial must not find."""
        try:
            if set(os.listdir(self.folder)) - {"work", "result.json"} or os.listdir(self.work):  # noqa: PTH208 - names
                return False
            if os.lstat(self.work).st_mode != self._mode:
                return False
            result = os.lstat(self.result)
            if stat.S_ISREG(result.st_mode) and result.st_nlink == 1:
                os.truncate(self.result, 0)
                return True
        except FileNotFoundError:
            return self.work.is_dir()  # there was no result
        except OSError:
            pass
        return False

    def remove(self) -> None:
        remove_tree(self.folder)


def sweep_scratch(prefix: str) -> None:
    """Remove the scratch folders of workers that were killed; those of other users stay."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).iterdir():
            if is_left_behind(path.name, prefix):
                remove_tree(path)


def left_processes() -> list[int]:
    """Return the processes that were started below an orchestrator that has ended."""
    return [pid for pid, owner in values_of(OWNER) if is_gone(owner)]
