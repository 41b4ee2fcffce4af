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


def write_model(path: Path, model: Model, *, sync: bool = True) -> None:
    write_text(path, model.model_dump_json(indent=2, by_alias=True) + "\n", sync=sync)
