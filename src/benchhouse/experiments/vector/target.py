"""The vector database or library under test, and its index."""

from typing import ClassVar

from pydantic import Field, model_validator

from benchhouse.load.protocols.vector import IndexKind
from benchhouse.schema.model import Model


class VectorTarget(Model):
    """The database or library, and its index."""

    driver: str = Field("faiss", description="chroma, faiss, lancedb, milvus, pgvector, qdrant, weaviate, or your own.")
    endpoint: str = Field(
        "", description="Address of a running server; empty: one is started, or the library runs inside (`embedded`)."
    )
    index: IndexKind = Field("hnsw", description="Kind of index.")
    nlist: int = Field(128, ge=1, description="ivf: number of cells.")
    nprobe: int = Field(8, ge=1, description="ivf: cells that a search visits.")
    m: int = Field(16, ge=2, description="hnsw: links a node.")
    ef_construction: int = Field(64, ge=1, description="hnsw: candidates while building.")
    ef_search: int = Field(64, ge=1, description="hnsw: candidates while searching.")
    pq_m: int = Field(8, ge=1, description="pq: parts that a vector is cut into; divides the dimensions.")
    pq_bits: int = Field(8, ge=1, le=12, description="pq: bits a part.")
    threads: int = Field(1, ge=1, description="Threads of an engine inside the trial; most use one a query of a batch.")
    name: str = Field("", description="Name in reports.")

    _owner: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("nlist", "nprobe"), "ivf"),
        **dict.fromkeys(("m", "ef_construction", "ef_search"), "hnsw"),
        **dict.fromkeys(("pq_m", "pq_bits"), "pq"),
    }

    @model_validator(mode="after")
    def _index_options(self) -> "VectorTarget":
        for option, index in self._owner.items():
            if index != self.index and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"{option} is an option of {index}, and the index is {self.index}")
        if self.index == "ivf" and self.nprobe > self.nlist:
            raise ValueError(f"nprobe {self.nprobe} is more than the {self.nlist} cells of nlist")
        return self

    @property
    def options(self) -> dict[str, int]:
        return {option: getattr(self, option) for option, index in self._owner.items() if index == self.index}

    def misfit(self, vectors: int, dimensions: int) -> str:
        """Return why this index can't hold the vectors of this number and dimension; empty if it can."""
        if self.index == "ivf" and self.nlist > vectors:
            return f"nlist {self.nlist} is more than the {vectors} vectors"
        if self.index == "pq" and dimensions % self.pq_m:
            return f"pq_m {self.pq_m} does not divide the {dimensions} dimensions"
        if self.index == "pq" and 2**self.pq_bits > vectors:
            return f"pq_bits {self.pq_bits} needs at least {2**self.pq_bits} vectors"
        return ""
