"""What the experiment `storage.postgres` and the driver `pgbench` say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from benchhouse.load.protocols.postgres import Login

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PgbenchScript:
    """One kind of transaction."""

    text: str
    weight: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)  # beside those that the script sets itself


@dataclass(frozen=True)
class PgbenchJob:
    """One run of pgbench."""

    login: Login
    scripts: tuple[PgbenchScript, ...]
    clients: int
    seconds: int  # from before it connects; it takes whole ones
    threads: int = 1
    rate: float | None = None  # transactions a second, at random times; None: as fast as it goes
    prepared: bool = True
    timeout_s: float = 120.0  # of one transaction
    seed: int = 0


@dataclass(frozen=True)
class PgbenchRun:
    """Its log, a row a transaction in the order in which they ended; stamps are of the monotonic clock."""

    script: "NDArray[int64]"  # number of it
    due_ns: "NDArray[int64]"  # when it was to begin; of a transaction that failed, as `ended_ns`
    sent_ns: "NDArray[int64]"
    ended_ns: "NDArray[int64]"
    failures: Mapping[int, str]  # kind of error by row
    seconds: float  # that the program ran
    cpu_s: float
    peak_mb: float

    def __len__(self) -> int:
        return len(self.script)


class PgbenchDriver(Protocol):
    """The program pgbench. Making one finds it; raises BenchError where there is none."""

    transport: ClassVar[Literal["program"]]
    version: str

    def __init__(self) -> None: ...

    def run(self, job: PgbenchJob) -> PgbenchRun:
        """Raises CallFailed where it did not connect or a client gave up, BenchError where it can't be run so."""
        ...
