"""Names of folders, which cannot contain a path out of their parent."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from benchhouse.schema.quoting import quote

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def can_name_a_folder(name: str) -> str:
    """Return `name`; raise ValueError if it cannot name a folder."""
    if not re.fullmatch(_NAME, name) or name.endswith("\n"):
        allowed = "at most 100 of a-z, A-Z, 0-9, '.', '_' and '-', with a letter or digit first"
        raise ValueError(f"{quote(name)} can't be a name: {allowed}")
    return name


Name = Annotated[
    str,
    AfterValidator(can_name_a_folder),
    Field(description="Letters, digits, '.', '_' and '-': it names a folder.", json_schema_extra={"pattern": _NAME}),
]
