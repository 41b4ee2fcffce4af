"""Files with signed content: each has one canonical text, so that any changed byte is detected."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

LARGEST = 16 << 20
Kind = TypeVar("Kind", bound=Model)


class UnreadableError(BenchError):
    """A signed file is damaged or was changed."""


def signed_text(item: Model) -> str:
    """Return the canonical text."""
    return canonical_json(item.model_dump(mode="json")).decode() + "\n"


def read_signed(path: Path, kind: type[Kind]) -> Kind | None:
    """Return the item; None if there is no such file. Raise UnreadableError if it is damaged or not canonical."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{path} can't be read: {error.strerror}") from error
    try:
        item = kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "as a whole"
        raise UnreadableError(f"{path} can't be read ({where}: {first['msg']})") from error
    if signed_text(item).encode() != raw:
        raise UnreadableError(f"{path} was changed: it is not as it was written")
    return item
