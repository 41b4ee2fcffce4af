"""Files of one JSON object a line in the workspace's state: appended whole, read with bad lines left out."""

import fcntl
import os
from pathlib import Path
from typing import TypeVar

from benchhouse.schema.errors import unwritable
from benchhouse.schema.layout import Workspace
from benchhouse.schema.model import Model

Line = TypeVar("Line", bound=Model)


def baselines(workspace: Workspace) -> Path:
    return workspace.state / "baselines.jsonl"


def selftests(workspace: Workspace) -> Path:
    return workspace.state / "selftests.jsonl"


def alarms(workspace: Workspace) -> Path:
    return workspace.state / "alarms.jsonl"


def append(path: Path, line: Model, then: str) -> None:
    """One line, synced; two writers take turns. `then` is the command to give again where it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # torn by a kill in mid-write
                    file.write(b"\n")
            file.write(line.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error, then) from error


def read(path: Path, kind: type[Line]) -> tuple[list[Line], int]:
    """The lines, oldest first, and how many could not be read."""
    found, bad = [], 0
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], 0
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            found.append(kind.model_validate_json(line))
        except ValueError:
            bad += 1
    return found, bad
