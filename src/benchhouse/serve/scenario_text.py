"""What somebody sends as a scenario, or a part of one: its answer must not show this machine."""

import json
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import is_secret_variable, mentioned


def refuse_variables(given: Any) -> None:
    """Raises where a variable of the server would be read and shown; those of secrets stay references.

    `given` is what was parsed: a text may write `$` in other ways.
    """
    shown = sorted(name for name in mentioned(json.dumps(given, default=str)) if not is_secret_variable(name))
    if shown:
        raise BenchError(f"${shown[0]} is not read here: write the value")
