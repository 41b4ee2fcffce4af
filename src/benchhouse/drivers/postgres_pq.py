"""Driver `postgres_pq`: libpq's own calls through psycopg.pq; values never become SQL text."""

import select
from collections.abc import Sequence
from time import monotonic
from typing import Any, ClassVar, Literal, NamedTuple

from benchhouse.drivers.postgres_watch import WATCH
from benchhouse.drivers.postgres_wire import ends_well, execute, parse_and_execute, query
from benchhouse.load.protocols.calls import CallFailed, Reply
from benchhouse.load.protocols.postgres import Login, Statement, Step, Value, Work, failure, not_connected
from benchhouse.schema.errors import BenchError

_COPY_BLOCK = 1 << 20
# As numbers, which libpq never changes: comparing with members of psycopg's enumerations costs a lookup each.
_COMMAND, _TUPLES, _COPY_IN = 1, 2, 4
_SQLSTATE, _PRIMARY = ord("C"), ord("M")
_GOOD, _BAD, _IDLE = 0, 1, 0


class Ready(NamedTuple):
    """A step as libpq takes it."""

    name: bytes  # of the prepared statement; empty where it is not prepared
    text: bytes
    values: list[bytes | None]
    copied: bytes | None
    rows: int | None
    message: bytes  # the same as the server takes it, where libpq does not stand between
    ends: tuple[bytes, ...]  # how a good answer to that ends

    @property
    def extended(self) -> bool:
        return bool(self.name or self.values)


class PostgresPq:
    """A call driver. Does less in a call than psycopg2 does, and so does the server: it has no EXECUTE to parse.

    Of libpq's blocking calls psycopg lets other threads run in those that execute a statement, and in no other: while
    it connects and copies, this driver waits for the socket by itself.
    """

    transport: ClassVar[Literal["call"]] = "call"

    def __init__(self, login: Login, statements: Sequence[Statement], *, prepared: bool, timeout_s: float) -> None:
        self._login, self._prepared, self._timeout_s = login, prepared, timeout_s
        self._statements = statements
        self._prepares = [item for item in statements if prepared and not item.control]
        self.abreast = not any(item.text.lstrip()[:4].upper() == "COPY" for item in statements)
        self._steps: Sequence[Ready] = ()  # of the call under way
        self._at = 0  # how many of them were sent
        self._expected: Any = None  # rows of the step that was sent
        self._rows = 0  # of the steps before it
        self._answer: Any = None  # to that step
        self._connection: Any = None
        self._broken: Any = ()  # what psycopg raises when a connection is lost
        self.calls = 0  # odd while one is under way

    def request(self, work: Work) -> tuple[Ready, ...]:
        return tuple(self._ready(step) for step in work.steps)

    def _ready(self, step: Step) -> Ready:
        statement = step.statement
        name = statement.name.encode() if self._prepared and not statement.control else b""
        text, values = statement.numbered.encode(), [_text(value) for value in step.values]
        plain = parse_and_execute(text, values) if values else query(text)
        message = execute(name, values) if name else plain
        return Ready(name, text, values, step.copied, step.rows, message, ends_well(text, step.rows))

    @staticmethod
    def wired(item: Work) -> tuple[bytes, tuple[bytes, ...], int] | None:
        """As `schema.load.WireDriver` says."""
        first, *more = item.ready
        return None if more or not first.ends else (first.message, first.ends, first.rows)

    def alongside(self) -> "PostgresPq":
        """The same for a thread that keeps many connections busy (`schema.load.AbreastDriver`)."""
        from benchhouse.drivers.postgres_plain import PostgresPlain

        return PostgresPlain(self._login, self._statements, prepared=self._prepared, timeout_s=self._timeout_s)

    def open(self) -> None:
        self._connection = connection = _connect(self._login)
        self._broken = _psycopg().OperationalError
        WATCH.add(self, connection.socket, self._timeout_s)
        self.calls += 1
        try:
            for item in self._prepares:
                self._take(connection.prepare(item.name.encode(), item.numbered.encode()), None)
        except CallFailed:
            self.close()
            raise
        finally:
            self.calls += 1

    def ask(self, item: Work) -> int:
        """The rows that it brought or changed."""
        if self._connection is None:
            self.open()
        connection, rows = self._connection, 0
        self.calls += 1
        try:
            for name, text, values, copied, expected, _, _ in item.ready:
                if name:
                    result = connection.exec_prepared(name, values)
                elif copied is not None:
                    result = self._copy(text, copied)
                else:
                    result = connection.exec_params(text, values) if values else connection.exec_(text)
                rows += self._take(result, expected)
        except CallFailed:
            self._clean_up()
            raise
        except self._broken as error:
            self.close()
            raise failure(None, str(error)) from None
        finally:
            self.calls += 1
        return rows

    def fileno(self) -> int:
        return self._connection.socket if self._connection is not None else -1

    def send(self, item: Work) -> None:
        """As `ask`, up to where it would wait."""
        self.calls += 1
        self._steps = steps = item.ready
        self._at, self._rows = 1, 0
        name, text, values, _, self._expected, _, _ = steps[0]
        try:
            if name:
                self._connection.send_query_prepared(name, values)
            else:
                self._send_text(text, values)
        except self._broken as error:
            raise self._gone(error) from None

    def take(self) -> int | None:
        """The rows, once the server has answered all steps; a step that waits for the one before it is sent."""
        connection = self._connection
        try:
            connection.consume_input()
            while not connection.is_busy():
                result = connection.get_result()
                if result is not None:
                    self._answer = result
                    continue
                result, expected = self._answer, self._expected
                if result.status == _TUPLES and result.ntuples == expected:  # mostly; `_take` is for all the rest
                    self._rows += expected
                else:
                    self._rows += self._take(result, expected)
                if self._at < len(self._steps):
                    self._send_next()
                    return None
                self.calls += 1
                return self._rows
        except CallFailed:
            self._clean_up()
            self.calls += 1
            raise
        except self._broken as error:
            raise self._gone(error) from None
        return None

    def _send_next(self) -> None:
        name, text, values, _, self._expected, _, _ = self._steps[self._at]
        self._at += 1
        if name:
            self._connection.send_query_prepared(name, values)
        else:
            self._send_text(text, values)

    def _send_text(self, text: bytes, values: list[bytes | None]) -> None:
        if values:
            self._connection.send_query_params(text, values)
        else:
            self._connection.send_query(text)

    def _gone(self, error: Exception) -> CallFailed:
        """The connection is lost in mid-call."""
        self.close()
        self.calls += 1
        return failure(None, str(error))

    def reply(self, _: Work, rows: int) -> Reply:
        return Reply(count=rows)

    def operations(self, _: Sequence[Work], rows: Sequence[int]) -> int:
        return sum(rows)

    def call(self, item: Work) -> Reply:
        return self.reply(item, self.ask(item))

    def _copy(self, text: bytes, rows: bytes) -> Any:
        connection = self._connection
        result = connection.exec_(text)
        if result.status != _COPY_IN:
            return result
        connection.nonblocking = 1
        for at in range(0, len(rows), _COPY_BLOCK):
            connection.put_copy_data(rows[at : at + _COPY_BLOCK])
            self._flush()
        connection.put_copy_end()
        self._flush()
        results = [self._result()]
        while results[-1] is not None:  # until the server is ready for the next statement
            results.append(self._result())
        connection.nonblocking = 0
        return results[0]

    def _flush(self) -> None:
        connection = self._connection
        while connection.flush():
            if wait(connection.socket, select.POLLIN | select.POLLOUT) & select.POLLIN:
                connection.consume_input()

    def _result(self) -> Any:
        connection = self._connection
        while connection.is_busy():
            wait(connection.socket, select.POLLIN)
            connection.consume_input()
        return connection.get_result()

    def _take(self, result: Any, expected: int | None) -> int:
        """The rows that a result brought or changed. Raises CallFailed for an error, and for other rows."""
        status = result.status
        if status == _TUPLES:
            rows: int = result.ntuples
        elif status == _COMMAND:
            rows = result.command_tuples or 0
        else:
            code = result.error_field(_SQLSTATE)
            words = result.error_field(_PRIMARY) or result.error_message or b""
            raise failure(code.decode() if code else None, words.decode(errors="replace"))
        if rows != expected and expected is not None:
            raise CallFailed("wrong_rows", f"{rows} rows instead of {expected}")
        return rows

    def _clean_up(self) -> None:
        """After an error: roll back where a transaction is open, and drop a connection that is gone."""
        connection = self._connection
        if connection.status == _GOOD and connection.transaction_status != _IDLE:
            connection.exec_(b"ROLLBACK")
        if connection.status != _GOOD:
            self.close()

    def close(self) -> None:
        WATCH.forget(self)
        if self._connection is not None:
            self._connection.finish()
            self._connection = None


