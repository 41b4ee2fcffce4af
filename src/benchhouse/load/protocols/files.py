"""What `storage.file` and an engine that moves the bytes say to each other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from benchhouse.load.shape import ERROR_LIMIT_S
from benchhouse.load.streams import SharedWaits, ValueStream
from benchhouse.schema.histogram import Histogram

Pattern = Literal["read", "write", "rw", "randread", "randwrite", "randrw"]
KINDS = ("reads", "writes", "syncs")  # of operations whose times are kept
SHORT = "short"  # beside the names of errno: an operation that moved less than was asked


@dataclass(frozen=True)
class FileJob:
    """One measured transfer over a file that is there already, or for a sequential write is made by it."""

    path: Path
    size: int  # a multiple of `block`
    block: int
    pattern: Pattern
    mix: float = 0.7  # share of reads in rw and randrw
    streams: int = 1  # each with its own descriptor and its own part of the file
    depth: int = 1  # operations in flight of each stream
    processes: int = 1
    direct: bool = False
    sync_every: int = 0  # writes of a worker between two fdatasync; 0: none
    sync_end: bool = False
    duration_s: float | None = None  # None: every block once
    warmup_s: float = 0.0
    seed: int = 0
    generation: int = 1  # stamped on what is written; 0 is what the file was filled with
    ioengine: str = "psync"  # of fio
    source: Path | None = None  # whose bytes the file is filled with, instead of random ones
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
    fatal: int = 0  # errno that ended the transfer before its time
    cpu_s: float = 0.0  # of all processes
    user_s: float = 0.0
    busiest: float = 0.0  # operations a second of the busiest process
    worked_s: float = 0.0  # of all workers together, with all that they waited for
    no_core_s: float = 0.0  # of that, ready to run and without a core
    late_s: float = 0.0  # of that, and of stops of their process: waits of more than a millisecond
    delays: dict[str, SharedWaits] = field(default_factory=dict)  # by kind, what is in these times; empty: not known
    waits: tuple[ValueStream, ValueStream] = field(
        default_factory=lambda: (ValueStream(), ValueStream())
    )  # as of a load (`Book.waits`)
    fetched_bytes: int | None = None  # that these processes made the kernel read from a device
    checked: int = 0  # blocks whose content was compared as they were read, sampled
    corrupt: list[int] = field(default_factory=list)  # offsets of those that held something else
    written: list[int] = field(default_factory=list)  # offsets of some writes that succeeded
    version: str = ""  # of the engine, where it is a program of its own

    @property
    def operations(self) -> int:
        return self.reads.n + self.writes.n

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class FileEngine(Protocol):
    """Moves blocks of a file. Errors of single operations are counted; what ends it early is in `fatal`."""

    known_content: ClassVar[bool]  # whether it writes blocks that `FileLife.misfits` can check

    def transfer(self, job: FileJob) -> MovedBytes:
        """Raises OSError where the file can't be opened, BenchError where the job can't be done."""


class FileLife(Protocol):
    """Makes the file under test, and looks at it afterwards. All raise OSError."""

    def fill(self, job: FileJob) -> None:
        """Write the whole file and make it durable."""

    def drop_cache(self, job: FileJob) -> None: ...

    def misfits(self, job: FileJob, offsets: Sequence[int]) -> list[int]:
        """Of the offsets that `job` wrote, those that hold something else."""
