"""Transfer of runs between warehouses: push to an engine, pull from it, and query it.

A run is transferred whole or not at all; existing runs are left alone, and nothing is lost.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import split_userinfo, without_secrets
from benchhouse.warehouse.engine import Files, RunTables, TableEngine, checked_files
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.query import Result, Warehouse
from benchhouse.warehouse.run_tables import TRIAL_FACT

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+]*):", re.IGNORECASE)
_POSTGRES = ("postgresql", "postgres")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


def open_engine(address: str, environ: Mapping[str, str] = os.environ) -> TableEngine:
    """Return the engine at an address: `postgresql://...`, `clickhouse:FOLDER`, or the folder of another workspace.

    `$NAME` as a whole address, or as its password, is the value of that variable.
    """
    given, scheme = _resolved(address, environ)
    if scheme in _POSTGRES:
        from benchhouse.warehouse.engine_postgres import PostgresEngine  # imports its driver

        return PostgresEngine(given)
    if scheme == "clickhouse":
        from benchhouse.warehouse.engine_clickhouse import ClickHouseEngine

        folder = given.partition(":")[2]
        if not folder or folder.startswith("//"):
            reason = "ClickHouse is kept in a folder here (chdb), not asked over a network"
            raise BenchError(reason, "clickhouse:FOLDER, as clickhouse:ch")
        return ClickHouseEngine(Path(folder).expanduser().resolve())
    if scheme:
        raise BenchError(
            f"{scheme}: no engine of that kind",
            "There are: postgresql://user@host/database, clickhouse:FOLDER, and the folder of another workspace.",
        )
    root = Path(given).expanduser()
    if not root.is_dir():
        raise BenchError(f"{given}: no such folder", f"A new workspace may be empty: mkdir {given}")
    return LakeEngine(WorkspaceFolder(root.resolve()))


def postgres_address(address: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the address with its variables replaced. Raise BenchError if it is not an address of PostgreSQL."""
    given, scheme = _resolved(address, environ)
    if scheme not in _POSTGRES:
        raise BenchError(f"{without_secrets(address)} is no address of PostgreSQL", "postgresql://user@host/database")
    return given


