"""Check scenario files: every mistake at once, with file, line and column."""

from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError, Exit


@click.command(help=__doc__)
@click.argument("scenarios", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def command(ctx: click.Context, scenarios: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.api import planning
    from benchhouse.cli import show_error

    results, good = [], True
    for path in scenarios:
        try:
            plans = [item.plan for item in planning.prepare_all(options.workspace(ctx), path)]
            counts = {
                "points": sum(plan.points for plan in plans),
                "trials": sum(plan.trial_count for plan in plans),
            }
        except BenchError as error:
            good = False
            problems = [item.as_dict() for item in getattr(error, "problems", [])]
            results.append({"file": str(path), "valid": False, "error": error.message, "problems": problems})
            if not as_json:
                show_error(error)
            continue
        results.append({"file": str(path), "valid": True, **counts})
        if not as_json:
            click.echo(
                f"{path}: valid, {show.count(counts['points'], 'point')}, {show.count(counts['trials'], 'trial')}"
            )
    if as_json:
        show.as_json(results)
    return Exit.GOOD if good else Exit.BAD_INPUT
