"""Tables of cheap checks: one test for a whole table, because each test item costs collection and reporting time."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_table(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the decorated test once for each row, and fail with a report of all rows that failed.

    The arguments are those of `pytest.mark.parametrize`. All rows share their fixtures, so a row must not change them.
    """
    columns, table = [name.strip() for name in names.split(",")], list(rows)
    assert table, "an empty table checks nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def check_rows(**fixtures: Any) -> None:
            failures = []
            for row in table:
                values = dict(zip(columns, row if len(columns) > 1 else [row], strict=True))
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:
                    lines = traceback.format_exception(error.with_traceback(error.__traceback__.tb_next))
                    failures.append(f"-- row {values!r:.300}\n{''.join(lines)}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(table)} rows failed\n" + "\n".join(failures), pytrace=False)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        check_rows.__signature__ = signature.replace(parameters=kept)
        return check_rows

    return decorate


def check_rows(check: Callable[..., None], rows: Iterable[Any]) -> None:
    """As `check_table`, inside a test: call `check` with each row. A tuple gives several arguments."""
    failures, count = [], 0
    for row in rows:
        count += 1
        try:
            check(*(row if isinstance(row, tuple) else (row,)))
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{row!r}\n{type(error).__name__}: {error}")
    assert count, "the table is empty"
    assert not failures, f"{len(failures)} of {count} rows failed\n" + "\n\n".join(failures)
