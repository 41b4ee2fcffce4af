"""Data that outlives a workspace (evidence in a store, tables in a shared engine), and upkeep of the local tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchhouse.api.verb_group import VerbGroup
from benchhouse.documents.problems import did_you_mean
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.evidence.store import Carried as Carried
from benchhouse.evidence.verify import Damage
from benchhouse.runs import evidence_transfer
from benchhouse.runs.selection import find_run
from benchhouse.schema.errors import BenchError, NotFoundError, unwritable
from benchhouse.schema.retention import Pruning, Retention

if TYPE_CHECKING:
    from benchhouse.runs.sharing import Destination as Destination
    from benchhouse.runs.team_store import Followed as Followed
    from benchhouse.warehouse.ingest import Rebuilt
    from benchhouse.warehouse.transfer import TransferredRun as TransferredRun


@dataclass(frozen=True)
class StoreCheck:
    """A store whose objects were hashed."""

    checked: int
    bytes: int
    damage: list[Damage]


class EvidenceStore(VerbGroup):
    """Sealed trials in a store: `s3://bucket/prefix` or a folder. Content-addressed; nothing is ever removed."""

    def push(
        self,
        store: str,
        runs: Sequence[str] = (),
        *,
        endpoint: str = "",
        create: bool = False,
        dry_run: bool = False,
        each: Callable[[Carried], None] | None = None,
    ) -> list[Carried]:
        """Push the sealed trials of these runs (all, if none are named) to a store. It is safe to repeat."""
        return evidence_transfer.push(
            self._folder, store, runs, endpoint=endpoint, create=create, dry_run=dry_run, report=each
        )

    def pull(
        self,
        store: str,
        runs: Sequence[str] = (),
        *,
        endpoint: str = "",
        dry_run: bool = False,
        each: Callable[[Carried], None] | None = None,
    ) -> list[Carried]:
        """Fetch trials from a store, check every file by its digest, and collect the trials."""
        return evidence_transfer.pull(self._folder, store, runs, endpoint=endpoint, dry_run=dry_run, report=each)

    def verify(self, store: str, runs: Sequence[str] = (), *, endpoint: str = "") -> StoreCheck:
        """Hash every object of a store, or only those of these runs."""
        return StoreCheck(*evidence_transfer.verify(store, runs, endpoint=endpoint))


@dataclass(frozen=True)
class ColumnInfo:
    """One column of a curated table."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class TableInfo:
    """One curated table: what a row is, and its columns."""

    name: str
    description: str
    grain: str
    source: str | None
    columns: list[ColumnInfo]


class Tables(VerbGroup):
    """The curated tables of a workspace. They can be built again from the evidence at any time."""

    def schema(self, table: str | None = None) -> list[TableInfo]:
        """Return the tables, or one of them, with their columns."""
        from benchhouse.warehouse.tables import TABLES, VIEWS

        known = VIEWS | TABLES
        if table is not None and table not in known:
            guess = did_you_mean(table, known)
            raise NotFoundError(
                f"no table '{table}'", f"Did you mean '{guess}'?" if guess else f"There are: {', '.join(known)}"
            )
        return [
            TableInfo(
                item.name,
                item.description,
                item.grain,
                item.source or None,
                [ColumnInfo(column.name, column.kind, column.description) for column in item.columns],
            )
            for item in known.values()
            if table in (None, item.name)
        ]

    def rebuild(self, progress: Callable[[int, int, str], None] = lambda done, total, run_id: None) -> "Rebuilt":
        """Build all tables again from the evidence. The result is identical byte for byte."""
        from benchhouse.warehouse.ingest import rebuild

        try:
            return rebuild(self._folder, progress)
        except OSError as error:
            raise unwritable(self._folder.warehouse, error, "bench warehouse rebuild") from error

    def prune(self, *, dry_run: bool) -> Pruning:
        """Remove what is older than retention.yaml allows. Without such a file, only `dry_run` works, with default
        ages."""
        from benchhouse.warehouse.retention import prune

        path = self._folder.root / "retention.yaml"
        if not path.is_file() and not dry_run:
            raise BenchError(
                "there is no retention.yaml, and evidence is not deleted by a default",
                "write one, such as `{hot: 30d, warm: 180d, cold: 730d}`; to see what would go: "
                "bench warehouse prune --dry-run",
            )
        policy = validated(load_yaml(path), Retention) if path.is_file() else Retention()
        return prune(self._folder, policy, datetime.now(UTC), dry_run=dry_run)

    def push(self, to: str, runs: Sequence[str] = (), **options: Any) -> "list[TransferredRun]":
        """Push runs (all, if none are named) to the engine at `to`. Options: `dry_run`, `replace`, `say`."""
        from benchhouse.warehouse.transfer import push

        return push(self._folder, to, [find_run(self._folder, run) for run in runs], **options)

    def share(self, *, dry_run: bool = False) -> "list[Destination]":
        """Send what the destinations in workspace.yaml do not have yet. With `dry_run`, only return what is known about
        them. It is safe to repeat."""
        from benchhouse.runs import sharing

        return sharing.standing(self._folder) if dry_run else sharing.share(self._folder)

    def pull(self, origin: str, runs: Sequence[str] = (), **options: Any) -> "list[TransferredRun]":
        """Pull runs from the engine at `origin` into these tables. Their evidence is not moved."""
        from benchhouse.warehouse.transfer import pull

        return pull(self._folder, origin, runs, **options)

    def look(self, every_s: float = 30.0) -> "Followed":
        """Pull new runs from the engine that workspace.yaml names. An unreachable server is reported in the result, not
        raised.

        `every_s` is the interval at which this is repeated: `bench serve --follow`.
        """
        from benchhouse.runs.team_store import look

        return look(self._folder, every_s)

    def followed(self) -> "Followed | None":
        """Return the state of that engine at the last `look`; None if there was none. The engine is not contacted."""
        from benchhouse.runs.team_store import followed

        return followed(self._folder)
