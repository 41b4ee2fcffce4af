"""The embedded engine behind the common interface: the lake of this or another workspace."""

import hashlib
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import RunEntry, TableCatalog, TableFile
from benchhouse.warehouse.engine import Files, RunTables, need_version, rows_digest
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.ingest import open_catalog
from benchhouse.warehouse.lake import encode, write_files
from benchhouse.warehouse.query import Parameters, Result, Runs, Warehouse
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT, RUN_FACT, TELEMETRY_SLICE_FACT, TRIAL_FACT
from benchhouse.warehouse.slices import slices_of
from benchhouse.warehouse.table import SCHEMA_VERSION, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES

if TYPE_CHECKING:
    import pyarrow as pa


class LakeEngine:
    """Parquet files and their catalog. Bytes that come from another lake are stored unchanged."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self._workspace, self.name = workspace, str(workspace.root)
        self._catalog: TableCatalog = open_catalog(workspace)

    def runs(self) -> dict[str, Files]:
        entries = grouped(self._catalog.files(EVIDENCE_TABLES), lambda entry: entry.run_id)
        return {run_id: {entry.table: entry.sha256 for entry in files} for run_id, files in entries.items()}

    def read(self, run_id: str) -> RunTables:
        entries = self._catalog.files_of(run_id)
        if not entries:
            raise BenchError(f"{self.name}: has no run {run_id}", "What it has: bench status")
        parquet = {entry.table: self._bytes(entry) for entry in entries}
        tables = {name: _decoded(EVIDENCE_TABLES[name], content) for name, content in parquet.items()}
        rows = {name: rows_digest(EVIDENCE_TABLES[name], content) for name, content in tables.items()}
        return RunTables(run_id, tables, {entry.table: entry.sha256 for entry in entries}, rows, parquet)

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        base = self._catalog.files_of(run.run_id)
        if {entry.table: entry.sha256 for entry in base} != dict(instead_of or {}):
            return False
        contents = {
            name: (run.parquet.get(name) or encode(EVIDENCE_TABLES[name], _as_collected(run, name)), content.num_rows)
            for name, content in run.tables.items()
        }
        trials = run.tables[TRIAL_FACT.name].select(["trial_id", "folder", "started"]).to_pylist()
        try:
            entries = write_files(self._workspace, run.run_id, contents, [row["started"] for row in trials])
        except OSError as error:
            raise unwritable(self._workspace.warehouse, error) from error
        (fact,) = run.tables[RUN_FACT.name].to_pylist()
        folders = [(row["trial_id"], row["folder"]) for row in trials]
        measured = run.tables.get(MEASUREMENT_FACT.name, MEASUREMENT_FACT.schema.empty_table())
        units = sorted(set(zip(*(measured.column(name).to_pylist() for name in ("metric", "unit")), strict=True)))
        won = self._catalog.replace_run(RunEntry.of(fact), entries, folders, units, instead_of=base)
        self._catalog.remove_unused(entry.file for entry in (base if won else entries))
        return won

    def query(self, sql: str, parameters: Parameters = None, *, runs: Runs = None, name: str = "") -> Result:
        with Warehouse(self._workspace, open_catalog(self._workspace)) as warehouse:
            return warehouse.query(sql, parameters, runs=runs, name=name)

    def close(self) -> None:
        self._catalog.close()

    def _bytes(self, entry: TableFile) -> bytes:
        where = f"{self.name}: {entry.file}"
        need_version(entry.schema_version, where)
        if entry.schema_version < SCHEMA_VERSION:
            raise BenchError(f"{where}: of an older schema", "Rebuild it from the evidence: bench warehouse rebuild")
        try:
            content = (self._workspace.warehouse / entry.file).read_bytes()
        except OSError as error:
            raise BenchError(f"{where}: {error.strerror}", "Rebuild it: bench warehouse rebuild") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise BenchError(
                f"{where}: its bytes are not those that were collected", "Rebuild it: bench warehouse rebuild"
            )
        return content


def _decoded(table: Table, content: bytes) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    decoded = pq.read_table(pa.BufferReader(content))
    if not decoded.schema.equals(table.schema):
        raise BenchError(f"its columns are not those of {table.name}", "Rebuild it: bench warehouse rebuild")
    return decoded


def _as_collected(run: RunTables, name: str) -> list[Any]:
    """Return the rows in the form in which the collector had them, so that the same bytes come out."""
    if name != TELEMETRY_SLICE_FACT.name:
        return list(run.tables[name].to_pylist())
    trials = {row["trial_id"]: row for row in run.tables[TRIAL_FACT.name].to_pylist()}
    return [(trials[trial], slices) for (trial, _), slices in slices_of(run.tables[name]).items()]
