"""The files of a report: one folder per run, and the newest report of a scenario in the scenario's own folder."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.evidence.writing import write_text
from benchhouse.processes.durable import make_folders, put_in_place
from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.report import html, markdown
from benchhouse.report.figures import FigureFile, figure_files
from benchhouse.report.markdown import CHARTS
from benchhouse.report.png import write_pngs
from benchhouse.results.content import ReportData, ReportFile
from benchhouse.results.lineage import PUBLISHED, REPORT_FILE, publish
from benchhouse.schema.digests import digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import Cell, QuerySpec

_LONGEST_NAME = 100  # limit on the characters of a folder's name


def report_folder(workspace: WorkspaceFolder, scenario: str, run_ids: Sequence[str]) -> Path:
    """Return the folder for the report of these runs, which no other report uses."""
    name = "+".join(run_ids)
    if len(name) > _LONGEST_NAME:
        name = f"{run_ids[0]}+{len(run_ids) - 1}-{digest(list(run_ids))[:8]}"
    return workspace.reports / scenario / name


def write_report(workspace: WorkspaceFolder, data: ReportData) -> Path:
    """Write index.html, report.md, report.json, and charts/, each file whole or not at all, and make numbers traceable.

    They are in the folder of their runs; the newest of a scenario are in the scenario's folder too. Return the path of
    index.html.
    """
    folder = report_folder(workspace, data.scenario, [run.run_id for run in data.runs])
    home = folder.parent
    for place in (folder, home / PUBLISHED, folder / CHARTS):
        make_folders(place)
    for place in (home, home / PUBLISHED, folder, folder / CHARTS):
        sweep_temporaries(place)
    _keep_replaced(workspace, home)
    proof = report_json(data)
    kept = _kept(home, proof)
    write_text(kept, proof)
    publish(workspace, kept, data.queries, _cells(data))
    figures = figure_files(data)
    _write_charts(folder / CHARTS, figures)
    files = {REPORT_FILE: proof, "report.md": markdown.render(data, figures), "index.html": html.render(data)}
    for name, text in files.items():
        write_text(folder / name, text)
    for name in files:
        show_newest(folder / name)
    _remove_others(folder / CHARTS, figures)
    _show_newest_charts(folder / CHARTS)
    return folder / "index.html"


def _write_charts(folder: Path, figures: Mapping[str, FigureFile]) -> None:
    """Write the figures as standalone files."""
    for name, figure in figures.items():
        write_text(folder / name, figure.svg)
    write_pngs(folder, list(figures))


def _remove_others(folder: Path, figures: Mapping[str, FigureFile]) -> None:
    """Remove the charts of an earlier report of these runs; only now, because its text referred to them until now."""
    stems = {Path(name).stem for name in figures}
    for old in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        if old.stem not in stems:
            old.unlink()


def _show_newest_charts(folder: Path) -> None:
    """Link the charts into the scenario's folder, where the newest report refers to them, and remove old ones."""
    newest = folder.parent.parent / CHARTS
    make_folders(newest)
    sweep_temporaries(newest)
    names = {path.name for path in folder.iterdir()}
    for name in names:
        show_newest(folder / name, newest / name)
    for old in newest.iterdir():
        if old.name not in names:
            old.unlink()


def show_newest(file: Path, place: Path | None = None) -> None:
    """Put the file of a run into its scenario's folder under the same name: one file on disk if links are supported."""
    newest = place or file.parent.parent / file.name
    temporary = newest.with_name(temporary_name(newest.name))
    try:
        try:
            temporary.hardlink_to(file)
        except OSError:  # a file system without links
            shutil.copyfile(file, temporary)
        put_in_place(temporary, newest)
    finally:
        temporary.unlink(missing_ok=True)  # if both were already one file, a rename leaves both


def _kept(home: Path, proof: str) -> Path:
    """Return the path of the permanent copy of a report, which its numbers lead to after a later report replaces it."""
    return home / PUBLISHED / f"{hashlib.sha256(proof.encode()).hexdigest()[:16]}.json"


def _keep_replaced(workspace: WorkspaceFolder, home: Path) -> None:
    """Keep a report of a version that kept only the newest one, now that another report replaces it."""
    try:
        proof = (home / REPORT_FILE).read_text(encoding="utf-8")
        if (kept := _kept(home, proof)).exists():
            return
        replaced = json.loads(proof)
        queries = [QuerySpec.model_validate(query) for query in replaced["queries"].values()]
        cells = [Cell.model_validate(cell) for cell in replaced["cells"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # no report, so no number leads to it
    write_text(kept, proof)
    publish(workspace, kept, queries, cells)


def report_json(data: ReportData) -> str:
    """Return everything in the report as JSON; `bench trace` reads `queries` and `cells`, and a number names its cell
    by ref.

    Lines over time are left out, because their samples would be most of the report; their file and its digest are
    named.
    """
    samples: Any = {"panels": {"__all__": {"lines": {"__all__": {"times_s", "values"}}}}}
    cells: Any = {"__all__": {"numbers": {"__all__": {"cell"}}}}
    left_out: Any = {"queries": True, "machines": {"__all__": samples}, "points": cells}
    queries = {query.digest(): query for query in data.queries}
    file = ReportFile(queries=queries, cells=_cells(data), report=data)
    return file.model_dump_json(exclude={"report": left_out}) + "\n"


def _cells(data: ReportData) -> list[Cell]:
    return [number.cell for point in data.points for number in point.numbers]
