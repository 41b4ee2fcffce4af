"""The interface between the vector experiments and the driver of a vector database or library."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

Distance = Literal["l2", "ip", "cosine"]
IndexKind = Literal["flat", "ivf", "hnsw", "pq"]
LABELS = 1000
"""Every vector carries a label from 0 to LABELS - 1; a filtered search requests labels below a number."""


@dataclass(frozen=True)
class Collection:
    """What is created in the database: a collection, table, or index of that name, which must be unused."""

    name: str
    dimensions: int
    distance: Distance
    index: IndexKind
    options: Mapping[str, int] = field(default_factory=dict)
    """For ivf: nlist, nprobe; for hnsw: m, ef_construction, ef_search; for pq: pq_m, pq_bits."""
    labels: bool = False  # whether searches will filter by label
    threads: int = 1  # of an engine inside this process


@dataclass(frozen=True)
class VectorStats:
    """Facts that the database reports about a collection."""

    vectors: int
    bytes: int | None = None  # size of the stored index; None if unknown


class VectorDriver(Protocol):
    """One connection to a vector database, or the library itself.

    The experiment creates one object to create, ingest, build, and later delete; and one for each thread that searches,
    unless the driver's object is shared by all threads. `open` is called first, `close` last. A call that fails for a
    known reason raises `CallFailed`; a request that this database does not support raises BenchError.

    A driver whose client takes microseconds may also have `prepare(calls, k)`: each thread calls it once before the
    load, with all its searches. It returns a function from the number of a call to what `search` would return for it,
    or None to use `search`.
    """

    indexes: ClassVar[tuple[IndexKind, ...]]  # the index kinds that it can build
    distances: ClassVar[tuple[Distance, ...]]
    filters: ClassVar[bool]  # whether it can restrict a search to labels below a number
    shared: ClassVar[bool]  # whether one object serves all threads: engines inside this process
    recipe: ClassVar[str]  # the server that is started if no endpoint is given; empty if there is none to start

    def __init__(self, endpoint: str, collection: Collection) -> None:
        """`endpoint` is the address of the server, or for an embedded database the folder that it may use."""

    @property
    def version(self) -> str:
        """The version of the database, once it is open."""

    def open(self) -> None: ...

    def create(self) -> None:
        """Create the empty collection. Raises BenchError if the name exists, and leaves that collection alone."""

    def ingest(self, first: int, vectors: "NDArray[float32]", labels: "NDArray[int64] | None") -> None:
        """Insert vectors with the ids `first`, `first` + 1, ... Returns once the database has taken them."""

    def build(self) -> None:
        """Make everything that was ingested searchable through the index. Returns when it is."""

    def search(self, queries: "NDArray[float32]", k: int, below: int | None = None) -> "NDArray[int64]":
        """Return the ids of the k nearest of each query, best first, padded with -1. `below` restricts the labels."""

    def stats(self) -> VectorStats: ...

    def delete(self) -> None:
        """Remove the collection, if `create` made it, with everything that belongs to it. Idempotent."""

    def close(self) -> None: ...
