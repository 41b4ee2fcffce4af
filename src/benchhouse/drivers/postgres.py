"""Driver `postgres`: psycopg2, prepared in the server; a thread for each connection, where one can't serve all."""

import io
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from benchhouse.drivers.postgres_watch import WATCH
from benchhouse.load.protocols.calls import CallFailed, Reply
from benchhouse.load.protocols.postgres import Login, Statement, Step, Value, Work, failure, not_connected
from benchhouse.schema.errors import BenchError

_AT_ONCE = 1000  # characters, of up to four bytes: a socket has room for these while nothing else is on its way


class Postgres:
    """A call driver. A connection that was lost is made again at the next call."""

    transport: ClassVar[Literal["call"]] = "call"

    def __init__(self, login: Login, statements: Sequence[Statement], *, prepared: bool, timeout_s: float) -> None:
        self._login, self._prepared, self._timeout_s = login, prepared, timeout_s
        self._statements = statements
        self.abreast = not any(item.text.lstrip()[:4].upper() == "COPY" for item in statements)
        self._prepares = [item for item in statements if prepared and not item.control]
        self._connection: Any = None
        self._cursor: Any = None
        self._error: Any = ()  # what psycopg2 raises
        self.calls = 0  # odd while one is under way

    def goes_out_whole(self, work: Work) -> bool:
        """Whether the socket takes each step at once. Psycopg2 does not tell what it still has to send."""
        return all(len(text) <= _AT_ONCE for text, _, _ in work.ready)

    def alongside(self) -> "Postgres":
        """The same for a thread that keeps many connections busy (`schema.load.AbreastDriver`)."""
        from benchhouse.drivers.postgres_abreast import PostgresAbreast

        return PostgresAbreast(self._login, self._statements, prepared=self._prepared, timeout_s=self._timeout_s)

    @staticmethod
    def administrator(login: Login) -> "Administrator":
        return Administrator(login)

    def request(self, work: Work) -> tuple[tuple[str, bytes | None, int | None], ...]:
        """Text of each step, with its values as psycopg2 quotes them; rows to copy; rows that it must change."""
        return tuple((self._text(step), step.copied, step.rows) for step in work.steps)

    def _text(self, step: Step) -> str:
        statement = step.statement
        values = [_quoted(value) for value in step.values]
        if not self._prepared or statement.control or step.copied is not None:
            return statement.filled(dict(zip(statement.names, values, strict=True)))
        return f"EXECUTE {statement.name}({', '.join(values)})" if values else f"EXECUTE {statement.name}"

    def open(self) -> None:
        self._connection = connect(self._login)
        self._cursor = self._connection.cursor()
        self._error = psycopg2_or_hint().Error
        WATCH.add(self, self._connection.fileno(), self._timeout_s)
        self.calls += 1
        try:
            for item in self._prepares:
                self._cursor.execute(f"PREPARE {item.name} AS {item.numbered}")
        except self._error as error:
            failed = failure(error.pgcode, str(error))
            self.close()
            raise failed from None
        finally:
            self.calls += 1

    def ask(self, item: Work) -> int:
        """The rows that it brought or changed."""
        if self._connection is None:
            self.open()
        cursor, rows = self._cursor, 0
        self.calls += 1
        try:
            for text, copied, expected in item.ready:
                if copied is None:
                    cursor.execute(text)
                else:
                    cursor.copy_expert(text, io.BytesIO(copied), 1 << 16)
                changed = cursor.rowcount
                if changed != expected and expected is not None:
                    raise CallFailed("wrong_rows", f"{changed} rows instead of {expected}")
                if changed > 0:
                    rows += changed
        except self._error as error:
            raise self._failed(error) from None
        except CallFailed:
            self._roll_back()
            raise
        finally:
            self.calls += 1
        return rows

    def reply(self, _: Work, rows: int) -> Reply:
        return Reply(count=rows)

    def operations(self, _: Sequence[Work], rows: Sequence[int]) -> int:
        return sum(rows)

    def call(self, item: Work) -> Reply:
        return self.reply(item, self.ask(item))

    def _failed(self, error: Any) -> CallFailed:
        """The name of an error, after which the connection is clean, or gone."""
        failed = failure(error.pgcode, str(error))
        if self._connection.closed:
            self.close()
            return failed if error.pgcode else CallFailed("reset", failed.detail)
        self._roll_back()
        return failed

    def _roll_back(self) -> None:
        try:
            if self._connection.info.transaction_status != 0:
                self._cursor.execute("ROLLBACK")
        except self._error:
            self.close()

    def close(self) -> None:
        WATCH.forget(self)
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Administrator:
    """A session outside of the measured load, each statement a transaction of its own; one that was lost is made again.

    Safe from several threads, which wait for each other.
    """

    def __init__(self, login: Login) -> None:
        self._login, self._connection = login, connect(login)
        self._error = psycopg2_or_hint().Error
        self.version: int = self._connection.server_version
        self.pid: int = self._connection.get_backend_pid()

    def query(self, text: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        if self._connection.closed:
            self._connection = connect(self._login)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(text, values or None)
                return list(cursor.fetchall()) if cursor.description else []
        except self._error as error:
            raise failure(error.pgcode, str(error)) from None

    def copy(self, text: str, blocks: Iterable[bytes]) -> int:
        try:
            with self._connection.cursor() as cursor:
                cursor.copy_expert(text, _Blocks(blocks), 1 << 16)
                return int(cursor.rowcount)
        except self._error as error:
            raise failure(error.pgcode, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def connect(login: Login) -> Any:
    """A connection on which every statement is a transaction by itself unless BEGIN is sent. Raises CallFailed."""
    psycopg2 = psycopg2_or_hint()
    try:
        words, given = asked(login)
        made = psycopg2.connect(words, **given)
    except psycopg2.Error as error:
        raise not_connected(str(error)) from None
    made.autocommit = True
    return made


def asked(login: Login) -> tuple[str, dict[str, Any]]:
    """What psycopg2's `connect` takes for it. Raises psycopg2.Error for an address that it can't read."""
    theirs = psycopg2_or_hint().extensions.parse_dsn(login.endpoint)
    given = {
        "application_name": login.name,
        "options": f"{theirs.get('options', '')} {login.options}".strip(),
        "connect_timeout": max(round(login.timeout_s), 2),  # libpq takes no less
    }
    return login.endpoint, given | ({"password": login.password} if login.password else {})


def psycopg2_or_hint() -> Any:
    try:
        import psycopg2.extensions
    except ImportError as error:
        raise BenchError("driver postgres needs psycopg2", "pip install 'benchhouse[postgres]'") from error
    return psycopg2


def _quoted(value: Value) -> str:
    """As psycopg2 writes it into SQL."""
    adapted = psycopg2_or_hint().extensions.adapt(value)
    if hasattr(adapted, "encoding"):
        adapted.encoding = "utf8"
    return str(adapted.getquoted().decode())


class _Blocks:
    """Blocks as a file to read from."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks, self._rest = iter(blocks), b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (block := next(self._blocks, b"")):
            self._rest += block
        out, self._rest = self._rest[:size], self._rest[size:]
        return out