def _resolved(address: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the address with the values of its variables, and its scheme."""
    variable = _VARIABLE.fullmatch(address)
    given = _value(variable, environ) if variable else address
    scheme = match["scheme"].lower() if (match := _SCHEME.match(given)) else ""
    if scheme in _POSTGRES:
        given = _with_password(given, environ, literal=variable is not None)
    return given, scheme


def _with_password(address: str, environ: Mapping[str, str], *, literal: bool) -> str:
    """Return the address with its password in place of the variable that names it."""
    bare, userinfo = split_userinfo(address)
    user, _, password = userinfo.partition(":")
    try:
        urlsplit(bare)
    except ValueError as error:
        raise BenchError("not a valid address", "postgresql://user@host/database") from error
    if not password:
        return address
    if literal:
        return _with_login(bare, user, quote(password, safe="%"))
    match = _VARIABLE.fullmatch(password)
    if match is None:
        raise BenchError(
            "a password in the address is visible to everyone on this machine, and stays in the history of the shell",
            "Name a variable that has it, 'postgresql://user:$NAME@host/database', or set PGPASSWORD.",
        )
    return _with_login(bare, user, quote(_value(match, environ), safe=""))


def _with_login(address: str, user: str, password: str) -> str:
    return address.replace("://", f"://{quote(user, safe='%')}:{password}@", 1)


def _value(match: "re.Match[str]", environ: Mapping[str, str]) -> str:
    name = match["braced"] or match["bare"]
    if not environ.get(name):
        raise BenchError(f"the variable {name} is not set", f"export {name}=...")
    return environ[name]


_ATTEMPTS = 100  # other processes may write the same run in the meantime


class TransferredRun(Model):
    """The result of transferring one run."""

    run_id: str
    what: Literal["new", "renewed", "same", "refused"] = Field(
        description="new there; renewed: more of it than there was; same: there already; refused: see reason."
    )
    rows: int = Field(0, description="Rows that were written, or would be.")
    tables: dict[str, str] = Field(default_factory=dict, description="Table to the sha256 of its Parquet file.")
    reason: str = ""


def push(workspace: WorkspaceFolder, to: str, runs: Sequence[str], **options: Any) -> list[TransferredRun]:
    """Push runs of this workspace (all, if none are named) to the engine at `to`."""
    with Warehouse.open(workspace) as warehouse:
        named = [warehouse.require_run(run) for run in runs] or None
    with closing(open_engine(to)) as sink, closing(LakeEngine(workspace)) as source:
        return transfer(source, sink, named, **options)


def pull(workspace: WorkspaceFolder, origin: str, runs: Sequence[str], **options: Any) -> list[TransferredRun]:
    """Pull runs of the engine at `origin` (all, if none are named by their ids) into this workspace's tables."""
    with closing(open_engine(origin)) as source, closing(LakeEngine(workspace)) as sink:
        return transfer(source, sink, list(runs) or None, **options)


def query(address: str, sql: str) -> Result:
    """Answer one SELECT, in the dialect of the engine at that address."""
    with closing(open_engine(address)) as engine:
        return engine.query(sql)


def transfer(
    source: TableEngine,
    sink: TableEngine,
    run_ids: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    replace: bool = False,
    say: Callable[[TransferredRun], None] | None = None,
) -> list[TransferredRun]:
    """Copy runs (all, if none are named) from `source` to `sink`; after an interruption, finished ones stay.

    A run is refused if the sink has trials of it that the source lacks, unless `replace`.
    """
    if source.name == sink.name:
        raise BenchError(f"{source.name} is both source and destination", "Name another engine or folder.")
    done = []
    for moved in _each(source, sink, run_ids, dry_run, replace):
        done.append(moved)
        if say:
            say(moved)
    return done


def _each(
    source: TableEngine, sink: TableEngine, run_ids: Iterable[str] | None, dry_run: bool, replace: bool
) -> Iterator[TransferredRun]:
    here, there = source.runs(), sink.runs()
    wanted = sorted(here if run_ids is None else set(run_ids))
    if missing := [run for run in wanted if run not in here]:
        raise BenchError(f"{source.name}: has no run {', '.join(missing)}", "Without --run, all that are there go.")
    for run_id in wanted:
        try:
            files = checked_files(source.name, run_id, here[run_id])
        except BenchError as error:
            yield TransferredRun(run_id=run_id, what="refused", reason=error.message)
            continue
        try:
            yield _move(source, sink, run_id, files, there.get(run_id), dry_run, replace)
        except BenchError as error:
            if dry_run or run_id not in error.message:
                raise  # otherwise only this run fails, and other runs may still work
            yield TransferredRun(run_id=run_id, what="refused", reason=error.message)


def _move(
    source: TableEngine,
    sink: TableEngine,
    run_id: str,
    files: dict[str, str],
    there: Files | None,
    dry_run: bool,
    replace: bool,
) -> TransferredRun:
    run: RunTables | None = None
    for _ in range(_ATTEMPTS):
        if there is not None and dict(there) == (run.files if run else files):
            return TransferredRun(run_id=run_id, what="same", tables=files)
        run = run or source.read(run_id)
        if there is not None and not replace and (reason := _loses(run, source, sink)):
            return TransferredRun(run_id=run_id, what="refused", reason=reason)
        if dry_run or sink.write(run, there):
            return TransferredRun(run_id=run_id, what="renewed" if there else "new", rows=run.size, tables=run.files)
        there = sink.runs().get(run_id)
    raise BenchError(f"run {run_id}: others kept changing it in {sink.name}", "Try again when they are done.")


def _loses(run: RunTables, source: TableEngine, sink: TableEngine) -> str:
    """Return what the sink would lose by replacing its run with this one; empty if nothing."""
    ours, theirs = _ends(run), _ends(sink.read(run.run_id))
    lost = [trial for trial, ended in theirs.items() if trial not in ours or ours[trial] < ended]
    if not lost:
        return ""
    return (
        f"{sink.name} has {len(lost)} of its trials that {source.name} lacks, or has newer, such as {lost[0]}; "
        "bring them the other way first, or --replace"
    )


def _ends(run: RunTables) -> dict[str, datetime]:
    trials = run.tables[TRIAL_FACT.name]
    return dict(zip(*(trials.column(name).to_pylist() for name in ("trial_id", "ended")), strict=True))
