"""The lake: one Parquet file per (table, run), named by its digest, written whole or not at all, never changed."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import Workspace
from benchhouse.warehouse.catalog import FileEntry
from benchhouse.warehouse.columns import column
from benchhouse.warehouse.dimensions import OWN_IDS
from benchhouse.warehouse.rows import Content, TrialRows
from benchhouse.warehouse.slices import NO_SLICES, Slices, join, slices_of
from benchhouse.warehouse.table import SCHEMA_VERSION, Row, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES, MEASUREMENT_FACT, TELEMETRY_SLICE_FACT, TRIAL_FACT

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"(?P<run>.+)-(?P<sha>[0-9a-f]{12})\.parquet")


_FEW, _VERY_FEW = 256, 8  # rows


class Foreign(Exception):  # noqa: N818 - a reason, told to the user in a list
    """Why a file in the lake is not one of ours."""


def write_tables(workspace: Workspace, run_id: str, tables: Mapping[str, Content]) -> list[FileEntry]:
    """Write the files of one run, synced to disk; equal rows give equal bytes and so equal names."""
    trials: list[Any] = tables[TRIAL_FACT.name]
    starts = [row["started"].isoformat(timespec="milliseconds") for row in trials]
    entries = []
    for name, rows in tables.items():
        content = encode(EVIDENCE_TABLES[name], rows)
        number = sum(len(row[1]) if isinstance(row, tuple) else 1 for row in rows)  # a tuple is a trial with its slices
        sha256 = hashlib.sha256(content).hexdigest()
        file = f"{name}/{run_id}-{sha256[:12]}.parquet"
        _write(workspace.warehouse / file, content, sha256, synced=name in READ_BACK)
        entries.append(
            FileEntry(name, run_id, file, sha256, number, len(starts), SCHEMA_VERSION, min(starts), max(starts))
        )
    return sorted(entries, key=lambda entry: entry.table)


def encode(table: Table, rows: Sequence[Any]) -> bytes:
    """The Parquet file of these rows, zstd-compressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if table is TELEMETRY_SLICE_FACT:
        content = join(rows)
    else:
        schema = table.schema()
        values = zip(*map(itemgetter(*schema.names), rows), strict=True) if rows else ((),) * len(schema)
        columns = [column(each, field.type) for each, field in zip(values, schema, strict=True)]
        content = pa.Table.from_arrays(columns, schema=schema)
    sink = pa.BufferOutputStream()
    few = content.num_rows <= _FEW  # of such a file most of the cost is a dictionary and statistics of each column
    with pq.ParquetWriter(
        sink,
        content.schema,
        compression="zstd" if content.num_rows > _VERY_FEW else "none",
        use_dictionary=not few,
        write_statistics=[] if few else ["run_id"],  # a file is one group of rows: others would skip nothing
        store_schema=False,  # Parquet's own types say all there is to say
    ) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata(table.schema().metadata)
    return bytes(sink.getvalue().to_pybytes())


READ_BACK = frozenset({TRIAL_FACT.name, MEASUREMENT_FACT.name, TELEMETRY_SLICE_FACT.name, *OWN_IDS})
"""Tables that hold what was in the evidence; the others are made of these."""


def read_back(workspace: Workspace, files: Iterable[str], skipped: list[str]) -> dict[str, TrialRows]:
    """The trials that these files hold. Files that are not whole, or not ours, are named in `skipped`.

    Where files of several collects are given, a trial is taken from the one in which it ended last.
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
        except Foreign as reason:
            skipped.append(f"{file}: {reason}; ignored")
            continue
        if table is TRIAL_FACT:
            _take_newest(trials, content.to_pylist())
        elif table is TELEMETRY_SLICE_FACT:
            slices |= slices_of(content)
        elif table is MEASUREMENT_FACT:
            numbers |= _by_trial(content.to_pylist())
        else:
            dimensions[table.name] |= {row[OWN_IDS[table.name]]: row for row in content.to_pylist()}
    found = {}
    for trial_id, row in trials.items():
        key = trial_id, row["artifact_manifest_digest"]
        own = {table: rows[row[OWN_IDS[table]]] for table, rows in dimensions.items() if row[OWN_IDS[table]] in rows}
        if len(own) == len(OWN_IDS):  # else the evidence must tell
            found[trial_id] = TrialRows(row, numbers.get(key, []), slices.get(key, NO_SLICES), own)
    return found


def _take_newest(trials: dict[str, Row], rows: Iterable[Row]) -> None:
    for row in rows:
        known = trials.get(row["trial_id"])
        if known is None or row["ended"] >= known["ended"]:
            trials[row["trial_id"]] = row


def _by_trial(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["trial_id"], row["artifact_manifest_digest"]), []).append(row)
    return found


def list_lake(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """(run_id, file) of everything in the lake's table folders; the run is empty where the name is not ours."""
    for table in EVIDENCE_TABLES:
        for path in sorted((workspace.warehouse / table).glob("*")):
            match = _NAME.fullmatch(path.name)
            yield (match["run"] if match else ""), f"{table}/{path.name}"


def _read(path: Path, table: Table) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    match = _NAME.fullmatch(path.name)
    try:
        if match is None or not file_digest(path).startswith(match["sha"]):
            raise Foreign("half-written or changed: its bytes do not match the digest in its name")
        content = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise Foreign(f"can't be read ({error})") from error
    found = (content.schema.metadata or {}).get(b"benchhouse.schema_version", b"").decode()
    if found != str(SCHEMA_VERSION):
        raise Foreign(f"schema version {found or 'none'}, expected {SCHEMA_VERSION}")
    if not content.schema.equals(table.schema()):
        raise Foreign(f"its columns are not those of {table.name}")
    return content


def _write(path: Path, content: bytes, sha256: str, *, synced: bool) -> None:
    """Whole or not at all. What a crash may still undo is found by its digest, and made again."""
    if path.is_file() and file_digest(path) == sha256:
        return
    temporary = f"{path.parent}/.{path.name}.{os.getpid()}.tmp"
    try:
        file = open(temporary, "wb")  # noqa: PTH123, SIM115 - closed below
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(temporary, "wb")  # noqa: PTH123, SIM115 - as above
    with file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105 - ten times a run
