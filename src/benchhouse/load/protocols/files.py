"""The interface between `storage.file` and an engine that moves the bytes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from benchhouse.load.shape import ERROR_LIMIT_S
from benchhouse.load.streams import SharedWaits, ValueStream
from benchhouse.schema.histogram import Histogram

Pattern = Literal["read", "write", "rw", "randread", "randwrite", "randrw"]
KINDS = ("reads", "writes", "syncs")  # operations whose times are kept
SHORT = "short"  # in addition to the names of errno: an operation that moved less than requested


@dataclass(frozen=True)
class FileJob:
    """One measured transfer over an existing file, or one that a sequential write creates."""

    path: Path
    size: int  # a multiple of `block`
    block: int
    pattern: Pattern
    mix: float = 0.7  # share of reads in rw and randrw
    streams: int = 1  # each with its own descriptor and its own part of the file
    depth: int = 1  # operations in flight per stream
    processes: int = 1
    direct: bool = False
    sync_every: int = 0  # writes of a worker between two fdatasync; 0: none
    sync_end: bool = False
    duration_s: float | None = None  # None: every block once
    warmup_s: float = 0.0
    seed: int = 0
    generation: int = 1  # stamped on written blocks; the initial content of the file has 0
    ioengine: str = "psync"  # of fio
    source: Path | None = None  # fills the file with the bytes of this one instead of random ones
    late_s: float = ERROR_LIMIT_S  # a thread that waited for less was not late

    @property
    def random(self) -> bool:
        return self.pattern.startswith("rand")

    @property
    def reads(self) -> bool:
        return not self.pattern.endswith("write")

    @property
    def writes(self) -> bool:
        return not self.pattern.endswith("read")

    @property
    def blocks(self) -> int:
        return self.size // self.block

    @property
    def workers(self) -> int:
        return self.streams * self.depth


@dataclass
class MovedBytes:
    """What was moved in the measured time. Latencies are of single operations, without the syncs between them."""

    reads: Histogram = field(default_factory=Histogram)
    writes: Histogram = field(default_factory=Histogram)
    syncs: Histogram = field(default_factory=Histogram)
    read_bytes: int = 0
    written_bytes: int = 0
    seconds: float = 0.0  # from the first operation to the end of the last worker, last sync included
    errors: Counter[str] = field(default_factory=Counter)  # by name of errno
    first_errors: list[str] = field(default_factory=list)
    fatal: int = 0  # errno that ended the transfer early
    cpu_s: float = 0.0  # of all processes
    user_s: float = 0.0
    busiest: float = 0.0  # operations per second of the busiest process
    worked_s: float = 0.0  # of all workers together, including all waits
    no_core_s: float = 0.0  # of that, ready to run but without a core
    late_s: float = 0.0  # of that, and of stops of their process: waits of more than a millisecond
    # delays included in these times, by kind; empty if unknown
    delays: dict[str, SharedWaits] = field(default_factory=dict)
    waits: tuple[ValueStream, ValueStream] = field(
        default_factory=lambda: (ValueStream(), ValueStream())
    )  # the same as for a load (`LoadRecord.waits`)
    fetched_bytes: int | None = None  # bytes that the kernel read from a device for these processes; None if unknown
    checked: int = 0  # blocks whose content was compared during reads, sampled
    corrupt: list[int] = field(default_factory=list)  # offsets of blocks with different content
    written: list[int] = field(default_factory=list)  # offsets of some writes that succeeded
    version: str = ""  # of the engine, if it is a separate program

    @property
    def operations(self) -> int:
        return self.reads.n + self.writes.n

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class FileEngine(Protocol):
    """Moves blocks of a file. Errors of single operations are counted; an error that ends it early is in `fatal`."""

    known_content: ClassVar[bool]  # whether it writes blocks that `FileLife.misfits` can check

    def transfer(self, job: FileJob) -> MovedBytes:
        """Run the job. Raises OSError if the file can't be opened, BenchError if the job is not possible."""


class FileLife(Protocol):
    """Creates the file under test, and checks it afterwards. All methods raise OSError."""

    def fill(self, job: FileJob) -> None:
        """Write the whole file and make it durable."""

    def drop_cache(self, job: FileJob) -> None: ...

    def misfits(self, job: FileJob, offsets: Sequence[int]) -> list[int]:
        """Return those of the offsets that `job` wrote that have different content."""
