"""Files that a verb checks: each is reported on its own, and all as one list with `--json`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.cli import show_error
from benchhouse.schema.errors import BenchError, Exit

Result = dict[str, Any]


def as_invalid(error: BenchError, problems: list[Result]) -> Result:
    return {"valid": False, "error": error.message, "problems": problems}


def check_files(
    files: Sequence[Path],
    check: Callable[[Path], tuple[Result, str]],
    as_json: bool,
    on_error: Callable[[BenchError, list[Result]], Result] = as_invalid,
) -> tuple[Exit, list[Result]]:
    """Check each file. Return the exit code, BAD_INPUT if `check` raises for a file, and what `--json` prints of each.

    `check` returns what `--json` prints, and a line for people.
    """
    results: list[Result] = []
    code = Exit.GOOD
    for path in files:
        try:
            result, line = check(path)
        except BenchError as error:
            code = Exit.BAD_INPUT
            result = on_error(error, [problem.as_dict() for problem in getattr(error, "problems", [])])
            if not as_json:
                show_error(error)
        else:
            if not as_json:
                click.echo(f"{path}: {line}")
        results.append({"file": str(path)} | result)
    if as_json:
        screen.as_json(results)
    return code, results
