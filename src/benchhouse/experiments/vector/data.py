"""Sources of vectors and queries: generated from a seed, or a file; each kind loads itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from benchhouse.experiments.vector import files
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Cache
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.shorthand import AlsoTakes

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

_GENERATOR = 2  # of synthetic data, part of its digest: increase it whenever the data change
_SPREAD = 0.5  # of cluster centers, in standard deviations of a cluster: they overlap
_DECAY = 0.5  # variance falls as 1/rank, as in learned embeddings
_HELD_OUT = 0.1  # share of the rows that become queries, at most, if the number of vectors is not given


@dataclass(frozen=True)
class VectorDataset:
    """Vectors for the index, and queries that are not among them."""

    digest: str  # of everything that determines both
    vectors: "NDArray[float32]"  # may be mapped from a file
    queries: "NDArray[float32]"
    truth: "NDArray[int64] | None" = None  # the nearest of each query, best first, if the data include them


class Synthetic(Model):
    """Overlapping clusters with a decaying spectrum: far-apart ones would let every index reach recall 1.0."""

    standard: ClassVar[int | None] = 20_000  # default number of vectors
    kind: Literal["synthetic"] = Field("synthetic", description="Made up, by a seed.")
    dimensions: int = Field(64, ge=1, le=65_536, description="Numbers a vector.")
    clusters: int = Field(200, ge=1, description="Overlapping clusters that vectors and queries are drawn from.")
    seed: int = Field(0, ge=0, description="The same for all trials, so that the truth is computed once.")

    def load(self, vectors: int | None, queries: int, cache: Cache) -> VectorDataset:
        import numpy

        vectors = vectors or self.standard or 0
        rng = numpy.random.default_rng(self.seed)
        count = vectors + queries
        scale = numpy.arange(1, self.dimensions + 1, dtype=numpy.float32) ** -_DECAY
        centres = rng.standard_normal((self.clusters, self.dimensions), dtype=numpy.float32) * _SPREAD
        points = rng.standard_normal((count, self.dimensions), dtype=numpy.float32)
        points += centres[rng.integers(0, self.clusters, count)]
        points *= scale
        rotation = numpy.linalg.qr(rng.standard_normal((self.dimensions, self.dimensions)))[0]
        points = numpy.ascontiguousarray(points @ rotation.astype(numpy.float32))
        made = digest({"generator": _GENERATOR, **self.model_dump(), "vectors": vectors, "queries": queries})
        return VectorDataset(made, points[:vectors], points[vectors:])


class VectorFile(Model):
    """A user's vectors (.npy, .npz, .parquet, .hdf5, .fvecs, .bvecs), with queries and neighbors in it or elsewhere."""

    standard: ClassVar[int | None] = None
    kind: Literal["file"] = Field("file", description="Own vectors.")
    path: InputPath = Field(description="A .npy, .npz, .parquet, .hdf5, .fvecs or .bvecs file.")
    array: str = Field("", description="Array, dataset or column with the vectors, where the file has several.")
    queries: InputPath = Field(
        "", description="A file with queries; else `queries` or `test` in `path`, else its last rows, then not indexed."
    )
    truth: InputPath = Field(
        "", description="A file with each query's nearest ids; else `neighbors` or `truth` in `path`, else computed."
    )
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of `path`; another file is then refused.")

    @model_validator(mode="after")
    def _files_are_there(self) -> "VectorFile":
        for name in filter(None, (self.path, self.queries, self.truth)):
            if not Path(name).is_file():
                raise ValueError(f"there is no file {name}")
            files.check_name(Path(name))
        if self.truth and not self.queries:
            raise ValueError("truth is of queries of your own: name their file too")
        return self

    def load(self, vectors: int | None, queries: int, cache: Cache) -> VectorDataset:
        path = Path(self.path)
        identity = {name: file_digest(Path(name)) for name in filter(None, (self.path, self.queries, self.truth))}
        if self.sha256 and identity[self.path] != self.sha256:
            raise BenchError(f"{path} has sha256 {identity[self.path]}, and workload.data.sha256 is {self.sha256}")
        rows = files.vectors(path, self.array)
        mark = digest({"files": list(identity.values()), "array": self.array})
        query_rows = files.vectors(Path(self.queries)) if self.queries else files.queries(path)
        if query_rows is None:
            return _held_out(rows, vectors, queries, mark)
        if query_rows.shape[1] != rows.shape[1]:
            raise BenchError(f"the queries have {query_rows.shape[1]} dimensions and the vectors {rows.shape[1]}")
        truth = None
        if self.truth or not self.queries:
            truth = files.neighbours(Path(self.truth or path), own=not self.truth)
        if truth is not None and len(truth) != len(query_rows):
            raise BenchError(f"there are neighbours of {len(truth)} queries, and {len(query_rows)} queries")
        if truth is not None and not (-1 <= truth.min(initial=0) <= truth.max(initial=0) < len(rows)):
            raise BenchError(f"the neighbours name a vector {truth.max()}, and there are {len(rows)}")
        if vectors and vectors < len(rows):
            rows, truth = rows[:vectors], None
        _check_count(vectors, len(rows), self.path)
        query_rows = query_rows[:queries]
        made = digest({"file": mark, "vectors": len(rows), "queries": len(query_rows)})
        return VectorDataset(made, rows, query_rows, truth[: len(query_rows)] if truth is not None else None)


def _held_out(rows: "NDArray[float32]", vectors: int | None, queries: int, mark: str) -> VectorDataset:
    """Use the last rows as queries."""
    count = min(queries, max(1, int(len(rows) * _HELD_OUT)) if vectors is None else max(1, len(rows) - vectors))
    _check_count(vectors, len(rows) - count, "the data, one query held out,")
    kept = vectors or len(rows) - count
    made = digest({"data": mark, "vectors": kept, "queries": count})
    return VectorDataset(made, rows[:kept], rows[len(rows) - count :])


def _check_count(vectors: int | None, there: int, what: str) -> None:
    if there < max(vectors or 1, 1):
        raise BenchError(f"{what} has {there} vectors and the workload asks for {vectors or 'at least one'}")


def _spell_out(given: Any) -> Any:
    """Accept a kind as one word (`data: synthetic`); a mapping without a kind is a file or synthetic, by its keys."""
    given = {"kind": given} if isinstance(given, str) else given
    if not isinstance(given, dict):
        return given
    # `file` is not a key, but a user who writes it should see what a file needs.
    of_a_file = {"path", "array", "queries", "truth", "sha256", "file"} & given.keys()
    return {"kind": "file" if of_a_file else "synthetic"} | given


_WORD = AlsoTakes({"enum": ["synthetic"]})
Source = Annotated[Synthetic | VectorFile, Field(discriminator="kind"), BeforeValidator(_spell_out), _WORD]
