"""Resources and runtime of a trial, its limits, and the budget of a run."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, ConfigDict, Field, ValidationError, model_validator

from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quantities import Memory, Seconds

_GRES = re.compile(r"([A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?)(?::([1-9][0-9]*))?")


def _other_spellings(schema: dict[str, Any]) -> None:
    """Add the other spellings of fields that files may use to the JSON Schema."""
    properties = schema["properties"]
    properties["cpus_per_task"] = properties["cpus"] | {"title": "Cpus Per Task"}
    properties["mem_gb"] = {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Memory per node in GiB, as Slurm counts.",
    }


class Resources(Model):
    """The resources that one trial needs; an executor that cannot provide them refuses at once."""

    model_config = ConfigDict(strict=True, json_schema_extra=_other_spellings)
    nodes: int = Field(1, ge=1, description="Number of nodes.")
    cpus: int = Field(
        1, ge=1, validation_alias=AliasChoices("cpus", "cpus_per_task"), description="Cores per node (or task)."
    )
    gpus: int = Field(0, ge=0, description="GPUs per node.")
    memory: Memory | None = Field(
        None, description="Memory per node: 32GiB, or 32GB (10^9 bytes each); or `mem_gb: 32`."
    )
    ntasks: int | None = Field(None, ge=1, description="Tasks of the job over all its nodes; only Slurm has them.")
    gres: str | None = Field(
        None, description="Slurm's generic resources per node: `gpu:2`, `gpu:a100:2,nvme:1`; GPUs in it are `gpus`."
    )

    def as_given(self) -> "Resources":
        """Return the resources without the fields that only a scenario has."""
        return Resources.model_validate(self.model_dump())

    @model_validator(mode="before")
    @classmethod
    def _spellings(cls, data: Any) -> Any:
        """Convert the other spellings: `mem_gb` is memory as in `--mem=32G`; GPUs in `gres` are counted in `gpus`."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if "mem_gb" in data:
            amount = data.pop("mem_gb")
            if "memory" in data:
                raise ValueError("give either memory or mem_gb, not both")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount <= 0:
                raise ValueError(f"mem_gb must be a positive number of gigabytes, found {amount!r}")
            data["memory"] = round(amount * 2**30)
        if isinstance(data.get("gres"), str):
            gpus = [count for kind, count in gres_counts(data["gres"]) if is_gpu(kind)]
            if len(gpus) > 1:
                raise ValueError(f"gres: {data['gres']} asks for GPUs of two types; a trial has one")
            if gpus and data.setdefault("gpus", gpus[0]) != gpus[0]:
                raise ValueError(f"gpus: {data['gpus']} and gres: {data['gres']} ask for different numbers of GPUs")
        return data


def _lists_too(schema: dict[str, Any]) -> None:
    _other_spellings(schema)
    properties = schema["properties"]
    properties.pop("varied")
    for name, single in properties.items():
        properties[name] = {"anyOf": [single, {"type": "array", "items": single, "minItems": 1}]}


class AskedResources(Resources):
    """The resources that one trial needs, as written in a scenario: a list is an axis."""

    model_config = ConfigDict(json_schema_extra=_lists_too)
    varied: dict[str, list[Any]] = Field(default_factory=dict, exclude=True, description="Each list, by its field.")

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, data: Any) -> Any:
        """Turn lists into axes; the field gets the first value."""
        if not isinstance(data, dict) or "varied" in data:
            return data
        lists = {key: value for key, value in data.items() if isinstance(value, list)}
        for key, values in lists.items():
            if not values:
                raise ValueError(f"the axis '{key}' is empty: give at least one value")
        varied = {spelt(key): [value_of(key, item) for item in values] for key, values in lists.items()}
        return data | {key: values[0] for key, values in lists.items()} | ({"varied": varied} if varied else {})


def gres_counts(text: str) -> list[tuple[str, int]]:
    """Return `gpu:a100:2,nvme` as (gpu:a100, 2), (nvme, 1). Raise ValueError for text of another form."""
    parts = [(item, _GRES.fullmatch(item)) for item in text.split(",")] if text else []
    for item, match in parts:
        if match is None:
            raise ValueError(f"{item!r} is not NAME[:TYPE][:COUNT], e.g. gpu:2 or gpu:a100:2")
    return [(match[1], int(match[2] or 1)) for _, match in parts if match]


