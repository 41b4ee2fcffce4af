"""The format of retention.yaml: how long data is stored."""

from typing import Literal

from pydantic import Field, model_validator

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_DAY_S = 86400.0


class Retention(Model, strict=True):
    """Ages since the end of a run at which `bench warehouse prune` removes data."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    hot: Seconds = Field(30 * _DAY_S, gt=0, description="Samples of free-standing monitors.")
    warm: Seconds = Field(180 * _DAY_S, gt=0, description="Rows of the tables, which evidence restores.")
    cold: Seconds = Field(730 * _DAY_S, gt=0, description="Evidence itself, which can't be restored.")

    @model_validator(mode="after")
    def _in_order(self) -> "Retention":
        if not self.hot <= self.warm <= self.cold:
            raise ValueError(
                "hot, warm and cold must grow: tables are rebuilt from evidence, so evidence stays longest"
            )
        return self


class Pruned(Model):
    """One thing that was removed, or would be."""

    tier: Literal["hot", "warm", "cold"]
    what: str = Field(description="Run, or folder of a monitor.")
    age_days: float
    trials: int = Field(0, description="Sealed trials of the run.")
    size: int = Field(description="Bytes on disk.")


class Pruning(Model):
    """What `bench warehouse prune` removed, or would remove."""

    dry_run: bool
    policy: Retention
    gone: list[Pruned]
    pinned: list[str] = Field(description="Runs old enough to go that a claim is made of, with the claim.")
