"""Files of one JSON object a line, the journals of a workspace: appended whole, read with bad lines left out."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.model import Model

Line = TypeVar("Line", bound=Model)


def note(path: Path, lines: Sequence[Model], then: str) -> str:
    """As `append`, for a verb that answers a question: returns why nothing was written, instead of raising."""
    try:
        append(path, lines, then)
    except BenchError as error:
        return f"the verdict was not kept: {error.message}"
    return ""


def append(path: Path, lines: Model | Sequence[Model], then: str) -> None:
    """Lines, synced; two writers take turns. `then` is the command to give again where they can't be written."""
    whole = [lines] if isinstance(lines, Model) else lines
    text = b"".join(line.model_dump_json().encode() + b"\n" for line in whole)
    if not text:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # torn by a kill in mid-write
                    file.write(b"\n")
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error, then) from error


def read(path: Path, kind: type[Line]) -> tuple[list[Line], int]:
    """The lines, oldest first, and how many could not be read."""
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
