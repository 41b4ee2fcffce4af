"""QuerySpec and Cell: how a shown number was computed, so that it can be computed again."""

from typing import Any, Literal

from pydantic import Field

from benchhouse.schema.digests import digest
from benchhouse.schema.model import Model


class QueryInput(Model):
    """One curated file that a query read."""

    table: str
    run_id: str
    file: str
    sha256: str


class QuerySpec(Model):
    """An analytical query, pinned: text, parameters, engine, quantile definition, input digests."""

    schema_version: Literal[1] = 1
    name: str
    sql: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    engine: str = "duckdb"
    engine_version: str
    quantile_definition: str = "hyndman-fan-7"
    inputs: list[QueryInput]

    def digest(self) -> str:
        """query_spec_digest."""
        return digest(self.model_dump())


class Cell(Model):
    """One number of a report, with all that is needed to walk back to the bytes that prove it."""

    ref: str = Field(description="Short id, printed beside the number; what `bench trace` takes.")
    query: str = Field(description="query_spec_digest.")
    key: dict[str, Any] = Field(description="Column values that pick the row of the query's result.")
    column: str
    value: float
    unit: str
    n: int = Field(description="Trials behind the number.")
    trials: list[str] = Field(description="Their ids.")


def cell_ref(query: str, key: dict[str, Any], column: str) -> str:
    return digest({"query": query, "key": key, "column": column})[:10]
