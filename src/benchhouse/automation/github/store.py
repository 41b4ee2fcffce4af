"""The stored requests of GitHub in the workspace: accepted deliveries, their orders, and the progress of each answer.

The size is bounded. What happened longer ago than `KEPT` is deleted, and from then on refused: anything older than the
horizon, by the time that GitHub signed, counts as a replay. Our own clocks are not used for this.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from benchhouse.automation import leases
from benchhouse.automation.database import Sqlite
from benchhouse.automation.github.deliveries import CommandOrder, Delivery
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.layout import WorkspaceFolder

TABLES = (
    "CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY, digest TEXT UNIQUE NOT NULL, time REAL NOT NULL)",
    """CREATE TABLE IF NOT EXISTS orders (
         key TEXT PRIMARY KEY, repository TEXT NOT NULL, login TEXT NOT NULL, text TEXT NOT NULL,
         number INTEGER NOT NULL, sha TEXT NOT NULL, at TEXT NOT NULL, time REAL NOT NULL, state TEXT NOT NULL,
         run_id TEXT NOT NULL, comment INTEGER NOT NULL, shown TEXT NOT NULL, answer TEXT NOT NULL,
         next_try REAL NOT NULL, tries INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS orders_by_state ON orders (state, next_try)",
    "CREATE INDEX IF NOT EXISTS orders_by_thread ON orders (repository, number)",
    """CREATE TABLE IF NOT EXISTS polls (
         repository TEXT PRIMARY KEY, since TEXT NOT NULL, etag TEXT NOT NULL, next_look REAL NOT NULL,
         failures INTEGER NOT NULL)""",
    leases.TABLE,
    "CREATE TABLE IF NOT EXISTS horizon (at TEXT NOT NULL)",  # everything up to this time is deleted: one row, or none
)
KEPT = timedelta(days=90)
State = Literal["asked", "running", "answering", "done"]
_ORDER = "key, repository, login, text, number, sha, at, time, state, run_id, comment, shown, answer, next_try, tries"
_LEASE = "github"


@dataclass(frozen=True)
class StoredOrder:
    """An order and its state."""

    order: CommandOrder
    time: float
    """When the order came, in seconds since the epoch."""
    state: State
    run_id: str
    """The id of the run that it starts, if any; chosen when it came, so that the run is started once."""
    comment: int
    """The id of the progress comment; 0 if there is none yet."""
    shown: str
    """The current text of the progress comment."""
    answer: str
    """The final message while it is being written; after that, the result."""
    next_try: float
    tries: int


@dataclass(frozen=True)
class Poll:
    """How far the comments of a repository have been read."""

    repository: str
    since: str
    etag: str
    next_look: float
    failures: int


