"""The warehouse between people: push runs to an engine, pull them, ask it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from benchhouse.schema.layout import WorkspaceFolder

if TYPE_CHECKING:
    from benchhouse.warehouse.engine import Engine
    from benchhouse.warehouse.query import Result
    from benchhouse.warehouse.transfer import Moved


def push(workspace: WorkspaceFolder, to: str, runs: Sequence[str], **options: Any) -> "list[Moved]":
    """Bring runs of this workspace (all, if none are named) to the engine at `to`."""
    from benchhouse.warehouse.engine_lake import LakeEngine
    from benchhouse.warehouse.query import Warehouse

    with Warehouse.open(workspace) as warehouse:
        named = [warehouse.require_run(run) for run in runs] or None
    with _opened(to) as sink, _closing(LakeEngine(workspace)) as source:
        return _transfer(source, sink, named, **options)


def pull(workspace: WorkspaceFolder, origin: str, runs: Sequence[str], **options: Any) -> "list[Moved]":
    """Bring runs of the engine at `origin` (all, if none are named by their ids) into this workspace's tables."""
    from benchhouse.warehouse.engine_lake import LakeEngine

    with _opened(origin) as source, _closing(LakeEngine(workspace)) as sink:
        return _transfer(source, sink, list(runs) or None, **options)


def query(engine: str, sql: str) -> "Result":
    """One SELECT, in the dialect of the engine at that address."""
    with _opened(engine) as asked:
        return asked.query(sql)


def _transfer(
    source: "Engine",
    sink: "Engine",
    runs: list[str] | None,
    *,
    dry_run: bool = False,
    replace: bool = False,
    say: "Callable[[Moved], None] | None" = None,
) -> "list[Moved]":
    from benchhouse.schema.errors import BenchError
    from benchhouse.warehouse.transfer import transfer

    if source.name == sink.name:
        raise BenchError(f"{source.name}: from there, and to there", "Name another engine or folder.")
    return transfer(source, sink, runs, dry_run=dry_run, replace=replace, say=say)


def _opened(address: str) -> "AbstractContextManager[Engine]":
    from benchhouse.warehouse.engine_address import open_engine

    return _closing(open_engine(address))


@contextmanager
def _closing(engine: "Engine") -> "Iterator[Engine]":
    try:
        yield engine
    finally:
        engine.close()
