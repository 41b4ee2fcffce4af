"""Detection of user SQL whose answer for the same files never changes: it calls no clock and no random function."""

import re

_CALLED = re.compile(r"\b(\w+)\"?\s*\(")  # keywords before a bracket too
_PLAIN = re.compile(
    r"""select|from|where|and|or|not|in|on|as|by|over|filter|exists|values|with|join|then|when|else|case|having|between
    |like|distinct|using|all|any|union|except|intersect|cast|try_cast|decimal|varchar
    |count|sum|avg|mean|median|min|max|arg_min|arg_max|min_by|max_by|stddev|stddev_samp|stddev_pop|var_samp|mode
    |quantile|quantile_cont|quantile_disc|bool_and|bool_or|row_number|rank|dense_rank|lag|lead
    |round|floor|ceil|abs|ln|log|log10|sqrt|pow|power|greatest|least|coalesce|nullif|ifnull
    |lower|upper|length|trim|substr|substring|replace|concat|starts_with|contains|list_contains|len
    |date_trunc|epoch|epoch_ms|strftime""",
    re.VERBOSE,
)
_OTHER = re.compile(r"\b(?:current_\w+|localtime\w*|\w*sample|user|session_user|duckdb_\w+|sqlite_\w+|pg_\w+)\b|--|/\*")


def is_repeatable(sql: str) -> bool:
    """Return whether the SQL is repeatable; False if in doubt, because comments may hide a call."""
    words = sql.lower()
    return all(map(_PLAIN.fullmatch, _CALLED.findall(words))) and not _OTHER.search(words)
