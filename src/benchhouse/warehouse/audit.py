"""Audit of the catalog: each row is compared with the tables, and each table with its digest."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import (
    FILE_COLUMNS,
    FILE_NAME,
    MIGRATIONS,
    CatalogLost,
    RunEntry,
    TableCatalog,
    read_only_address,
)
from benchhouse.warehouse.run_tables import RUN_FACT, TRIAL_FACT
from benchhouse.warehouse.table import SCHEMA_VERSION
from benchhouse.warehouse.tables import EVIDENCE_TABLES, TABLES

Row = tuple[Any, ...]


def audit_tables(workspace: WorkspaceFolder) -> list[str]:
    """Return the problems of the catalog and its tables without repairing them. A lost catalog is one problem."""
    try:
        TableCatalog.open(workspace).close()
        with closing(sqlite3.connect(read_only_address(workspace.warehouse / FILE_NAME), uri=True)) as db:
            return list(_problems(workspace, db))
    except CatalogLost as lost:
        return [str(lost)]
    except BenchError as error:
        return [error.message]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [f"{FILE_NAME} can't be read: {error}"]


def collected_folders(workspace: WorkspaceFolder) -> dict[Path, str]:
    """Return every trial folder in the tables, with the manifest digest that they recorded."""
    with TableCatalog.open(workspace) as catalog:
        entries = catalog.files([TRIAL_FACT.name])
    return {
        workspace.root / row["folder"]: row["artifact_manifest_digest"]
        for entry in entries
        for row in _rows(workspace.warehouse / entry.file, ("folder", "artifact_manifest_digest"))
    }


def outdated_runs(workspace: WorkspaceFolder) -> list[str]:
    """Return runs with complete tables of an older benchhouse: of an older schema, or without a current column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with TableCatalog.open(workspace) as catalog:
        entries = catalog.files(EVIDENCE_TABLES)
    outdated = set()
    for entry in entries:
        try:
            names = set(pq.read_schema(workspace.warehouse / entry.file).names)
        except (OSError, pa.ArrowException):
            continue  # damage, which the audit reports
        if entry.schema_version < SCHEMA_VERSION or {column.name for column in TABLES[entry.table].columns} - names:
            outdated.add(entry.run_id)
    return sorted(outdated)


def _problems(workspace: WorkspaceFolder, db: sqlite3.Connection) -> Iterator[str]:
    wrong = [str(row[0]) for row in db.execute("PRAGMA integrity_check(5)") if row[0] != "ok"]
    yield from (f"{FILE_NAME}: {line}" for line in wrong)
    if wrong:
        return
    yield from _check_schema(db)
    files = db.execute(f"SELECT {FILE_COLUMNS} FROM files").fetchall()  # noqa: S608 - our own names
    yield from _check_files(workspace, files)
    yield from _check_runs(workspace, db, files)
    yield from _check_published(workspace, db)


def _check_schema(db: sqlite3.Connection) -> Iterator[str]:
    fresh = sqlite3.connect(":memory:")
    for step in MIGRATIONS:
        step(fresh)
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2"
    if db.execute(schema).fetchall() != fresh.execute(schema).fetchall():
        yield f"{FILE_NAME}: its tables are not those of this version"
    fresh.close()


def _check_files(workspace: WorkspaceFolder, files: list[Row]) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table, run_id, file, sha256, rows, _, version, _, _ in files:
        path = workspace.warehouse / str(file)
        if table not in TABLES or file != f"{table}/{run_id}-{str(sha256)[:12]}.parquet" or version > SCHEMA_VERSION:
            yield f"{FILE_NAME}: {file} is no file of table {table} and run {run_id}"
            continue
        try:
            if file_digest(path) != sha256:
                yield f"{file}: its sha256 is not the one in the catalog"
            elif pq.read_metadata(path).num_rows != rows:
                yield f"{FILE_NAME}: {file} has other than {rows} rows"
        except (OSError, pa.ArrowException) as error:
            yield f"{file}: can't be read ({error})"


def _check_runs(workspace: WorkspaceFolder, db: sqlite3.Connection, files: list[Row]) -> Iterator[str]:
    """Check that the rows about runs and trials match the tables of each run."""
    runs = {row[0]: row for row in db.execute("SELECT * FROM runs")}
    trials: dict[str, set[Row]] = {}
    for trial, run_id, folder in db.execute("SELECT trial_id, run_id, folder FROM trials"):
        trials.setdefault(run_id, set()).add((trial, folder))
    of_run: dict[str, dict[str, Row]] = {}
    for entry in files:
        of_run.setdefault(entry[1], {})[entry[0]] = entry
    yield from (f"{FILE_NAME}: run {name} has no tables" for name in (runs.keys() | trials.keys()) - of_run.keys())
    for run_id, tables in of_run.items():
        if not {TRIAL_FACT.name, RUN_FACT.name} <= tables.keys() or run_id not in runs:
            yield f"{FILE_NAME}: run {run_id} lacks a table or its row"
            continue
        try:
            fact = list(_rows(workspace.warehouse / tables[TRIAL_FACT.name][2], ("trial_id", "folder", "started")))
            (run,) = _rows(workspace.warehouse / tables[RUN_FACT.name][2], RunEntry.__dataclass_fields__)
            entry_of_run = RunEntry.of(run)
            starts = [row["started"].isoformat(timespec="milliseconds") for row in fact]
        except (OSError, ValueError, AttributeError) as error:
            yield f"run {run_id}: its tables can't be read ({error})"
            continue
        if trials.get(run_id, set()) != {(row["trial_id"], row["folder"]) for row in fact}:
            yield f"{FILE_NAME}: its trials of run {run_id} are not those of the tables"
        if runs[run_id] != tuple(vars(entry_of_run).values()):
            yield f"{FILE_NAME}: its row of run {run_id} is not what the tables say"
        if any(entry[5] != len(fact) or entry[7:] != (min(starts), max(starts)) for entry in tables.values()):
            yield f"{FILE_NAME}: its files of run {run_id} name other trials or times"


def _check_published(workspace: WorkspaceFolder, db: sqlite3.Connection) -> Iterator[str]:
    """Check that each published ref is in its document, and that every file behind a document is pinned."""
    places: dict[str, set[str]] = {}
    for ref, report in db.execute("SELECT ref, report FROM published"):
        places.setdefault(report, set()).add(ref)
    reports = [path for each in ("*/report.json", "*/published/*.json") for path in workspace.reports.glob(each)]
    documents = [*reports, *workspace.claims.glob("*.json")]
    known = {path.relative_to(workspace.root).as_posix() for path in documents} | places.keys()
    pinned = {row[0] for row in db.execute("SELECT file FROM pinned")}
    rest_on: set[str] = set()
    refs: set[str] = set()
    for place in sorted(known):
        try:
            document = json.loads((workspace.root / place).read_bytes())
            held = {str(cell["ref"]) for cell in document["cells"]}
            files = {str(entry["file"]) for spec in document["queries"].values() for entry in spec["inputs"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"{place}: can't be read as a document of published numbers ({error!r})"
            continue
        refs |= held
        rest_on |= files
        if lost := places.get(place, set()) - held:
            yield f"{FILE_NAME}: {place} does not hold the number {min(lost)}"
    if missing := refs - {ref for held in places.values() for ref in held}:
        yield f"{FILE_NAME}: the published number {min(missing)} is not in it"
    if pinned != rest_on:
        yield f"{FILE_NAME}: its pins are not the files that published numbers rest on: {min(pinned ^ rest_on)}"


def _rows(path: Path, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield from pq.read_table(path, columns=list(columns)).to_pylist()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
