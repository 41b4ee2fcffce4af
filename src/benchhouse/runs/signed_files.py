"""Files whose content somebody signed: each has one spelling, so that another byte is another file."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

LARGEST = 16 << 20
Kind = TypeVar("Kind", bound=Model)


class UnreadableError(BenchError):
    """What was signed is damaged or was changed."""


def signed_text(item: Model) -> str:
    """The one spelling."""
    return canonical_json(item.model_dump(mode="json")).decode() + "\n"


def read_signed(path: Path, kind: type[Kind]) -> Kind | None:
    """None where there is no such file."""
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