class GitHubStore:
    """The store of one workspace for one thread. Close it, or use `opened`."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self._db = Sqlite(workspace.github, TABLES, "what GitHub asked for")

    def close(self) -> None:
        self._db.close()

    def take(self, deliveries: Sequence[Delivery], now: float) -> list[bool]:
        """Store all deliveries in one transaction; return False for each that was taken before."""
        with self._db.alone():
            return [self._take(delivery, now) for delivery in deliveries]

    def _take(self, delivery: Delivery, now: float) -> bool:
        if not delivery.orders:  # a repetition has no effect
            return True
        at = max(order.at for order in delivery.orders)
        if at <= self._horizon():
            return False
        values = [delivery.id, delivery.digest, _seconds(at)]
        new = self._db.ask("INSERT INTO deliveries VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1", values)
        if new:
            self._add(delivery.orders, now)
        return bool(new)

    def _horizon(self) -> str:
        rows = self._db.ask("SELECT at FROM horizon")
        return str(rows[0][0]) if rows else ""

    def prune(self) -> int:
        """Delete what is done and older than `KEPT`, counted back from the newest order; return the number of rows."""
        with self._db.alone():
            newest = str(
                self._db.ask("SELECT coalesce(max(at), '') FROM orders WHERE at GLOB '????-??-??T??:??:??Z'")[0][0]
            )
            horizon = _stamp(_seconds(newest) - KEPT.total_seconds()) if newest else ""
            if horizon <= self._horizon():
                return 0
            self._db.ask("DELETE FROM horizon")
            self._db.ask("INSERT INTO horizon VALUES (?)", [horizon])
            values = [_seconds(horizon)]
            gone = self._db.ask("DELETE FROM deliveries WHERE time <= ? RETURNING 1", values)
            gone += self._db.ask("DELETE FROM orders WHERE state = 'done' AND at <= ? RETURNING 1", [horizon])
            self._db.ask("UPDATE orders SET text = substr(text, 1, 200) WHERE state = 'done' AND length(text) > 200")
            return len(gone)

    def _add(self, orders: Sequence[CommandOrder], now: float) -> None:
        for order in orders:
            values = [order.key, order.repository, order.login, order.text, order.number, order.sha, order.at, now,
                      "asked", new_run_id(), 0, "", "", 0.0, 0]  # fmt: skip
            marks = ", ".join("?" * len(values))
            self._db.ask(f"INSERT INTO orders VALUES ({marks}) ON CONFLICT DO NOTHING", values)  # noqa: S608 - marks

    def open_orders(self, now: float, longest_wait_s: float) -> list[StoredOrder]:
        """Return the orders that are due, oldest first; also those that wait longer than possible, because a clock was
        ahead."""
        where = "WHERE state != 'done' AND (next_try <= ? OR next_try > ?) ORDER BY time, key LIMIT 200"
        return self._orders(where, [now, now + longest_wait_s])

    def recent(self, limit: int) -> list[StoredOrder]:
        """Return the newest orders first."""
        return self._orders("ORDER BY time DESC, key LIMIT ?", [limit])

    def runs_of(self, order: CommandOrder) -> list[str]:
        """Return the runs that were started in the order's thread, newest first."""
        sql = "SELECT run_id FROM orders WHERE repository = ? AND number = ? AND shown != '' ORDER BY time DESC"
        return [row[0] for row in self._db.ask(sql, [order.repository, order.number])]

    def change(self, key: str, **fields: str | float) -> None:
        """Record the state of an order."""
        names = ", ".join(f"{name} = ?" for name in fields)
        with self._db.alone():
            sql = f"UPDATE orders SET {names} WHERE key = ?"  # noqa: S608 - names of our columns
            self._db.ask(sql, [*fields.values(), key])

    def _orders(self, where: str, values: Sequence[object]) -> list[StoredOrder]:
        rows = self._db.ask(f"SELECT {_ORDER} FROM orders {where}", values)  # noqa: S608 - our own names
        return [StoredOrder(CommandOrder(*row[:7]), *row[7:]) for row in rows]

    # -- the poller

    def poll(self, repository: str, since: str) -> Poll:
        """Return the state of the poller; a new one starts at `since`."""
        with self._db.alone():
            self._db.ask("INSERT INTO polls VALUES (?, ?, '', 0, 0) ON CONFLICT DO NOTHING", [repository, since])
            return Poll(*self._db.ask("SELECT * FROM polls WHERE repository = ?", [repository])[0])

    def polled(self, poll: Poll, orders: Sequence[CommandOrder], now: float) -> None:
        """Record the orders that were read and the new position in one transaction."""
        with self._db.alone():
            horizon = self._horizon()
            self._add([order for order in orders if order.at > horizon], now)
            self._db.ask(
                "UPDATE polls SET since = ?, etag = ?, next_look = ?, failures = ? WHERE repository = ?",
                [poll.since, poll.etag, poll.next_look, poll.failures, poll.repository],
            )

    def lease(self, holder: str, now: float, for_s: float, is_gone: Callable[[str], bool]) -> bool:
        return leases.take(self._db, _LEASE, holder, now, for_s, is_gone) == holder

    def release(self, holder: str) -> None:
        leases.release(self._db, _LEASE, holder)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def opened(workspace: WorkspaceFolder) -> "closing[GitHubStore]":
    return closing(GitHubStore(workspace))
