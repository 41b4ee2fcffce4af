"""From evidence to tables: collect a run, rebuild everything, restore a lost catalog.

Collecting only ever adds to a run's tables: concurrent collectors merge what each of them has read, so none loses a
trial. Only a rebuild removes rows, namely those of trials whose evidence is gone or damaged.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchhouse.evidence.folder import list_folder, list_sealed
from benchhouse.evidence.verify import verify
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.catalog import UNFINISHED, CatalogLost, RunEntry, TableCatalog, TableFile
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.lake import READ_BACK, list_lake, read_back, write_tables
from benchhouse.warehouse.lineage_rows import lineage_columns
from benchhouse.warehouse.rows import NotCollectable, ReadRefused, TrialRows, read_folder, tabulate
from benchhouse.warehouse.run_tables import LINEAGE_DIM, MEASUREMENT_FACT, RUN_FACT, TRIAL_FACT
from benchhouse.warehouse.table import SCHEMA_VERSION
from benchhouse.warehouse.tables import EVIDENCE_TABLES

Say = Callable[[str], None]
Progress = Callable[[int, int, str], None]

_MERGE_ATTEMPTS = 100
_SHOWN = 3
_STALE_TEMPORARY_S = 3600.0


@dataclass(frozen=True)
class IngestResult:
    """The tables of a run after collecting, the folders that were left out, and the trials that a rebuild removed.

    `unread` are the given folders that were not read, each with the reason; `refused` are those of them that the system
    did not let us read, which may work another time.
    """

    run_id: str
    trials: int
    rows: int
    skipped: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Rebuilt:
    """The tables after a rebuild, what was left out, and which unused files were removed.

    `dropped` names each trial that was in the tables and has no valid evidence any more, with the reason; `unread`
    names each of the `sealed` folders that was not read: its trial is missing from the tables.
    """

    runs: int
    trials: int
    rows: int
    skipped: list[str]
    removed: list[str]
    dropped: list[str]
    sealed: int
    unread: list[str]


def collect(workspace: WorkspaceFolder, run_id: str, folders: Iterable[Path], say: Say | None = None) -> IngestResult:
    """Add a run's sealed folders to the tables. Trials collected earlier stay, whether given again or not."""
    given = sorted(set(folders))
    sweep_temporaries(workspace.warehouse / UNFINISHED)
    with open_catalog(workspace, say, given) as catalog:
        return _collect(catalog, run_id, given)


def refresh(workspace: WorkspaceFolder, runs: Iterable[str]) -> None:
    """Make the tables of these runs again from their rows, because facts about the runs have changed."""
    with open_catalog(workspace) as catalog:
        known = {entry.run_id for entry in catalog.files([TRIAL_FACT.name])}
        for run_id in sorted(known & set(runs)):
            _collect(catalog, run_id, [])


def rebuild(workspace: WorkspaceFolder, progress: Progress | None = None, *, keep_rows: bool = False) -> Rebuilt:
    """Make the tables again from all evidence under results/; the same evidence gives the same bytes.

    Trials whose evidence is gone or damaged are removed, unless `keep_rows`: then those in intact files stay. Published
    numbers are found again in reports/, their files stay readable, and files that nothing refers to are removed.
    """
    skipped: list[str] = []
    with TableCatalog.open_for_rebuild(workspace) as catalog:
        _publish_again(catalog, skipped)
        folders, unread = sealed_folders(workspace), list[str]()
        evidence = _group_by_run(folders, unread)
        in_lake = grouped(list_lake(workspace), itemgetter(0))
        lake = {run_id: [file for _, file in files] for run_id, files in in_lake.items()}
        strangers = [f"{file}: not a name of this warehouse; ignored" for file in lake.pop("", [])]
        known = {entry.run_id for entry in catalog.files([TRIAL_FACT.name])}
        run_ids = sorted(evidence.keys() | lake.keys() | known)
        done = list[IngestResult]()
        for at, run_id in enumerate(run_ids, start=1):
            extra = [] if run_id in known else lake.get(run_id, [])
            done.append(_collect(catalog, run_id, evidence.get(run_id, []), extra, keep_rows=keep_rows))
            if progress:
                progress(at, len(run_ids), run_id)
        catalog.finish()
        # For other runs, files of an older schema may be all that is left.
        known = {run.run_id for run in done if run.trials or not keep_rows}
        removed = catalog.remove_unused(file for run_id, files in lake.items() for file in files if run_id in known)
    removed += _remove_temporaries(workspace)
    skipped += unread + [line for run in done for line in run.skipped]
    unread += [line for run in done for line in run.unread]
    skipped += [line for line in strangers if (workspace.warehouse / line.partition(":")[0]).exists()]
    dropped = [line for run in done for line in run.dropped]
    trials, rows = sum(run.trials for run in done), sum(run.rows for run in done if run.trials)
    return Rebuilt(sum(run.trials > 0 for run in done), trials, rows, skipped, removed, dropped, len(folders), unread)


