"""Regular expressions that users write."""

import re


def compiled(pattern: str) -> "re.Pattern[str]":
    """Compile a pattern; raise ValueError if it is invalid, or too large or too deeply nested for Python."""
    try:
        return re.compile(pattern)
    except RecursionError:
        reason = "nested too deep"
    except (re.error, OverflowError) as error:
        reason = str(error)
    raise ValueError(f"not a regular expression: {reason}")
