"""Journals of a workspace: files with one JSON object per line, appended whole; bad lines are skipped when read."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, TypeVar

from benchhouse.processes.durable import make_folders, sync
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.model import Model

Line = TypeVar("Line", bound=Model)
_ROTATED = 7


def note(path: Path, lines: Sequence[Model], then: str) -> str:
    """Append lines for a verb that returns a verdict: return why that failed instead of raising; empty on success."""
    try:
        append(path, lines, then)
    except BenchError as error:
        return f"the verdict was not kept: {error.message}"
    return ""


def append(path: Path, lines: Model | Sequence[Model], then: str, *, rotate_at: int | None = None) -> None:
    """Append lines and sync them, under a lock. `then` is the command to repeat if they can't be written.

    A journal that would exceed `rotate_at` bytes is renamed first, and a new one is started: see `rotated`.
    """
    whole = [lines] if isinstance(lines, Model) else lines
    text = b"".join(line.model_dump_json().encode() + b"\n" for line in whole)
    if not text:
        return
    try:
        make_folders(path.parent)
        if rotate_at is not None:
            _rotate(path, rotate_at - len(text))
        with _locked(path) as file:
            is_new = not file.seek(0, os.SEEK_END)
            if not is_new:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # cut off by a kill during the write
                    file.write(b"\n")
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync(path.parent)
    except OSError as error:
        raise unwritable(path, error, then) from error


def rotated(path: Path) -> list[Path]:
    """Return the files of a rotated journal, oldest first: at most seven with a number, then the journal itself."""
    return [*(path.with_name(f"{path.name}.{number}") for number in range(_ROTATED, 0, -1)), path]


def _rotate(path: Path, most: int) -> None:
    """Rename a journal of more than `most` bytes, and those that were renamed before; the oldest is replaced."""
    with _locked(path) as file:
        if file.seek(0, os.SEEK_END) > max(most, 0):
            for older, newer in pairwise(rotated(path)):
                with contextlib.suppress(FileNotFoundError):
                    newer.replace(older)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Yield the file that has this name once its lock is held, because another writer may rotate it during the wait."""
    while True:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return


def read(path: Path, kind: type[Line]) -> tuple[list[Line], int]:
    """Return the lines, oldest first, and the number of lines that could not be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        return [], 0
    lines, bad = [], 0
    for line in filter(str.strip, text.split("\n")):
        try:
            lines.append(kind.model_validate_json(line))
        except ValueError:
            bad += 1
    return lines, bad
