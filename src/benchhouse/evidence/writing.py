"""Files that are written whole or not at all, and the time as they tell it."""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchhouse.processes.owned import temporary_name
from benchhouse.schema.model import Model

_CLOCK_SET_S = 2.0


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def after(stamp: str, seconds: float) -> str:
    """The time so much later, whatever a clock says then."""
    return (datetime.fromisoformat(stamp) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def clock_change(expected: str) -> str:
    """Where it is by the clock another time now than `expected`: by how much. A clock is set, or its machine slept."""
    off_s = (datetime.now(UTC) - datetime.fromisoformat(expected)).total_seconds()
    return f"{off_s:+,.0f} s" if abs(off_s) > _CLOCK_SET_S else ""


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename. `seal` syncs what was written without."""
    folder, name = os.path.split(path)
    temporary = f"{folder or '.'}/{temporary_name(name)}"  # paths as objects are a tenth of a short trial
    try:
        _write(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666), text, sync=sync)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what then takes the place of `path`, synced and whole; where anything is raised, nothing does."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_fresh(path: Path, text: str) -> None:
    """Write a file of a folder that is yet to be sealed, so that it may be torn by a kill; `seal` brings it to disk.

    What stood there under that name is never written into: it may be a link to elsewhere.
    """
    name, flags = os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o666)
    except FileExistsError:
        os.unlink(name)  # noqa: PTH108
        handle = os.open(name, flags, 0o666)
    _write(handle, text, sync=False)


def _write(handle: int, text: str, *, sync: bool) -> None:
    """All of it, and the file is closed."""
    try:
        data = memoryview(text.encode())
        while data:
            data = data[os.write(handle, data) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def sync(path: str | Path) -> None:
    """What a file holds, or the entries of a folder, are on disk afterwards."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_model(path: Path, model: Model, *, sync: bool = True) -> None:
    write_text(path, model.model_dump_json(indent=2, by_alias=True) + "\n", sync=sync)
