"""Check scenario files and logical benchmarks: every mistake at once, with file, line and column."""

from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import Workspace


@click.command(help=__doc__)
@click.argument("scenarios", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def command(ctx: click.Context, scenarios: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.cli import show_error

    results, good = [], True
    for path in scenarios:
        try:
            counts = _check(options.workspace(ctx), path)
        except BenchError as error:
            good = False
            problems = [item.as_dict() for item in getattr(error, "problems", [])]
            results.append({"file": str(path), "valid": False, "error": error.message, "problems": problems})
            if not as_json:
                show_error(error)
            continue
        results.append({"file": str(path), "valid": True, **counts})
        if not as_json:
            told = ", ".join(show.count(number, noun.removesuffix("s")) for noun, number in counts.items())
            click.echo(f"{path}: valid, {told}")
    if as_json:
        show.as_json(results)
    return Exit.GOOD if good else Exit.BAD_INPUT


def _check(workspace: Workspace, path: Path) -> dict[str, int]:
    """What there is of a good file; raises for any other."""
    from benchhouse.api import logical, planning

    if (checked := logical.validate_file(path)) is not None:
        if not checked.good:
            raise checked.failure
        return {"bindings": checked.bindings}
    plans = [item.plan for item in planning.prepare_all(workspace, path)]
    return {"points": sum(plan.points for plan in plans), "trials": sum(plan.trial_count for plan in plans)}
