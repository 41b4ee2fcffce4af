"""Points in the order of their numbers (`ef=2` before `ef=16`), as each engine sorts them.

A text is cut into numbers and what stands between them; the list of these parts is the key. A number behind `=` may
have a sign, a fraction and an exponent; elsewhere it is a row of digits, for `llama-3-8b` has nothing below zero.
"""

# ruff: noqa: S608 - the names in these texts are our own

_PARTS = "=-?[0-9]{1,18}(?:[.][0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?|[0-9]{1,18}|[^0-9=]+|="


def duckdb_key(column: str) -> str:
    """What DuckDB is to sort by."""
    number = "{'text': '', 'number': CAST(ltrim(part, '=') AS DOUBLE)}"
    text = "{'text': part, 'number': 0.0}"
    choice = f"CASE WHEN regexp_matches(part, '[0-9]') THEN {number} ELSE {text} END"
    return f"list_transform(regexp_extract_all({column}, '{_PARTS}'), lambda part: {choice})"


def clickhouse_key(column: str) -> str:
    """What ClickHouse is to sort by."""
    pair = "(if(match(part, '[0-9]'), '', part), toFloat64OrZero(trimLeft(part, '=')))"
    return f"arrayMap(part -> {pair}, extractAll(assumeNotNull({column}), '{_PARTS}'))"


def postgres_key(column: str) -> str:
    """What PostgreSQL is to sort by."""
    number = "CAST(ltrim(part[1], '=') AS float8)"
    pair = f"CASE WHEN part[1] ~ '[0-9]' THEN ROW(''::text, {number}) ELSE ROW(part[1], 0::float8) END"
    parts = f"regexp_matches({column}, '{_PARTS}', 'g') WITH ORDINALITY AS parts(part, at)"
    return f"ARRAY(SELECT {pair} FROM {parts} ORDER BY at)"
