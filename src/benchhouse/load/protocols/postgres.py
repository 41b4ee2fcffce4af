"""The interface between the experiment `storage.postgres` and the PostgreSQL drivers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from benchhouse.load.protocols.calls import CallFailed
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

Value = bool | int | float | str | None
OLDEST = 12_00_00
"""The oldest supported server version, in the server's numeric format."""

NAMED = {
    "40P01": "deadlock",
    "40001": "serialization",
    "55P03": "lock_timeout",
    "57014": "timeout",
    "57P01": "reset",  # shut down, or ended by an administrator
    "57P02": "reset",  # another process of the server crashed
    "57P03": "starting",  # or in recovery, or about to end
    "53300": "too_many_connections",
    "28P01": "login",
    "28000": "login",
    "3D000": "no_database",
}
"""Names of errors by SQLSTATE; the others are called `sqlstate_<code>`."""

UNSURE = ("reset", "timeout", "client", "wrong_rows")
"""After these errors it is unknown whether the server did what was requested."""

_OUTSIDE = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | \$(\w*)\$.*?\$\1\$ | --[^\n]* | /\*.*?\*/ | ::"""
    r""" | :(?P<place>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Login:
    """How to log in. `settings` apply to each session, such as its search_path."""

    endpoint: str
    password: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0  # for connecting
    name: str = "benchhouse"  # the server's name for its sessions

    @property
    def options(self) -> str:
        """The settings in the format that the server takes at the start of a session."""
        escaped = {key: re.sub(r"([\\\s])", r"\\\1", value) for key, value in self.settings.items()}
        return " ".join(f"-c {key}={value}" for key, value in escaped.items())


class Statement:
    """One SQL statement with named placeholders, in the syntax of pgbench: `SELECT ... WHERE id = :id`."""

    def __init__(self, name: str, text: str, *, control: bool = False) -> None:
        self.name, self.text = name, text
        self.control = control  # BEGIN, COMMIT: can't be prepared
        pieces, places, at = [], [], 0
        for match in _OUTSIDE.finditer(text):
            if match["place"]:
                pieces.append(text[at : match.start()])
                places.append(match["place"])
                at = match.end()
        self.pieces: tuple[str, ...] = (*pieces, text[at:])
        self.places: tuple[str, ...] = tuple(places)
        self.names: tuple[str, ...] = tuple(dict.fromkeys(places))  # $1, $2, ...

    @property
    def numbered(self) -> str:
        """The text with $1, $2, ... as placeholders, in the syntax of the server."""
        return self.filled({name: f"${number}" for number, name in enumerate(self.names, 1)})

    @property
    def quoted(self) -> tuple[str, ...]:
        """Strings, quoted names, and comments: text in them that looks like a placeholder is not one."""
        return tuple(match[0] for match in _OUTSIDE.finditer(self.text) if not match["place"])

    @property
    def unquoted(self) -> str:
        """The text without the quoted parts."""
        return _OUTSIDE.sub(" ", self.text)

    def filled(self, texts: Mapping[str, str]) -> str:
        parts = [self.pieces[0]]
        for name, piece in zip(self.places, self.pieces[1:], strict=True):
            parts += (texts[name], piece)
        return "".join(parts)


class StatementCall(NamedTuple):
    """One round trip: a statement and its values in the order of its names, or COPY with its rows."""

    statement: Statement
    values: tuple[Value, ...] = ()
    rows: int | None = None  # rows that it must return or change; None if unknown
    copied: bytes | None = None


class Effect(NamedTuple):
    """The changes that one unit of work makes to the tables once it is committed."""

    balance: int = 0  # to the sum of accounts.balance
    hits: int = 0  # to the sum of accounts.hits
    rows: int = 0  # of history
    amount: int = 0  # to the sum of history.amount


class Work:
    """One transaction, which is timed and counted as one."""

    __slots__ = ("effect", "kind", "ready", "rows", "steps")

    def __init__(self, kind: str, steps: Sequence[StatementCall], effect: Effect | None = None) -> None:
        self.kind, self.steps, self.effect = kind, tuple(steps), effect
        self.rows = sum(step.rows or 0 for step in steps)
        self.ready: Any = None  # in the form that its driver sends, prepared before any time is measured


class PostgresDriver(Protocol):
    """A call driver (`protocols.calls`) whose items are Work; `request` prepares their `ready`."""

    transport: ClassVar[str]

    def __init__(self, login: Login, statements: Sequence[Statement], *, prepared: bool, timeout_s: float) -> None: ...

    def request(self, work: Work) -> Any: ...


class Administrator(Protocol):
    """A session outside of the measured load, with each statement a transaction; a lost session is opened again."""

    version: int  # of the server: 150018 is 15.18
    pid: int  # of the server's process for this session

    def query(self, text: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with %s for the values, and return its rows. Raises CallFailed."""

    def copy(self, text: str, blocks: Iterable[bytes]) -> int:
        """Run COPY ... FROM STDIN. Return the number of rows that the server took."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class PgbenchScript:
    """One kind of transaction."""

    text: str
    weight: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)  # in addition to those that the script sets itself


@dataclass(frozen=True)
class PgbenchJob:
    """One run of pgbench."""

    login: Login
    scripts: tuple[PgbenchScript, ...]
    clients: int
    seconds: int  # counted from before it connects; whole seconds only
    threads: int = 1
    rate: float | None = None  # transactions per second, at random times; None: at maximum speed
    prepared: bool = True
    timeout_s: float = 120.0  # of one transaction
    seed: int = 0


@dataclass(frozen=True)
class PgbenchRun:
    """The log of a run, one row per transaction in the order of their ends; stamps are of the monotonic clock."""

    client: "NDArray[int64]"  # number of the connection
    script: "NDArray[int64]"  # number of the script
    due_ns: "NDArray[int64]"  # intended start; for a failed transaction, equal to `ended_ns`
    sent_ns: "NDArray[int64]"
    ended_ns: "NDArray[int64]"
    failures: Mapping[int, str]  # kind of error by row
    seconds: float  # time that the program ran
    cpu_s: float
    peak_mb: float

    def __len__(self) -> int:
        return len(self.script)


class PgbenchDriver(Protocol):
    """The program pgbench. Creating the object finds it; raises BenchError if it is missing."""

    transport: ClassVar[Literal["program"]]
    version: str

    def __init__(self) -> None: ...

    def run(self, job: PgbenchJob) -> PgbenchRun:
        """Run the job. Raises CallFailed if it did not connect or a client gave up, BenchError if it cannot run like
        this."""


def failure(code: str | None, message: str) -> CallFailed:
    """Return the failure for a server's error, with the name used here."""
    kind = NAMED.get(code or "") or (f"sqlstate_{code}" if code else "reset")
    return CallFailed(kind, _first_line(message))


def not_connected(message: str) -> CallFailed:
    """Return why there is no connection; the client library only provides a message."""
    kinds = (kind for kind, pattern in _CONNECTING if re.search(pattern, message))
    return CallFailed(next(kinds, "refused"), _first_line(message))


def too_old(version: int) -> BenchError:
    minor = version % 10000 if version >= 10_00_00 else version // 100 % 100
    return BenchError(
        f"the server is PostgreSQL {version // 10000}.{minor}; at least {OLDEST // 10000} is supported",
        "give the address of a newer one",
    )


_CONNECTING = (
    ("dns", r"could not translate host name|failed to resolve|Name or service not known"),
    ("login", r'authentication failed|no password supplied|pg_hba\.conf|role ".*" does not|not permitted to log in'),
    ("no_database", r'database ".*" does not exist'),
    ("tls", r"\bSSL\b|certificate"),
    ("timeout", r"timeout expired"),
    ("starting", r"the database system is|not yet accepting connections"),  # starting up, in recovery, shutting down
    ("too_many_connections", r"too many (clients|connections)|remaining connection slots"),
)


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "no message").strip()[:300]