def store(catalog: TableCatalog, run_id: str, trials: dict[str, TrialRows], instead_of: list[TableFile]) -> int | None:
    """Write and register one run's tables from rows in memory, and return the number of rows. Without trials, remove
    the run.

    Return None if another process replaced `instead_of` in the meantime.
    """
    if not trials:
        return 0 if catalog.forget_run(run_id, instead_of) else None
    tables: dict[str, Any] = {**tabulate(list(trials.values()))}
    for row in tables.get(LINEAGE_DIM.name, ()):
        row |= lineage_columns(catalog.workspace, row)
    entries = write_tables(catalog.workspace, run_id, tables)
    run = RunEntry.of(tables[RUN_FACT.name][0])
    folders = [(row["trial_id"], row["folder"]) for row in tables[TRIAL_FACT.name]]
    units = {(row["metric"], row["unit"]) for row in tables.get(MEASUREMENT_FACT.name, ())}
    won = catalog.replace_run(run, entries, folders, sorted(units), instead_of=instead_of)
    catalog.remove_unused(entry.file for entry in (instead_of if won else entries))
    return sum(entry.rows for entry in entries) if won else None


def open_catalog(workspace: WorkspaceFolder, say: Say | None = None, given: Iterable[Path] = ()) -> TableCatalog:
    """Open the catalog; a missing or damaged one is rebuilt first, which `say` reports.

    `given` is evidence about to be collected: if there is no other, there is nothing to rebuild.
    """
    try:
        return TableCatalog.open(workspace)
    except CatalogLost as lost:
        known = {path.resolve() for path in given}
        nothing_else = not any(True for _ in list_lake(workspace)) and all(
            path.resolve() in known for path in sealed_folders(workspace)
        )
        if nothing_else and "damaged" not in str(lost):
            with TableCatalog.open_for_rebuild(workspace) as catalog:
                catalog.finish()
        else:
            warn = say or logging.getLogger(__name__).warning
            warn(f"{lost}; it is made again from the evidence")
            # The user did not ask to remove rows: the evidence may be on a disk that is not mounted.
            made = rebuild(workspace, keep_rows=True)
            if made.unread:
                left_out = f"{len(made.unread)} of {made.sealed} sealed trials"
                warn(f"{left_out} are not in the tables: bench warehouse rebuild")
        return TableCatalog.open(workspace)


def sealed_folders(workspace: WorkspaceFolder) -> list[Path]:
    """Return every sealed trial folder under results/, without unfinished and superseded ones."""
    return [path for path in list_sealed(workspace.results) if ".attempt-" not in path.name]


def _collect(
    catalog: TableCatalog, run_id: str, folders: list[Path], lake_files: Iterable[str] = (), *, keep_rows: bool = True
) -> IngestResult:
    skipped, refused = list[str](), list[str]()
    fresh = _read_folders(catalog.workspace, run_id, folders, skipped, refused, whole=not keep_rows)
    for _ in range(_MERGE_ATTEMPTS):
        base = catalog.files_of(run_id)
        notes, dropped = list[str](), list[str]()
        known = _kept(catalog, run_id, base, fresh, lake_files, notes)
        if not keep_rows:
            known = _prove(catalog, run_id, known, fresh, dropped)
        trials = known | fresh
        notes = [line for line in [*skipped, *notes] if line not in dropped]
        if not trials and not dropped:
            return IngestResult(run_id, 0, 0, notes, unread=skipped, refused=refused)
        rows = store(catalog, run_id, trials, base)
        if rows is not None:
            return IngestResult(run_id, len(trials), rows, notes, dropped, skipped, refused)
        time.sleep(0.01)
    raise BenchError(
        f"run {run_id}: other processes kept changing its tables, {_MERGE_ATTEMPTS} times in a row",
        hint=f"Try again: bench collect {run_id}",
    )


