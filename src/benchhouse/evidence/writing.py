"""Files that are written whole or not at all, and times in their format."""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchhouse.processes.durable import put_in_place, sync, write_all, write_whole
from benchhouse.processes.owned_names import temporary_name
from benchhouse.schema.model import Model

_CLOCK_SET_S = 2.0


def now() -> str:
    """Return the time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def after(stamp: str, seconds: float) -> str:
    """Return the time `seconds` after `stamp`, independent of the clock."""
    return (datetime.fromisoformat(stamp) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def clock_change(expected: str) -> str:
    """Return how far the clock is from `expected`; empty if it agrees. The clock was set, or the machine slept."""
    off_s = (datetime.now(UTC) - datetime.fromisoformat(expected)).total_seconds()
    return f"{off_s:+,.0f} s" if abs(off_s) > _CLOCK_SET_S else ""


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a file whole or not at all, with its name on disk afterward. `seal` syncs files written without `sync`."""
    write_whole(path, text, durable=sync)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which then replaces `path`, synced and whole; an exception leaves `path` unchanged."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        sync(temporary)
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_fresh(path: Path, text: str) -> None:
    """Write a file of a folder that is not sealed yet. A kill may cut it off; `seal` syncs it.

    An existing file of that name is replaced and never written into, because it may be a link to elsewhere.
    """
    name, flags = os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o666)
    except FileExistsError:
        os.unlink(name)  # noqa: PTH108
        handle = os.open(name, flags, 0o666)
    try:
        write_all(handle, text.encode())
    finally:
        os.close(handle)


def write_model(path: Path, model: Model, *, sync: bool = True) -> None:
    write_text(path, model.model_dump_json(indent=2, by_alias=True) + "\n", sync=sync)
