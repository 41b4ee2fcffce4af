"""Import results of other tools as runs: `bench import`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.analysis.summary import summarise
from benchhouse.api import execution
from benchhouse.api.execution import QUIET, RunListener
from benchhouse.api.run import Run
from benchhouse.runs import imports
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Where, prepare
from benchhouse.runs.records import open_run, resume_run
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import ImportedReading, ReadCase
from benchhouse.schema.layout import ImportFolder

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


@dataclass(frozen=True)
class OwnFigure:
    """A value that the tool itself reports, next to ours from the same samples."""

    case: str
    metric: str
    stat: str
    unit: str
    ours: float | None
    theirs: float
    because: str
    """Why the two may differ; empty if no reason is known."""


@dataclass(frozen=True)
class ImportedRun:
    """A file of another tool, and the run that was made from it."""

    run_id: str
    file: str
    kind: str
    tool: str
    tool_version: str | None
    sha256: str
    cases: int
    before: bool
    """Whether the same bytes had been imported before; nothing was done then."""
    complete: bool
    figures: tuple[OwnFigure, ...]
    missing: dict[str, str]
    """Facts that the file does not state, and why."""
    doubts: tuple[str, ...] = ()
    """Reasons to doubt its values, found by the importer or reported by the tool itself."""


@dataclass(frozen=True)
class RefusedFile:
    """A file in a folder that an importer recognized, but that is not in its tool's format."""

    file: str
    because: str
    hint: str


@dataclass(frozen=True)
class Imports:
    """The result of `bench import`: runs and, for a folder, refused files and files that no importer recognizes."""

    runs: tuple[ImportedRun, ...]
    unknown: tuple[str, ...] = ()
    refused: tuple[RefusedFile, ...] = ()


def import_path(
    workspace: "Workspace", path: Path, kind: str | None, mapping: Path | None, listener: RunListener = QUIET
) -> Imports:
    """Import a file, or each file of a folder that an importer recognizes, in the order of their names.

    A refused file of a folder does not prevent the import of the others.
    """
    if not path.is_dir():
        return Imports((_import_file(workspace, path, kind, mapping, listener),))
    runs, unknown, refused = list[ImportedRun](), list[str](), list[RefusedFile]()
    parts = set[Path]()
    for item in _files(path, workspace.folder.results):
        try:
            if item in parts:
                continue
            if not (kinds := [kind] if kind else imports.kinds_of(item)):
                unknown.append(str(item))
                continue
            parts.update(imports.further_parts(item, kinds[0]))
            runs.append(_import_file(workspace, item, kind, mapping, listener))
        except BenchError as error:
            refused.append(RefusedFile(str(item), error.message, error.hint))
    if not runs and not refused:
        kinds = list(imports.importers())
        raise BenchError(f"{path}: no file in it is of a kind that an importer knows", f"there are {', '.join(kinds)}")
    return Imports(tuple(runs), tuple(unknown), tuple(refused))


def _files(folder: Path, evidence: Path) -> list[Path]:
    """Return all files below a folder except hidden ones and our own evidence, which holds earlier imports."""
    every = (item for item in folder.rglob("*") if item.is_file() and not item.is_relative_to(evidence))
    return sorted(item for item in every if not any(part[0] == "." for part in item.relative_to(folder).parts))


def _import_file(
    workspace: "Workspace", path: Path, kind: str | None, mapping: Path | None, listener: RunListener
) -> ImportedRun:
    folder = imports.read(workspace.folder, path, kind, mapping)
    reading = ImportedReading.model_validate_json(folder.reading.read_bytes())
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


def _imported(reading: ImportedReading, run: Run, folder: ImportFolder, *, before: bool, complete: bool) -> ImportedRun:
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
        missing=_of_cases(reading, lambda case: case.missing.items()),
        doubts=tuple(_of_cases(reading, lambda case: ((message, code) for code, message in case.doubts))),
    )


def _label(case: ReadCase) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in case.settings.items())
    return f"{case.target['name']} {settings}".strip()


def _of_cases(reading: ImportedReading, pairs: Callable[[ReadCase], Iterable[tuple[str, str]]]) -> dict[str, str]:
    """Return the notes of cases by name. A note that does not apply to all cases also names the first case it applies
    to."""
    cases: dict[tuple[str, str], list[ReadCase]] = {}
    for case in reading.cases:
        for pair in dict.fromkeys(pairs(case)):
            cases.setdefault(pair, []).append(case)
    named: dict[str, str] = {}
    for (name, value), own in cases.items():
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        named[name if len(own) == len(reading.cases) else f"{name} ({_label(own[0])}{more})"] = value
    return named


def _figures(reading: ImportedReading, folder: ImportFolder) -> Iterator[OwnFigure]:
    for case in reading.cases:
        label = _label(case)
        for series in case.series:
            if series.told:
                ours = summarise(series.values(folder.samples)).stats()
                for figure in series.told:
                    yield OwnFigure(
                        label, series.metric.name, figure.stat, series.metric.unit, ours.get(figure.stat),
                        figure.value, figure.because,
                    )  # fmt: skip
