"""`artifacts/ranks.json`: the step times of each rank of a distributed trial."""

from typing import Literal

from pydantic import Field

from benchhouse.schema.model import Model

FILE = "ranks.json"
"""File name in the artifacts of a trial."""


class RankRow(Model):
    """The step times of one rank."""

    rank: int
    node: str = Field(description="Where it ran.")
    times_ms: list[float | None] = Field(description="A median of each group of steps; null where it told none.")


class RankTimes(Model):
    """Step times by rank: rows are ranks, columns are groups of consecutive steps."""

    schema_version: Literal[1] = 1
    quantity: Literal["own_step_time", "step_time"] = Field(
        description="Of a rank that tells what it waits for others, its step without that; else its whole step."
    )
    first_steps: list[int] = Field(description="The number of the first step of each column.")
    ranks: list[RankRow]
    straggler: str = Field("", description="The rank that the others wait for, in words; empty where none is.")
