"""Regular expressions that users write."""

import re


def compiled(pattern: str) -> "re.Pattern[str]":
    """Raises ValueError for what is none, and for what Python can't hold: too many repetitions, nested too deep."""
    try:
        return re.compile(pattern)
    except RecursionError:
        reason = "nested too deep"
    except (re.error, OverflowError) as error:
        reason = str(error)
    raise ValueError(f"not a regular expression: {reason}")