def is_gpu(kind: str) -> bool:
    """Return whether a generic resource is a GPU of any type."""
    return kind.partition(":")[0] == "gpu"


def spelt(key: str) -> str:
    """Return the field that a key of `resources` means."""
    return {"cpus_per_task": "cpus", "mem_gb": "memory"}.get(key, key)


def value_of(key: str, value: Any) -> Any:
    """Return the field's value for `key: value` in a file. Raise ValueError if it is not valid."""
    if key == "gres":
        raise ValueError("gres does not vary: let `gpus` vary")
    try:
        return getattr(Resources.model_validate({key: value}), spelt(key))
    except ValidationError as error:
        raise ValueError(f"{key}: {value!r}: {error.errors()[0]['msg']}") from error


class Limits(Model, strict=True):
    """Hard limits of one trial. A trial that exceeds one is stopped, and its outcome records it."""

    wall: Seconds | None = Field(None, gt=0, description="Wall-clock time, e.g. 10m; the trial ends as `timeout`.")
    cpu: Seconds | None = Field(None, gt=0, description="CPU time of the trial's process tree; ends as `timeout`.")
    cpus: float | None = Field(None, gt=0, description="Cores the trial may use at once.")
    memory: Memory | None = Field(None, gt=0, description="Memory of the process tree; ends as `out_of_memory`.")
    processes: int | None = Field(None, ge=1, description="Processes and threads at once.")
    files: int | None = Field(
        None, ge=1, description="Files and folders that it may leave in its trial folder; 100,000 by default."
    )
    disk: Memory | None = Field(
        None, gt=0, description="Total length of these files, holes of sparse files included; 200 GB by default."
    )


class Budget(Model, strict=True):
    """The budget of a whole run; when it is used up, no further trial starts."""

    wall: Seconds | None = Field(None, gt=0, description="Wall-clock time of the whole run.")
    cpu: Seconds | None = Field(None, gt=0, description="CPU time of all trials together.")
    trials: int | None = Field(None, ge=1, description="Number of trials started.")
    cost: float | None = Field(None, gt=0, description="Money, by `price_per_hour`.")
    node_hours: float | None = Field(None, gt=0, description="Nodes of each trial times its hours.")
    gpu_hours: float | None = Field(None, gt=0, description="GPUs of each trial, on all its nodes, times its hours.")


def named_budget(pairs: Mapping[str, str]) -> Budget | None:
    """Return the budget for `trials=100`, `wall=1h` and other keys of a scenario's `budget`; None if there are none."""
    try:
        return Budget.model_validate(dict(pairs), strict=False) if pairs else None
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        hint = f"there are {', '.join(Budget.model_fields)}, such as --budget trials=100 --budget wall=1h"
        raise BenchError(f"--budget {name}={pairs.get(name, '')}: {first['msg']}", hint) from error


class Retries(Model, strict=True):
    """How infrastructure failures are retried; an experiment's own failure is never retried."""

    max_retries: int = Field(2, ge=0, le=100, description="Attempts after the first one.")
    backoff: Seconds = Field(1.0, description="Wait before the first retry.")
    factor: float = Field(2.0, ge=1, description="Each further wait is this much longer.")

    def delay_s(self, attempt: int) -> float:
        """Return the seconds to wait before attempt number `attempt` (the first retry is attempt 2)."""
        return min(self.backoff * self.factor ** max(0, attempt - 2), 3600.0)


class RuntimeSettings(Model, strict=True):
    """The environment in which a job runs."""

    kind: str = Field("process", description="Name of an installed runtime: process, venv, ...")
    image: str | None = Field(None, description="Container image; or `artifacts: {container: ...}`.")
    requirements: list[str] = Field(default_factory=empty_list, description="What the isolated environment installs.")
    environments: list[list[str]] = Field(
        default_factory=empty_list,
        description="Isolated environments, by what each installs beside `requirements`; a trial runs in the one that "
        "has its version of the experiment.",
    )
    python: str | None = Field(None, description="Interpreter of the isolated environment.")
    shared: bool = Field(False, description="Whether trials of one worker share a process, in turn.")
