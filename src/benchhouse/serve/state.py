"""The server's state between requests and across a kill: sessions, and answers by idempotency key."""

import contextlib
import hashlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchhouse.processes.process_identity import identity, is_gone

_SESSION_S = 12 * 3600.0
_MOST_SESSIONS = 100  # per token; beyond that, the oldest session ends
_KEPT_S = 7 * 86400.0
_ENDED = "ended"
_LONGEST_WRITE_S = 600.0  # then a write counts as ended if its server is in another container, out of sight
_TABLES = """
CREATE TABLE IF NOT EXISTS secret (value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS session (digest TEXT PRIMARY KEY, token_id TEXT NOT NULL, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS answer (
    who TEXT NOT NULL, key TEXT NOT NULL, asked TEXT NOT NULL, request TEXT NOT NULL, owner TEXT NOT NULL,
    time REAL NOT NULL, status INTEGER, body TEXT, PRIMARY KEY (who, key));
"""


@dataclass(frozen=True)
class IdempotentAnswer:
    """The stored state of an idempotency key."""

    asked: str
    """The digest of the verb and its parameters."""
    request: str
    """The name under which the written result is found again."""
    under_way: bool
    status: int | None = None
    body: str | None = None


class ServerDatabase:
    """One SQLite file, synced at every write. It is opened at first use, so that reading needs no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._secret: bytes | None = None

    @property
    def secret(self) -> bytes:
        """The secret of this server, which signs forms."""
        if self._secret is None:
            try:
                with self._open() as connection:
                    if (row := connection.execute("SELECT value FROM secret").fetchone()) is None:
                        row = (secrets.token_bytes(32),)
                        connection.execute("INSERT INTO secret VALUES (?)", row)
                    self._secret = row[0]
            except (OSError, sqlite3.OperationalError):  # the folder is read-only: forms end with the process
                self._secret = secrets.token_bytes(32)
        return self._secret

    def begin_session(self, token_id: str, expires: str) -> str:
        cookie = secrets.token_urlsafe(32)
        until = min(time.time() + _SESSION_S, datetime.fromisoformat(expires).timestamp())
        with self._open() as connection:
            connection.execute("DELETE FROM session WHERE expires < ?", (time.time(),))
            connection.execute(
                "DELETE FROM session WHERE token_id = ? AND digest NOT IN "
                "(SELECT digest FROM session WHERE token_id = ? ORDER BY expires DESC LIMIT ?)",
                (token_id, token_id, _MOST_SESSIONS - 1),
            )
            connection.execute("INSERT INTO session VALUES (?, ?, ?)", (self.digest(cookie), token_id, until))
        return cookie

    def end_session(self, cookie: str) -> None:
        with self._open() as connection:
            connection.execute("DELETE FROM session WHERE digest = ?", (self.digest(cookie),))

    def token_of(self, cookie: str) -> str | None:
        """Return the id of the token that started a session; None if there is no such session."""
        if not self._path.exists():
            return None
        with self._open() as connection:
            row = connection.execute(
                "SELECT token_id FROM session WHERE digest = ? AND expires > ?", (self.digest(cookie), time.time())
            ).fetchone()
        return row[0] if row else None

    def claim(self, who: str, key: str, asked: str, request: str) -> IdempotentAnswer | None:
        """Reserve a key for a write. Return None if it was free, and otherwise its stored state.

        A key is also reserved if its server was killed during the write: the result then has its request, but no
        answer.
        """
        with self._open() as connection:
            connection.execute("DELETE FROM answer WHERE time < ?", (time.time() - _KEPT_S,))
            row = connection.execute(
                "SELECT asked, request, owner, status, body, time FROM answer WHERE who = ? AND key = ?", (who, key)
            ).fetchone()
            if row is None:
                values = who, key, asked, request, identity(), time.time()
                connection.execute("INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", values)
                return None
            alive = row[2] != _ENDED and not is_gone(row[2]) and time.time() - row[5] < _LONGEST_WRITE_S
            under_way = row[3] is None and alive
            if row[3] is None and not under_way and row[0] == asked:
                connection.execute(
                    "UPDATE answer SET owner = ?, time = ? WHERE who = ? AND key = ?",
                    (identity(), time.time(), who, key),
                )
            return IdempotentAnswer(row[0], row[1], under_way, row[3], row[4])

    def keep(self, who: str, key: str, status: int, body: str) -> None:
        with self._open() as connection:
            connection.execute(
                "UPDATE answer SET status = ?, body = ? WHERE who = ? AND key = ?", (status, body, who, key)
            )

    def release(self, who: str, key: str) -> None:
        """Mark a write as refused or failed, so that the same key tries it again under the same request."""
        with self._open() as connection:
            connection.execute("UPDATE answer SET owner = ? WHERE who = ? AND key = ?", (_ENDED, who, key))

    @staticmethod
    def digest(cookie: str) -> str:
        return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.touch(0o600)
                connection = sqlite3.connect(self._path, timeout=30.0, isolation_level=None, check_same_thread=False)
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_TABLES)
                self._connection = connection
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
