"""What the vector experiments and the driver of a vector database or library say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

Distance = Literal["l2", "ip", "cosine"]
IndexKind = Literal["flat", "ivf", "hnsw", "pq"]
LABELS = 1000
"""Every vector carries a label from 0 to LABELS - 1; a filtered search asks for labels below a number."""


@dataclass(frozen=True)
class Collection:
    """What is made in the database: a collection, table or index of that name, which nothing else may have."""

    name: str
    dimensions: int
    distance: Distance
    index: IndexKind
    options: Mapping[str, int] = field(default_factory=dict)
    """Of ivf: nlist, nprobe; of hnsw: m, ef_construction, ef_search; of pq: pq_m, pq_bits."""
    labels: bool = False  # whether searches will filter by label
    threads: int = 1  # of an engine inside this process


@dataclass(frozen=True)
class VectorStats:
    """What the database says about a collection."""

    vectors: int
    bytes: int | None = None  # of the index as it is stored, where that can be known


class VectorDriver(Protocol):
    """One connection to a vector database, or the library itself.

    The experiment makes one to create, ingest, build, and later delete; and one for each thread that searches, unless
    the driver says that all threads share it. `open` is called first, `close` last. A call that fails for a reason
    with a name raises `CallFailed`; what can't be asked of this database at all raises BenchError.

    A driver whose client takes microseconds may also have `prepare(calls, k)`: each thread calls it once before the
    load, with all that will be asked. It returns a function from the number of a call to what `search` would return
    for it, or None, and then `search` is used.
    """

    indexes: ClassVar[tuple[IndexKind, ...]]  # those that it can build
    distances: ClassVar[tuple[Distance, ...]]
    filters: ClassVar[bool]  # whether it can search among the labels below a number
    shared: ClassVar[bool]  # whether one object serves all threads: engines inside this process
    recipe: ClassVar[str]  # the server that is started where no endpoint is given; empty where there is none to start

    def __init__(self, endpoint: str, collection: Collection) -> None:
        """`endpoint` is the address of the server, or for an embedded database the folder that it may use."""

    @property
    def version(self) -> str:
        """Of the database, once it is open."""

    def open(self) -> None: ...

    def create(self) -> None:
        """Make the collection, empty. One of that name that is there already is left alone: raises BenchError."""

    def ingest(self, first: int, vectors: "NDArray[float32]", labels: "NDArray[int64] | None") -> None:
        """Hand over vectors; their ids are `first`, `first` + 1, ... Returns once the database has taken them."""

    def build(self) -> None:
        """Make everything that was ingested searchable through the index; returns when it is."""

    def search(self, queries: "NDArray[float32]", k: int, below: int | None = None) -> "NDArray[int64]":
        """Ids of the k nearest of each query, best first; -1 where fewer were found. `below`: of labels below it."""

    def stats(self) -> VectorStats: ...

    def delete(self) -> None:
        """Remove the collection, if `create` made it, and all that belongs to it; a second time does nothing."""

    def close(self) -> None: ...
