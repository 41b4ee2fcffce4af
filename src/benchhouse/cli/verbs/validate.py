"""Check scenarios, logical benchmarks, and metrics.json: every mistake at once, with file, line, and column."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import FILE, verb
from benchhouse.cli.file_checks import check_files


@verb(__doc__, "bench validate scenarios/first.yaml   all mistakes, with line and column")
@click.argument("scenarios", nargs=-1, required=True, type=FILE)
def command(workspace: Workspace, scenarios: tuple[Path, ...], as_json: bool) -> int:
    def check(path: Path) -> tuple[dict[str, Any], str]:
        counts = workspace.validate(path).counts
        amounts = ", ".join(screen.count(number, noun.removesuffix("s")) for noun, number in counts.items())
        return {"valid": True, **counts}, f"valid, {amounts}"

    return check_files(scenarios, check, as_json)[0]
