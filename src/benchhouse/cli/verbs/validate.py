"""Check scenario files and logical benchmarks: every mistake at once, with file, line and column."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import BenchError, Exit


@click.command(help=__doc__)
@click.argument("scenarios", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def command(ctx: click.Context, scenarios: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.cli import show_error

    workspace, results, good = options.workspace(ctx), [], True
    for path in scenarios:
        try:
            counts = workspace.validate(path).counts
        except BenchError as error:
            good = False
            problems = [item.as_dict() for item in getattr(error, "problems", [])]
            results.append({"file": str(path), "valid": False, "error": error.message, "problems": problems})
            if not as_json:
                show_error(error)
            continue
        results.append({"file": str(path), "valid": True, **counts})
        if not as_json:
            amounts = ", ".join(screen.count(number, noun.removesuffix("s")) for noun, number in counts.items())
            click.echo(f"{path}: valid, {amounts}")
    if as_json:
        screen.as_json(results)
    return Exit.GOOD if good else Exit.BAD_INPUT
