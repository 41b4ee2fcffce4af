"""Files and folders that survive a power failure.

A file system guarantees the content of a file once the file is synced, and a name once its folder is synced. Everything
in the package that gets its final name by a rename or a link gets it here.
"""

import contextlib
import os
from pathlib import Path

from benchhouse.processes.owned_names import temporary_name


def sync(path: str | Path) -> None:
    """Sync the content of a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Sync everything below a folder, and its own entries, to disk; links are not followed."""
    for parent, _, files in os.walk(folder):
        for name in files:
            if not os.path.islink(path := f"{parent}/{name}"):  # noqa: PTH114 - text: there may be thousands
                sync(path)
        sync(parent)


def put_in_place(made: str | Path, final: str | Path) -> None:
    """Rename a synced file or folder, and sync its new name to disk. A file at `final` is replaced."""
    os.replace(made, final)  # noqa: PTH105 - text: once per trial
    sync(os.path.dirname(final) or ".")  # noqa: PTH120


def link_in_place(made: Path, final: Path) -> None:
    """Give a synced file a second name, and sync that to disk. Raises FileExistsError if the name exists."""
    os.link(made, final)
    sync(final.parent)


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, and sync the entries of the new ones to disk."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def write_whole(path: str | Path, content: str | bytes, mode: int = 0o666, *, durable: bool = True) -> None:
    """Write a file atomically. If `durable`, its content and its name are on disk afterwards.

    The umask applies to `mode`. A file that is not durable may be empty after a power failure.
    """
    folder, name = os.path.split(path)
    temporary = f"{folder or '.'}/{temporary_name(name)}"  # as objects, paths take a tenth of a short trial
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(handle, content.encode() if isinstance(content, str) else content)
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        if durable:
            put_in_place(temporary, path)
        else:
            os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def write_all(handle: int, content: bytes) -> None:
    """Write all of the content to an open file."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]
