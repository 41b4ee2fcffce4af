"""Driver `postgres`: psycopg 3, statements prepared in the server, one thread per connection."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from benchhouse.load.protocols.calls import CallFailed, CallResult
from benchhouse.load.protocols.postgres import Login, Statement, StatementCall, Value, Work, failure, not_connected
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    import psycopg

# As numbers, which libpq never changes: comparing with members of psycopg's enumerations costs a lookup each.
_COMMAND, _TUPLES = 1, 2
_SQLSTATE, _PRIMARY = ord("C"), ord("M")
_GOOD, _IDLE = 0, 0
_SHORTEST_CONNECT_S = 2  # libpq accepts no less
_LOOK_S = 0.5
_SPARE_S = 1.0  # the server's own limit comes first, because it names the reason


class CallTimeouts:
    """One thread for all connections of a process that shuts the socket of calls that take too long.

    libpq waits forever for a silent server. Calls only increment a counter: one that is unchanged between checks is
    hanging.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[Postgres, tuple[int, float]] = {}
        self._pid = 0  # process of the thread, which a fork does not copy

    def add(self, caller: "Postgres", fd: int, timeout_s: float) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._watched.clear()
                threading.Thread(target=self._look, daemon=True).start()
            self._watched[caller] = (fd, timeout_s)

    def forget(self, caller: "Postgres") -> None:
        """Stop watching a caller. Call it before the descriptor is closed, because its number may soon be reused."""
        with self._lock:
            self._watched.pop(caller, None)

    def _look(self) -> None:
        seen: dict[Postgres, tuple[int, float]] = {}  # the call, and since when
        while True:
            sleep(_LOOK_S)
            now = monotonic()
            with self._lock:
                seen = {caller: seen.get(caller, (-1, now)) for caller in self._watched}
                for caller, (fd, timeout_s) in self._watched.items():
                    call, since = seen[caller]
                    if caller.calls != call:
                        seen[caller] = (caller.calls, now)
                    elif call % 2 and now - since > timeout_s + _SPARE_S:
                        with socket.socket(fileno=os.dup(fd)) as other, contextlib.suppress(OSError):
                            other.shutdown(socket.SHUT_RDWR)


WATCH = CallTimeouts()


class ReadyStep(NamedTuple):
    """A step in the form that libpq takes."""

    name: bytes  # the prepared statement; empty if it is not prepared
    text: bytes
    values: list[bytes | None]
    copied: bytes | None
    rows: int | None  # that it must return or change; None if unknown


class Postgres:
    """A call driver. A lost connection is replaced at the next call.

    Statements go through `psycopg.pq`, psycopg's documented access to libpq: a call is one `exec_prepared`, during
    which other threads run. A psycopg cursor costs more than twice as much CPU per lookup. Values never become SQL
    text.
    """

    transport: ClassVar[Literal["call"]] = "call"

    def __init__(self, login: Login, statements: Sequence[Statement], *, prepared: bool, timeout_s: float) -> None:
        self._login, self._prepared, self._timeout_s = login, prepared, timeout_s
        self._prepares = [item for item in statements if prepared and not item.control]
        self._connection: psycopg.Connection[Any] | None = None
        self._libpq: Any = None  # of that connection
        self._broken: Any = ()  # what psycopg raises when a connection is lost
        self.calls = 0  # odd during a call

    @staticmethod
    def administrator(login: Login) -> "PostgresAdministrator":
        return PostgresAdministrator(login)

    def request(self, work: Work) -> tuple[ReadyStep, ...]:
        return tuple(self._ready(step) for step in work.steps)

    def _ready(self, step: StatementCall) -> ReadyStep:
        statement = step.statement
        name = statement.name.encode() if self._prepared and not statement.control else b""
        return ReadyStep(name, statement.numbered.encode(), [*map(_text, step.values)], step.copied, step.rows)

    def open(self) -> None:
        self._connection = connect(self._login)
        self._libpq = self._connection.pgconn
        self._broken = psycopg_or_hint().Error
        WATCH.add(self, self._libpq.socket, self._timeout_s)
        self.calls += 1
        try:
            for item in self._prepares:
                _rows_of(self._libpq.prepare(item.name.encode(), item.numbered.encode()), None)
        except CallFailed:
            self.close()
            raise
        finally:
            self.calls += 1

    def ask(self, item: Work) -> int:
        """Run the steps and return the rows that they returned or changed."""
        if self._connection is None:
            self.open()
        libpq, rows = self._libpq, 0
        self.calls += 1
        try:
            for name, text, values, copied, expected in item.ready:
                if name:
                    result = libpq.exec_prepared(name, values)
                elif copied is not None:
                    rows += self._copy(text, copied, expected)
                    continue
                else:
                    result = libpq.exec_params(text, values) if values else libpq.exec_(text)
                # the usual case; `_rows_of` handles the rest
                if result.status == _TUPLES and result.ntuples == expected:
                    rows += expected
                else:
                    rows += _rows_of(result, expected)
        except CallFailed:
            self._clean_up()
            raise
        except self._broken as error:
            self.close()
            raise failure(None, str(error)) from None
        finally:
            self.calls += 1
        return rows

    def reply(self, _: Work, rows: int) -> CallResult:
        return CallResult(count=rows)

    def operations(self, _: Sequence[Work], rows: Sequence[int]) -> int:
        return sum(rows)

    def call(self, item: Work) -> CallResult:
        return self.reply(item, self.ask(item))

    def _copy(self, text: bytes, rows: bytes, expected: int | None) -> int:
        """Copy with psycopg's own COPY, which lets other threads run while it waits, unlike libpq's calls."""
        assert self._connection is not None
        try:
            with self._connection.cursor() as cursor:
                with cursor.copy(text) as copy:
                    copy.write(rows)
                return _checked(cursor.rowcount, expected)
        except self._broken as error:
            if error.sqlstate is None:
                raise
            raise failure(error.sqlstate, error.diag.message_primary or str(error)) from None

    def _clean_up(self) -> None:
        """Clean up after an error: roll back an open transaction, and drop a lost connection."""
        if self._libpq.status == _GOOD and self._libpq.transaction_status != _IDLE:
            self._libpq.exec_(b"ROLLBACK")
        if self._libpq.status != _GOOD:
            self.close()

    def close(self) -> None:
        WATCH.forget(self)
        if self._connection is not None:
            self._connection.close()
            self._connection = self._libpq = None


