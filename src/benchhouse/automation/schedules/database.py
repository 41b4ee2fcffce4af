"""The tables of schedules, and the PostgreSQL database that workspace.yaml names instead of a file in the workspace.

The few statements of the store are the same for both. Transactions are exclusive.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchhouse.automation import leases
from benchhouse.automation.database import Rows
from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import blanker, split_userinfo, without_secrets

if TYPE_CHECKING:
    import psycopg

_LOCK = 0x736368656475  # taken by the writer
TABLES = (
    """CREATE TABLE IF NOT EXISTS schedules (
         name TEXT PRIMARY KEY, document TEXT NOT NULL, paused INTEGER NOT NULL, added DOUBLE PRECISION NOT NULL,
         looked_to DOUBLE PRECISION NOT NULL, next_look DOUBLE PRECISION NOT NULL, failures INTEGER NOT NULL,
         failed_at DOUBLE PRECISION NOT NULL, told TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS slots (
         schedule TEXT NOT NULL, due DOUBLE PRECISION NOT NULL, state TEXT NOT NULL, run_id TEXT NOT NULL,
         place TEXT NOT NULL, claimer TEXT NOT NULL, begun DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION NOT NULL,
         why TEXT NOT NULL, PRIMARY KEY (schedule, due))""",
    leases.TABLE,
    "CREATE INDEX IF NOT EXISTS schedules_by_look ON schedules (paused, next_look)",
    "CREATE INDEX IF NOT EXISTS slots_by_state ON slots (state, place)",
)


class PostgresScheduleDatabase:
    """The schema `benchhouse_schedules` of a database."""

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise BenchError("PostgreSQL needs psycopg", "pip install 'benchhouse[postgres]'") from error
        self.name = without_secrets(address)
        self._address = address
        self._errors = psycopg.Error
        self._connection = self._connect()
        if not self.ask("SELECT to_regclass('benchhouse_schedules.slots_by_state')")[0][0]:
            with self.alone():
                self.ask("CREATE SCHEMA IF NOT EXISTS benchhouse_schedules")
                for statement in TABLES:
                    self.ask(statement)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        with self._explained():
            if self._connection.closed:  # the server was unreachable
                self._connection = self._connect()
            cursor = self._connection.execute(sql.replace("?", "%s"), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.ask("SELECT 1")  # connects again if the server was unreachable
        with self._explained(), self._connection.transaction():
            self.ask("SELECT pg_advisory_xact_lock(?)", [_LOCK])
            yield

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> "psycopg.Connection[Any]":
        import psycopg

        with self._explained():
            return psycopg.connect(
                self._address, autocommit=True, connect_timeout=20, application_name="benchhouse",
                options="-c search_path=benchhouse_schedules",
            )  # fmt: skip

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (self._errors, UnicodeError) as error:
            password = split_userinfo(self._address)[1].partition(":")[2]
            message = blanker([password])(str(error).strip()) if password else str(error).strip()
            hint = "Is it running, and is PGPASSWORD or the variable set?"
            raise BenchError(f"{self.name}: {message or type(error).__name__}", hint) from None
