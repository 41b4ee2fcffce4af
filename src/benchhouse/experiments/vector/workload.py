"""The fixed problem of a vector search: data, queries, and the load."""

from typing import Any

from pydantic import Field, model_validator

from benchhouse.experiments.vector.data import Source, Synthetic
from benchhouse.load.protocols.vector import LABELS, Distance
from benchhouse.load.shape import Shape
from benchhouse.schema.quantities import Seconds

_DURATION_S = 2.0


class VectorWorkload(Shape):
    """Data, queries, and the load: by default, one call at a time for 2 s."""

    data: Source = Field(default_factory=Synthetic, description="synthetic, or a file of your own.")
    vectors: int | None = Field(None, ge=1, le=100_000_000, description="In the index; by default 20,000, or the file.")
    queries: int = Field(10_000, ge=1, description="Most different queries; none of them is in the index.")
    distance: Distance = Field("l2", description="l2, ip (inner product of the vectors as they are) or cosine.")
    k: int = Field(10, ge=1, description="Neighbours a query asks for.")
    batch: int = Field(1, ge=1, description="Queries a call.")
    selectivity: float | None = Field(None, ge=1 / LABELS, le=1, description="Share that a filtered search may find.")
    ingest_batch: int = Field(1000, ge=1, description="Vectors that are handed over at a time.")
    ingest_during: float = Field(0.0, ge=0, le=0.9, description="Share of the vectors ingested during the window.")
    concurrency: int | None = Field(None, ge=1, le=100_000, description="Closed loop: calls in flight; 1 by default.")
    duration: Seconds | None = Field(None, gt=0, description="Length of the measured window; 2 s by default.")
    warmup: Seconds = Field(0.2, description="Load before the measured window.")
    slo: str | None = Field(None, description="Objective such as `latency.p99<20ms,error<0.1%`; gives goodput.")

    @model_validator(mode="before")
    @classmethod
    def _one_call_at_a_time(cls, given: Any) -> Any:
        loops = ("concurrency", "rps", "arrivals")
        if isinstance(given, dict) and all(given.get(name) is None for name in loops):
            return given | {"concurrency": 1}
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> "VectorWorkload":
        standard = self.vectors or self.data.standard
        if standard is not None and self.k > standard:
            raise ValueError(f"k {self.k} is more than the {standard} vectors")
        if self.ingest_during and self.requests:
            raise ValueError("ingest_during is spread over the window: give duration instead of requests")
        if self.ingest_during and self.shards > 1:
            raise ValueError("ingest_during needs one process: it must know what was ingested before each search")
        if self.ingest_during and self.selectivity is not None:
            raise ValueError("give ingest_during or selectivity, not both")
        return self

    @property
    def window_s(self) -> float | None:
        return None if self.requests else self.duration or _DURATION_S

    @property
    def below(self) -> int | None:
        """Exclusive limit of the labels that are searched; None if all are."""
        return None if self.selectivity is None else round(self.selectivity * LABELS)