def _connect(login: Login) -> Any:
    psycopg = _psycopg()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        theirs = str(conninfo_to_dict(login.endpoint).get("options") or "")
        given = {"password": login.password} if login.password else {}
        text = make_conninfo(
            login.endpoint, application_name=login.name, options=f"{theirs} {login.options}".strip(), **given
        )
    except psycopg.ProgrammingError as error:
        raise not_connected(str(error)) from None
    connection = psycopg.pq.PGconn.connect_start(text.encode())
    deadline = monotonic() + login.timeout_s
    states = psycopg.pq.PollingStatus
    while connection.status != _BAD and monotonic() < deadline:
        state = connection.connect_poll()
        if state == states.OK:
            return connection
        if state == states.FAILED:
            break
        wait(connection.socket, select.POLLOUT if state == states.WRITING else select.POLLIN, deadline - monotonic())
    words = connection.get_error_message() if monotonic() < deadline else "timeout expired"
    connection.finish()
    raise not_connected(words)


def wait(fd: int, events: int, seconds: float | None = None) -> int:
    """Until the socket can be read or written; what of the two. Other threads run meanwhile."""
    poll = select.poll()
    poll.register(fd, events)
    found = poll.poll(None if seconds is None else max(seconds, 0) * 1000)
    return found[0][1] if found else 0


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise BenchError("driver postgres_pq needs psycopg", "pip install 'benchhouse[postgres]'") from error
    return psycopg


def _text(value: Value) -> bytes | None:
    """In text form, which the server reads as the type that it has found for the place."""
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(value).encode()
