"""Files that are written whole or not at all, and the time as they tell it."""

import os
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.schema.model import Model


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename. `seal` syncs what was written without."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_fresh(path: Path, text: str) -> None:
    """Write a file of a folder that is yet to be sealed, so that it may be torn by a kill; `seal` brings it to disk.

    What stood there under that name is never written into: it may be a link to elsewhere.
    """
    name, flags = os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o666)
    except FileExistsError:
        os.unlink(name)  # noqa: PTH108 - paths as objects are a tenth of a short trial
        handle = os.open(name, flags, 0o666)
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
        data = memoryview(text.encode())
        while data:
            data = data[file.write(data) :]


def write_model(path: Path, model: Model, *, sync: bool = True) -> None:
    write_text(path, model.model_dump_json(indent=2, by_alias=True) + "\n", sync=sync)
