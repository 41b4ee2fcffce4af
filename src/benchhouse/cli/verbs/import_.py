"""Import results of other tools: their files become runs, with values recomputed from the raw samples."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import FILE, completing, verb
from benchhouse.schema.errors import Exit
from benchhouse.schema.quoting import visible

if TYPE_CHECKING:
    from benchhouse.api.importing import ImportedRun, OwnFigure

_MOST_FIGURES = 20


@verb(
    f"{__doc__}\n\nThe tool is found out from the file. The same file is imported once. See: bench list importers.",
    "bench import hyperfine.json",
    "bench import k6.json.gz --as k6",
    "bench import results/   every file in it that an importer knows",
)
@click.argument("path", type=FILE, metavar="FILE|FOLDER")
@click.option("--as", "kind", metavar="KIND", help="Whose file it is, where it does not tell.",
              shell_complete=completing(lambda ws: ws.catalog.importers()))  # fmt: skip
@click.option("--mapping", type=FILE, metavar="FILE", help="What the columns of a CSV or Parquet file are.")
def command(workspace: Workspace, path: Path, kind: str | None, mapping: Path | None, as_json: bool) -> int:
    imports = workspace.import_results(path, kind=kind, mapping=mapping, progress=screen.RunProgress())
    code = Exit.GOOD if all(run.complete for run in imports.runs) else Exit.TRIAL_FAILED
    code = Exit.BAD_INPUT if imports.refused else code
    if as_json:
        screen.as_json(imports)
        return code
    for run in imports.runs:
        _show(run)
    if imports.unknown:
        screen.note(f"{screen.count(len(imports.unknown), 'file')} no importer knows: {', '.join(imports.unknown[:5])}")
    for file in imports.refused:
        screen.note(f"not imported: {file.because}\n  {file.hint}")
    if imports.runs:
        last = imports.runs[-1].run_id
        screen.note(f"next:  bench show {last}, bench report {last}")
    return code


def _show(run: "ImportedRun") -> None:
    tool = f"{run.tool} {run.tool_version or ''}".strip()
    state = "imported before" if run.before else "imported" if run.complete else "NOT imported: see bench status"
    click.echo(visible(f"{run.file}: {screen.count(run.cases, 'case')} of {tool}, {state}: run {run.run_id}"))
    if run.figures:
        rows = [
            (
                item.case,
                f"{item.metric} {item.stat}",
                "" if item.ours is None else screen.quantity(item.ours, item.unit),
                screen.quantity(item.theirs, item.unit),
                _difference(item.ours, item.theirs),
                item.because,
            )
            for item in sorted(run.figures, key=_explained)[:_MOST_FIGURES]
        ]
        columns = ("case", "figure", "from samples", f"by {run.tool}", "difference", "why")
        screen.table(columns, rows, right=columns[2:5], whole=columns[1:5])
        if (more := len(run.figures) - _MOST_FIGURES) > 0:
            screen.note(f"and {more} more: --json")
    for name, why in run.missing.items():
        click.echo(visible(f"no {name}: {why}"))
    for doubt in run.doubts:
        click.echo(visible(f"doubtful: {doubt}"))


def _explained(figure: "OwnFigure") -> bool:
    return bool(figure.because) or _difference(figure.ours, figure.theirs) in ("none", "")


def _difference(ours: float | None, theirs: float) -> str:
    if ours is None:
        return ""
    share = (ours - theirs) / abs(theirs) if theirs else ours - theirs
    return "none" if abs(share) < 1e-9 else f"{share:+.2%}".replace("-", "−")
