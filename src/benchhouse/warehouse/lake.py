"""The lake: one Parquet file per (table, run), named by its digest, written whole or not at all, never changed."""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.evidence.folder import list_folder
from benchhouse.processes.durable import make_folders, sync
from benchhouse.processes.owned_names import temporary_name
from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import UNFINISHED, TableFile
from benchhouse.warehouse.dimensions import OWN_IDS
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.rows import Content, NotCollectable, TrialRows
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT, TELEMETRY_SLICE_FACT, TRIAL_FACT
from benchhouse.warehouse.slices import NO_SLICES, Slices, join, slices_of
from benchhouse.warehouse.table import SCHEMA_VERSION, Row, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"(?P<run>.+)-(?P<sha>[0-9a-f]{12})\.parquet")


def write_tables(workspace: WorkspaceFolder, run_id: str, tables: Mapping[str, Content]) -> list[TableFile]:
    """Write the files of one run, synced to disk; equal rows give equal bytes and thus equal names."""
    contents = {
        # A tuple: a trial's slices.
        name: (encode(EVIDENCE_TABLES[name], rows), sum(len(row[1]) if isinstance(row, tuple) else 1 for row in rows))
        for name, rows in tables.items()
    }
    trials: list[Any] = tables[TRIAL_FACT.name]
    return write_files(workspace, run_id, contents, [row["started"] for row in trials])


def write_files(
    workspace: WorkspaceFolder, run_id: str, contents: Mapping[str, tuple[bytes, int]], started: Iterable[datetime]
) -> list[TableFile]:
    """Write the files of one run from their bytes and row counts, by table; `started` has one time per trial."""
    starts = [time.isoformat(timespec="milliseconds") for time in started]
    first, last = min(starts), max(starts)
    entries = []
    for name, (content, rows) in contents.items():
        sha256 = hashlib.sha256(content).hexdigest()
        file = f"{name}/{run_id}-{sha256[:12]}.parquet"
        entries.append(TableFile(name, run_id, file, sha256, rows, len(starts), SCHEMA_VERSION, first, last))
    _write(str(workspace.warehouse), [(entry, contents[entry.table][0]) for entry in entries])
    return sorted(entries, key=lambda entry: entry.table)


def encode(table: Table, rows: Sequence[Any]) -> bytes:
    """Return the Parquet file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchhouse.warehouse.columns import records

    content = join(rows) if table is TELEMETRY_SLICE_FACT else records(rows, table.schema)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        content.schema,
        compression="zstd",
        write_statistics=["run_id"],  # a file is one group of rows: others would skip nothing
        store_schema=False,  # Parquet's own types are sufficient
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata(table.schema.metadata)
    return bytes(sink.getvalue().to_pybytes())


READ_BACK = frozenset({TRIAL_FACT.name, MEASUREMENT_FACT.name, TELEMETRY_SLICE_FACT.name, *OWN_IDS})
"""The tables with content of the evidence, from which the other tables are made."""


def read_back(workspace: WorkspaceFolder, files: Iterable[str], skipped: list[str]) -> dict[str, TrialRows]:
    """Return the trials in these files. Damaged files and files of other programs are reported in `skipped`.

    If a trial is in files of several collects, the one in which it ended last is used.
    """
    trials: dict[str, Row] = {}
    numbers: dict[tuple[str, str], list[Row]] = {}
    slices: dict[tuple[str, str], Slices] = {}
    dimensions: dict[str, dict[str, Row]] = {table: {} for table in OWN_IDS}
    for file in sorted(files):
        table = EVIDENCE_TABLES[file.partition("/")[0]]
        if table.name not in READ_BACK:
            continue
        try:
            content = _read(workspace.warehouse / file, table)
        except NotCollectable as reason:
            skipped.append(f"{file}: {reason}; ignored")
            continue
        if table is TRIAL_FACT:
            for row in content.to_pylist():
                known = trials.get(row["trial_id"])
                if known is None or row["ended"] >= known["ended"]:
                    trials[row["trial_id"]] = row
        elif table is TELEMETRY_SLICE_FACT:
            slices |= slices_of(content)
        elif table is MEASUREMENT_FACT:
            numbers |= grouped(content.to_pylist(), itemgetter("trial_id", "artifact_manifest_digest"))
        else:
            dimensions[table.name] |= {row[OWN_IDS[table.name]]: row for row in content.to_pylist()}
    read = {}
    for trial_id, row in trials.items():
        key = trial_id, row["artifact_manifest_digest"]
        own = {table: rows[row[OWN_IDS[table]]] for table, rows in dimensions.items() if row[OWN_IDS[table]] in rows}
        if len(own) == len(OWN_IDS):  # otherwise the evidence has to be read
            read[trial_id] = TrialRows(row, numbers.get(key, []), slices.get(key, NO_SLICES), own)
    return read


def list_lake(workspace: WorkspaceFolder) -> Iterator[tuple[str, str]]:
    """Yield (run_id, file) for every file in the lake's table folders; the run is empty if the name is not ours."""
    for table in EVIDENCE_TABLES:
        for path in sorted(list_folder(workspace.warehouse / table)):
            match = _NAME.fullmatch(path.name)
            yield (match["run"] if match else ""), f"{table}/{path.name}"


def _read(path: Path, table: Table) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    match = _NAME.fullmatch(path.name)
    try:
        if match is None or not file_digest(path).startswith(match["sha"]):
            raise NotCollectable("half-written or changed: its bytes do not match the digest in its name")
        content = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise  # a disk error: its rows may be all that is left
        raise NotCollectable(f"can't be read ({error})") from error
    version = (content.schema.metadata or {}).get(b"benchhouse.schema_version", b"").decode()
    if version != str(SCHEMA_VERSION):
        raise NotCollectable(f"schema version {version or 'none'}, expected {SCHEMA_VERSION}")
    if not content.schema.equals(table.schema):
        raise NotCollectable(f"its columns are not those of {table.name}")
    return content


def _write(root: str, files: Iterable[tuple[TableFile, bytes]]) -> None:
    """Write each file whole or not at all; the files and their names are on disk before the catalog names them.

    All are written before the first is synced, and each folder is synced once, so that waiting for the disk is rare.
    """
    begun: list[tuple[int, TableFile, str]] = []
    try:
        for entry, content in files:
            path = f"{root}/{entry.file}"
            if os.path.isfile(path) and file_digest(Path(path)) == entry.sha256:  # noqa: PTH113 - ten times per run
                continue
            temporary = f"{root}/{UNFINISHED}/{temporary_name(entry.file.replace('/', '-'))}"
            file = _create(temporary)
            begun.append((file, entry, temporary))
            left = memoryview(content)
            while left:
                left = left[os.write(file, left) :]
        for file, entry, temporary in begun:
            os.fsync(file)
            _move(temporary, f"{root}/{entry.file}")
        for folder in {os.path.dirname(entry.file) for _, entry, _ in begun}:  # noqa: PTH120 - ten times per run
            sync(f"{root}/{folder}")
    except BaseException:
        for _, _, temporary in begun:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108 - as above
        raise
    finally:
        for file, _, _ in begun:
            os.close(file)


def _create(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - once
        return os.open(path, flags, 0o666)


def _move(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)  # noqa: PTH105 - as above
    except FileNotFoundError:
        make_folders(Path(path).parent)
        os.replace(temporary, path)  # noqa: PTH105
