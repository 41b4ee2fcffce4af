"""The files of a report: a folder for each run, and the newest one of a scenario in the scenario's own folder."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchhouse.evidence.writing import write_text
from benchhouse.processes.owned import sweep_temporaries, temporary_name
from benchhouse.report import html, markdown
from benchhouse.report.interval_chart import chart_files
from benchhouse.results.content import ReportData, ReportFile
from benchhouse.results.lineage import PUBLISHED, REPORT_FILE, publish
from benchhouse.schema.digests import digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import Cell, QuerySpec

_CHARTS = "charts"
_LONGEST_NAME = 100  # of the characters that a folder's name may have


def report_folder(workspace: WorkspaceFolder, scenario: str, run_ids: Sequence[str]) -> Path:
    """Where the report of these runs stands; no other run's report takes its place."""
    name = "+".join(run_ids)
    if len(name) > _LONGEST_NAME:
        name = f"{run_ids[0]}+{len(run_ids) - 1}-{digest(list(run_ids))[:8]}"
    return workspace.reports / scenario / name


def write_report(workspace: WorkspaceFolder, data: ReportData) -> Path:
    """Write index.html, report.md and report.json, each whole or not at all, and make every number traceable.

    They stand in the folder of their runs; the newest of a scenario are in the scenario's folder too. Returns the path
    of index.html.
    """
    folder = report_folder(workspace, data.scenario, [run.run_id for run in data.runs])
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.parent
    (home / PUBLISHED).mkdir(exist_ok=True)
    for place in (home, home / PUBLISHED, folder, folder / _CHARTS):
        sweep_temporaries(place)
    _keep_replaced(workspace, home)
    proof = report_json(data)
    kept = _kept(home, proof)
    write_text(kept, proof)
    publish(workspace, kept, data.queries, _cells(data))
    files = {REPORT_FILE: proof, "report.md": markdown.render(data), "index.html": html.render(data)}
    for name, text in files.items():
        write_text(folder / name, text)
    for name in files:
        show_newest(folder / name)
    _write_charts(folder / _CHARTS, data)
    return folder / "index.html"


def _write_charts(folder: Path, data: ReportData) -> None:
    """The charts as files that stand by themselves, in place of those of an earlier report of these runs."""
    charts = chart_files(data)
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        if old.name not in charts:
            old.unlink()
    for name, text in charts.items():
        write_text(folder / name, text, sync=False)


def show_newest(file: Path) -> None:
    """The file of a run under the same name in the folder of its scenario: one file on disk where links can be had."""
    newest = file.parent.parent / file.name
    temporary = newest.with_name(temporary_name(newest.name))
    try:
        try:
            temporary.hardlink_to(file)
        except OSError:  # a file system without links
            shutil.copyfile(file, temporary)
        temporary.replace(newest)
    finally:
        temporary.unlink(missing_ok=True)  # where both were one file already, a rename leaves both


def _kept(home: Path, proof: str) -> Path:
    """Where a report stays when a later one takes its place: a copy of its own, as its numbers lead to it."""
    return home / PUBLISHED / f"{hashlib.sha256(proof.encode()).hexdigest()[:16]}.json"


def _keep_replaced(workspace: WorkspaceFolder, home: Path) -> None:
    """A report of the time when only the newest was kept stays too, now that another takes its place."""
    try:
        proof = (home / REPORT_FILE).read_text(encoding="utf-8")
        if (kept := _kept(home, proof)).exists():
            return
        replaced = json.loads(proof)
        queries = [QuerySpec.model_validate(query) for query in replaced["queries"].values()]
        cells = [Cell.model_validate(cell) for cell in replaced["cells"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # nothing there, or no report: no number leads to it
    write_text(kept, proof)
    publish(workspace, kept, queries, cells)


def report_json(data: ReportData) -> str:
    """Everything in the report; `queries` and `cells` are what `bench trace` reads, a number names its cell by ref.

    Of a line over time it names the file that holds it, with its digest: the samples would be most of the report.
    """
    samples: Any = {"panels": {"__all__": {"lines": {"__all__": {"times_s", "values"}}}}}
    cells: Any = {"__all__": {"numbers": {"__all__": {"cell"}}}}
    left_out: Any = {"queries": True, "machines": {"__all__": samples}, "points": cells}
    queries = {query.digest(): query for query in data.queries}
    file = ReportFile(queries=queries, cells=_cells(data), report=data)
    return file.model_dump_json(exclude={"report": left_out}) + "\n"


def _cells(data: ReportData) -> list[Cell]:
    return [number.cell for point in data.points for number in point.numbers]