def _read_folders(
    workspace: WorkspaceFolder,
    run_id: str,
    folders: Iterable[Path],
    skipped: list[str],
    refused: list[str] | None = None,
    *,
    whole: bool = False,
) -> dict[str, TrialRows]:
    """Return the rows of trials whose evidence is unchanged: of the files that rows come from, or with `whole` of all
    files."""
    trials: dict[str, TrialRows] = {}
    for folder in folders:
        try:
            if whole and (damage := verify(TrialFolder(folder))):
                what = ", ".join(f"{item.file} {item.kind}" for item in damage[:_SHOWN])
                raise NotCollectable(f"not what was sealed: {what}")
            rows = read_folder(workspace, TrialFolder(folder))
            if rows.trial["run_id"] != run_id:
                raise NotCollectable(f"belongs to run {rows.trial['run_id']}")
        except NotCollectable as reason:
            skipped.append(f"{folder}: {reason}")
            if refused is not None and isinstance(reason, ReadRefused):
                refused.append(skipped[-1])
            continue
        known = trials.get(rows.trial["trial_id"])
        if known is None or rows.trial["attempt"] >= known.trial["attempt"]:
            trials[rows.trial["trial_id"]] = rows
    return trials


def _kept(
    catalog: TableCatalog,
    run_id: str,
    base: list[TableFile],
    fresh: dict[str, TrialRows],
    lake_files: Iterable[str],
    notes: list[str],
) -> dict[str, TrialRows]:
    """Return the trials in the tables that are not in `fresh`: from the tables if intact, otherwise from evidence."""
    workspace = catalog.workspace
    known = catalog.trial_folders(run_id)
    missing = {trial: folder for trial, folder in known.items() if trial not in fresh}
    kept: dict[str, TrialRows] = {}
    if missing or lake_files:
        wanted = [entry for entry in base if entry.table in READ_BACK]
        good = all(entry.schema_version == SCHEMA_VERSION and catalog.is_intact(entry) for entry in wanted)
        kept = read_back(workspace, {*(entry.file for entry in wanted if good), *lake_files}, notes)
        missing = {trial: folder for trial, folder in missing.items() if trial not in kept}
    return kept | _read_folders(workspace, run_id, missing.values(), notes)


def _prove(
    catalog: TableCatalog, run_id: str, known: dict[str, TrialRows], fresh: dict[str, TrialRows], dropped: list[str]
) -> dict[str, TrialRows]:
    """Return the trials in the tables that are not in `fresh`, read again from their folders; others are added to
    `dropped`."""
    root = catalog.workspace.root
    folders = catalog.trial_folders(run_id) | {trial: root / rows.trial["folder"] for trial, rows in known.items()}
    missing = sorted({folder for trial, folder in folders.items() if trial not in fresh})
    dropped += [f"{folder}: its folder is gone" for folder in missing if not folder.exists()]
    there = [folder for folder in missing if folder.exists()]
    return _read_folders(catalog.workspace, run_id, there, dropped, whole=True)


def _group_by_run(folders: list[Path], unread: list[str]) -> dict[str, list[Path]]:
    """Group folders by the run id in the manifest alone, which is checked when the folder is read."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        try:
            run_id = json.loads(TrialFolder(folder).manifest.read_bytes())["run_id"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            unread.append(f"{folder}: manifest.json can't be read ({error})")
            continue
        groups.setdefault(str(run_id), []).append(folder)
    return groups


def _publish_again(catalog: TableCatalog, skipped: list[str]) -> None:
    """Register published documents. Of two places the last one counts, the copy in published/, because the next report
    overwrites report.json.

    Raise OSError if a document can't be read: without its pins, the files behind its numbers would be removed.
    """
    workspace = catalog.workspace
    homes = sorted(list_folder(workspace.reports))
    replaced = [path for path in (home / "report.json" for home in homes) if path.is_file()]
    kept = [path for home in homes for path in sorted(list_folder(home / "published"))]
    claims = sorted(list_folder(workspace.claims))  # a claim has its cells and queries as a report does
    for path in [*(path for path in claims if path.suffix == ".json"), *replaced, *kept]:
        try:
            report: dict[str, Any] = json.loads(path.read_bytes())
            refs = [str(cell["ref"]) for cell in report["cells"]]
            files = [str(entry["file"]) for spec in report["queries"].values() for entry in spec["inputs"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{path}: not a report that can be read ({error!r})")
            continue
        catalog.publish(path.relative_to(workspace.root).as_posix(), refs, files)


def _remove_temporaries(workspace: WorkspaceFolder) -> list[str]:
    """Remove the temporary files of killed writers and return them. Older versions wrote them into the table folders,
    with only their pid in the name."""
    sweep_temporaries(workspace.warehouse / UNFINISHED)
    paths = [path for table in EVIDENCE_TABLES for path in sorted((workspace.warehouse / table).glob(".*.tmp"))]
    stale = [path for path in paths if time.time() - path.stat().st_mtime > _STALE_TEMPORARY_S]
    for path in stale:
        path.unlink(missing_ok=True)
    return [f"{path.parent.name}/{path.name}" for path in stale]