class PostgresAdministrator:
    """A session outside of the measured load in which each statement is a transaction. A lost session is replaced.

    It is safe for use from several threads, which wait for each other.
    """

    def __init__(self, login: Login) -> None:
        self._login, self._connection = login, connect(login)
        self._error = psycopg_or_hint().Error
        self.version: int = self._connection.info.server_version
        self.pid: int = self._connection.info.backend_pid

    def query(self, text: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        if self._connection.closed:
            self._connection = connect(self._login)
        try:
            cursor = self._connection.execute(text, values or None)
            return list(cursor.fetchall()) if cursor.description else []
        except self._error as error:
            raise failure(error.sqlstate, str(error)) from None

    def copy(self, text: str, blocks: Iterable[bytes]) -> int:
        try:
            with self._connection.cursor() as cursor:
                with cursor.copy(text) as copy:
                    for block in blocks:
                        copy.write(block)
                return cursor.rowcount
        except self._error as error:
            raise failure(error.sqlstate, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def connect(login: Login) -> "psycopg.Connection[Any]":
    """Return a connection on which every statement is a transaction unless BEGIN is sent. Raise CallFailed."""
    library = psycopg_or_hint()
    try:
        made: psycopg.Connection[Any] = library.connect(**parameters(login), autocommit=True, prepare_threshold=None)
    except library.Error as error:
        raise not_connected(str(error)) from None
    return made


def parameters(login: Login) -> dict[str, Any]:
    """Return libpq's parameters for a login. Raise psycopg.ProgrammingError for an address that it cannot read."""
    given: dict[str, Any] = psycopg_or_hint().conninfo.conninfo_to_dict(login.endpoint)
    ours = {
        "application_name": login.name,
        "options": f"{given.get('options') or ''} {login.options}".strip(),
        "connect_timeout": max(round(login.timeout_s), _SHORTEST_CONNECT_S),
    }
    return given | ours | ({"password": login.password} if login.password else {})


def psycopg_or_hint() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise BenchError("driver postgres needs psycopg", "pip install 'benchhouse[postgres]'") from error
    return psycopg


def _rows_of(result: Any, expected: int | None) -> int:
    """Return the rows that a result returned or changed. Raise CallFailed for an error or an unexpected number."""
    status = result.status
    if status == _TUPLES:
        return _checked(result.ntuples, expected)
    if status == _COMMAND:
        return _checked(result.command_tuples or 0, expected)
    code = result.error_field(_SQLSTATE)
    message = result.error_field(_PRIMARY) or result.error_message or b""
    raise failure(code.decode() if code else None, message.decode(errors="replace"))


def _checked(rows: int, expected: int | None) -> int:
    if rows != expected and expected is not None:
        raise CallFailed("wrong_rows", f"{rows} rows instead of {expected}")
    return rows


def _text(value: Value) -> bytes | None:
    """Return a value in text form, which the server reads as the type of its position."""
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(value).encode()
