"""Results of other tools as runs: `bench import`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.analysis.summary import summarise
from benchhouse.api import execution
from benchhouse.api.execution import QUIET, RunListener
from benchhouse.api.run import Run
from benchhouse.evidence.writing import write_text
from benchhouse.runs import imports
from benchhouse.runs.ledger import Ledger, new_run_id
from benchhouse.runs.preparation import Where, prepare
from benchhouse.runs.records import open_run, resume_run
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import Reading
from benchhouse.schema.layout import ImportFolder

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


@dataclass(frozen=True)
class OwnFigure:
    """A figure that the tool itself gives, beside ours of the same samples."""

    case: str
    metric: str
    stat: str
    unit: str
    ours: float | None
    theirs: float
    because: str
    """Why they may differ; empty: nothing is known that would explain it."""


@dataclass(frozen=True)
class ImportedRun:
    """A file of another tool, and the run that was made of it."""

    run_id: str
    file: str
    kind: str
    tool: str
    tool_version: str | None
    sha256: str
    cases: int
    before: bool
    """Whether the same bytes had been imported before: then nothing was done."""
    complete: bool
    figures: tuple[OwnFigure, ...]
    missing: dict[str, str]
    """What the file does not say, and why."""


@dataclass(frozen=True)
class Imports:
    """What `bench import` did: runs, and files of a folder that no importer knows."""

    runs: tuple[ImportedRun, ...]
    unknown: tuple[str, ...] = ()


def import_path(
    workspace: "Workspace", path: Path, kind: str | None, mapping: Path | None, listener: RunListener = QUIET
) -> Imports:
    """Import a file, or each file of a folder that an importer knows, in the order of their names."""
    if not path.is_dir():
        return Imports((_import_file(workspace, path, kind, mapping, listener),))
    files = sorted(item for item in path.rglob("*") if item.is_file() and not item.name.startswith("."))
    chosen = {item: kind or next(iter(imports.kinds_of(item)), None) for item in files}
    known = [item for item, found in chosen.items() if found]
    parts = {part for item, found in chosen.items() if found for part in imports.further_parts(item, found)}
    known = [item for item in known if item not in parts]
    if not known:
        kinds = ", ".join(imports.importers())
        raise BenchError(f"{path}: no file in it is of a kind that an importer knows", f"there are {kinds}")
    runs = tuple(_import_file(workspace, item, kind, mapping, listener) for item in known)
    return Imports(runs, tuple(str(item) for item in files if item not in known and item not in parts))


def _import_file(
    workspace: "Workspace", path: Path, kind: str | None, mapping: Path | None, listener: RunListener
) -> ImportedRun:
    folder = imports.read(workspace.folder, path, kind, mapping)
    reading = Reading.model_validate_json(folder.reading.read_bytes())
    if not folder.run.is_file():
        write_text(folder.run, new_run_id())  # before the run is there: asked twice, there is one
    run_id = folder.run.read_text(encoding="utf-8")
    ledger = Ledger(workspace.folder.run(run_id))
    if ledger.folder.record.is_file():
        if any(event.event == "finished" for event in ledger.events()):
            return _imported(reading, Run(workspace, run_id), folder, before=True, complete=True)
        ledger, prepared = resume_run(workspace.folder, run_id)
    else:
        prepared = prepare(workspace.folder, folder.scenario, Where())
        ledger = open_run(workspace.folder, prepared, folder.scenario, listener.note, new=run_id)
    summary = execution.carry_out(workspace.folder, ledger, prepared, listener=listener)
    complete = summary.complete and set(summary.outcomes) <= {"succeeded"}
    return _imported(reading, Run(workspace, run_id, summary), folder, before=False, complete=complete)


def _imported(reading: Reading, run: Run, folder: ImportFolder, *, before: bool, complete: bool) -> ImportedRun:
    return ImportedRun(
        run_id=run.id,
        file=reading.file,
        kind=reading.kind,
        tool=reading.tool,
        tool_version=reading.tool_version,
        sha256=reading.sha256,
        cases=len(reading.cases),
        before=before,
        complete=complete,
        figures=tuple(_figures(reading, folder)),
        missing={name: why for case in reading.cases for name, why in case.missing.items()},
    )


def _figures(reading: Reading, folder: ImportFolder) -> Iterator[OwnFigure]:
    for case in reading.cases:
        settings = ", ".join(f"{name}={value}" for name, value in case.settings.items())
        label = f"{case.target['name']} {settings}".strip()
        for series in case.series:
            if series.told:
                ours = summarise(series.values(folder.samples)).stats()
                for figure in series.told:
                    yield OwnFigure(
                        label, series.metric.name, figure.stat, series.metric.unit, ours.get(figure.stat),
                        figure.value, figure.because,
                    )  # fmt: skip
