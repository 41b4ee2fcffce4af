"""Checks of scenario text from a request, whose answer must not reveal this machine."""

import json
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import is_secret_variable, mentioned


def refuse_variables(given: Any) -> None:
    """Raise BenchError if a variable of the server would be read and shown; references to secrets stay references.

    `given` is the parsed content, because text can write `$` in other ways.
    """
    shown = sorted(name for name in mentioned(json.dumps(given, default=str)) if not is_secret_variable(name))
    if shown:
        raise BenchError(f"${shown[0]} is not read here: write the value")
