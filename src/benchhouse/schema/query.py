"""QuerySpec and Cell: how a shown number was computed, so that it can be computed again."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Memory, Seconds


class QueryInput(Model):
    """One curated file that a query read."""

    table: str
    run_id: str
    file: str
    sha256: str


class QuerySpec(Model):
    """A pinned analytical query: text, parameters, engine, quantile definition, and input digests."""

    schema_version: Literal[1] = 1
    name: str
    sql: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    engine: str = "duckdb"
    engine_version: str
    quantile_definition: str = "hyndman-fan-7"
    inputs: list[QueryInput]

    def digest(self) -> str:
        """Return the query_spec_digest."""
        return digest(self.model_dump())


class Cell(Model):
    """A number in a report, with everything needed to trace it to the bytes that prove it."""

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


class QueryLimits(Model, strict=True):
    """Limits of a query by a user of a server, and of the number of queries at a time."""

    seconds: Seconds = Field(60.0, gt=0, description="Longest time that a query may ask for.")
    rows: int = Field(100_000, ge=1, description="Most rows that a query may ask for.")
    memory: Memory = Field(
        512 << 20, ge=64 << 20, description="Memory of a query's process; half of it is for the buffers of DuckDB."
    )
    answer: Memory = Field(8 << 20, ge=1, description="Size of an answer as JSON.")
    spill: Memory = Field(1 << 30, ge=1 << 20, description="Temporary files of a query, in .bench/warehouse.")
    at_once: int = Field(3, ge=1, le=64, description="Queries that run at the same time.")
    wait: Seconds = Field(10.0, ge=0, description="Longest wait until one of them has ended.")


def named_query_limits(pairs: Mapping[str, str]) -> QueryLimits:
    """Return the limits, with the defaults replaced by `memory=1GiB`, `at_once=4` and the like."""
    try:
        return QueryLimits.model_validate(dict(pairs), strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        hint = f"there are {', '.join(QueryLimits.model_fields)}, such as --query-limit memory=1GiB"
        raise BenchError(f"--query-limit {name}={pairs.get(name, '')}: {first['msg']}", hint) from error
