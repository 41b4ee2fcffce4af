"""What a trial asks for and runs inside, what it may use at most, and what a whole run may use."""

from typing import Any

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quantities import Bytes, Seconds


def _other_spellings(schema: dict[str, Any]) -> None:
    """The JSON Schema knows only one spelling of a field; files may use these as well."""
    properties = schema["properties"]
    properties["cpus_per_task"] = properties["cpus"] | {"title": "Cpus Per Task"}
    properties["mem_gb"] = {"type": "number", "exclusiveMinimum": 0, "description": "Memory per node in 10^9 bytes."}


class Resources(Model):
    """What one trial needs; an executor that can't give it refuses at once."""

    model_config = ConfigDict(strict=True, json_schema_extra=_other_spellings)
    nodes: int = Field(1, ge=1, description="Number of nodes.")
    cpus: int = Field(
        1, ge=1, validation_alias=AliasChoices("cpus", "cpus_per_task"), description="Cores per node (or task)."
    )
    gpus: int = Field(0, ge=0, description="GPUs per node.")
    memory: Bytes | None = Field(None, description="Memory per node, e.g. 32GB; `mem_gb: 32` is accepted too.")

    @model_validator(mode="before")
    @classmethod
    def _mem_gb(cls, data: Any) -> Any:
        if isinstance(data, dict) and "mem_gb" in data:
            data = dict(data)
            amount = data.pop("mem_gb")
            if "memory" in data:
                raise ValueError("give either memory or mem_gb, not both")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount <= 0:
                raise ValueError(f"mem_gb must be a positive number of gigabytes, found {amount!r}")
            data["memory"] = round(amount * 10**9)
        return data


class Limits(Model, strict=True):
    """Hard limits of one trial; what goes beyond is ended and recorded as such."""

    wall: Seconds | None = Field(None, gt=0, description="Wall-clock time, e.g. 10m; the trial ends as `timeout`.")
    cpu: Seconds | None = Field(None, gt=0, description="CPU time of the trial's process tree; ends as `timeout`.")
    cpus: float | None = Field(None, gt=0, description="Cores the trial may use at once.")
    memory: Bytes | None = Field(None, gt=0, description="Memory of the process tree; ends as `out_of_memory`.")
    processes: int | None = Field(None, ge=1, description="Processes and threads at once.")


class Budget(Model, strict=True):
    """What a whole run may use; when it is spent, no further trial starts."""

    wall: Seconds | None = Field(None, gt=0, description="Wall-clock time of the whole run.")
    cpu: Seconds | None = Field(None, gt=0, description="CPU time of all trials together.")
    trials: int | None = Field(None, ge=1, description="Number of trials started.")
    cost: float | None = Field(None, gt=0, description="Money, by `price_per_hour`.")


class Retries(Model, strict=True):
    """How infrastructure failures are retried; an experiment's own failure never is."""

    max_retries: int = Field(2, ge=0, le=100, description="Attempts after the first one.")
    backoff: Seconds = Field(1.0, description="Wait before the first retry.")
    factor: float = Field(2.0, ge=1, description="Each further wait is this much longer.")

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait before attempt number `attempt` (the first retry is attempt 2)."""
        return min(self.backoff * self.factor ** max(0, attempt - 2), 3600.0)


class Runtime(Model, strict=True):
    """What a job runs inside."""

    kind: str = Field("process", description="Name of an installed runtime: process, venv, ...")
    image: str | None = Field(None, description="Container image; or `artifacts: {container: ...}`.")
    requirements: list[str] = Field(default_factory=empty_list, description="What the isolated environment installs.")
    python: str | None = Field(None, description="Interpreter of the isolated environment.")
    shared: bool = Field(False, description="Whether trials of one worker share a process, in turn.")
