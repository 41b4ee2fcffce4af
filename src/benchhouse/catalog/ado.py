"""Make experiments of ours from the descriptions of ado's, without importing ado.

An input is described like a property of ado: its identifier, its default, and the domain of its values.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, Deprecated, Experiment, Metric
from benchhouse.schema.resources import Resources

Call = Callable[[dict[str, Any]], Any]
"""A function that takes the inputs by name and returns what the experiment returns."""


class AnyInputs(BaseModel):
    """Inputs that were checked before."""

    model_config = ConfigDict(extra="allow")


def declare(described: Mapping[str, Any], call: Call | None = None) -> Experiment:
    """Return the experiment that `described` (a `Listed` as a dict) describes; without `call` it can only be planned.

    If its inputs are not described, all are accepted, because they come from a plan that has checked them.
    """
    outputs = tuple(item["name"] for item in described["metrics"])

    def run(workload: Any, ctx: Context) -> dict[str, Any]:
        if call is None:
            raise BenchError(f"{described['name']} is only described here")
        return _sort_out(call(workload.model_dump(by_alias=True)), outputs, ctx)

    inputs = described["inputs"]
    run.__annotations__ = {"workload": AnyInputs if inputs is None else input_model(described["name"], inputs)}
    deprecated = described.get("deprecated")
    return Experiment(
        name=described["name"],
        version=described["version"],
        function=run,
        metrics=tuple(Metric.model_validate(item) for item in described["metrics"]),
        resources=Resources.model_validate(described.get("resources") or {}),
        deprecated=Deprecated.model_validate(deprecated) if deprecated else None,
        component="custom",
        description=described.get("description", ""),
    )


def _sort_out(returned: Any, outputs: Sequence[str], ctx: Context) -> dict[str, Any]:
    """Return the declared outputs. Other values, which ado drops, are kept as metadata."""
    if not isinstance(returned, dict):
        ctx.fail("bad_return", f"it returned a {type(returned).__name__}; expected a dict of its outputs")
    returned = {metric_name(str(key)): value for key, value in returned.items()}
    if extra := {key: value for key, value in returned.items() if key not in outputs}:
        ctx.metadata(**extra)
    if missing := [name for name in outputs if name not in returned]:
        ctx.warn("missing_output", f"declared, and not returned: {', '.join(missing)}")
    return {name: returned[name] for name in outputs if returned.get(name) is not None}


def metric_name(output: str) -> str:
    """Return an output's identifier, which may be any text, as a valid name of a metric."""
    name = re.sub(r"[^A-Za-z0-9_.@-]", "_", output)[:100]
    return name if name[:1].isalpha() else f"m{name}"[:100]


def input_model(name: str, inputs: Sequence[Mapping[str, Any]]) -> type[BaseModel]:
    """Return the model of an experiment's inputs: types, values, ranges, and defaults of its properties."""
    fields: dict[str, Any] = {}
    for number, item in enumerate(inputs):
        key = item["identifier"]
        plain = key.isidentifier() and not key.startswith("_")
        field = Field(
            ... if item["required"] else item["default"],
            alias=None if plain else key,
            description=item.get("description", ""),
        )
        fields[key if plain else f"input_{number}"] = (_type(item["domain"]), field)
    title = "".join(part.title() for part in name.replace("-", "_").replace(".", "_").split("_"))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=())
    with warnings.catch_warnings():  # an input may have the name of a model's method, such as `copy` or `json`
        warnings.simplefilter("ignore")
        return create_model(f"{title}Inputs", __config__=config, **fields)


def _type(domain: Mapping[str, Any]) -> Any:
    """Return the type of a property's values with its limits; an open set of categories stays open."""
    kind, values = domain.get("variableType"), domain.get("values")
    low_high, step = domain.get("domainRange"), domain.get("interval")
    if kind == "BINARY_VARIABLE_TYPE":
        return bool
    if kind in ("OPEN_CATEGORICAL_VARIABLE_TYPE", "UNKNOWN_VARIABLE_TYPE", None):
        return str if values and all(isinstance(value, str) for value in values) else Any
    if values:
        return _one_of(values)
    if kind == "CATEGORICAL_VARIABLE_TYPE":
        return Any
    whole = kind == "DISCRETE_VARIABLE_TYPE" and all(
        float(number).is_integer() for number in (*(low_high or ()), *((step,) if step else ()))
    )
    low, high = (min(low_high), max(low_high)) if low_high else (None, None)
    bounded = Annotated[int if whole else float, Field(ge=low, lt=high)]  # type: ignore[valid-type]
    if step and not (whole and step == 1):
        return Annotated[bounded, AfterValidator(_on_steps(low or 0, step))]
    return bounded


def _one_of(values: Sequence[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return Literal[tuple(values)]
    kinds = {type(value) for value in values}
    base: Any = int if kinds == {int} else float if kinds <= {int, float} else bool if kinds == {bool} else Any

    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"it is none of {', '.join(map(str, values[:20]))}{', ...' if len(values) > 20 else ''}")
        return value

    return Annotated[base, AfterValidator(check)]


def _on_steps(low: float, step: float) -> Callable[[float], float]:
    def check(value: float) -> float:
        steps = (Decimal(str(value)) - Decimal(str(low))) / Decimal(str(step))
        if steps != steps.to_integral_value():
            raise ValueError(f"it is not on a step of {step:g} from {low:g}")
        return value

    return check


def resources_of(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert Ray's options to resources of ours. Return them, and notes about options without a counterpart."""
    known = {"num_cpus": "cpus", "num_gpus": "gpus", "memory": "memory"}
    given = {key: value for key, value in options.items() if value is not None}
    mapped = {known[key]: math.ceil(value) for key, value in given.items() if key in known and value}
    others = sorted(given.keys() - known.keys())
    notes = [f"ray_options without effect here: {', '.join(others)}"] if others else []
    if fraction := [key for key in ("num_cpus", "num_gpus") if given.get(key) and given[key] % 1]:
        notes.append(f"a trial has whole cores and GPUs: {', '.join(fraction)} of ray_options is rounded up")
    return Resources.model_validate(mapped).model_dump(), notes
