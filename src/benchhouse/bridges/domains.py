"""The inputs of our experiments as ado describes them: names, domains, and defaults, as plain data."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from benchhouse.schema.experiment import Experiment


@dataclass(frozen=True)
class DomainInput:
    """One input; an input of the target is named `target.NAME`."""

    name: str
    domain: dict[str, Any]
    required: bool
    default: Any
    description: str


def inputs_of(experiment: Experiment) -> Iterator[DomainInput]:
    """Yield the inputs for which a point can have a value; optional ones without a plain value keep their default."""
    if experiment.takes_target and experiment.target_model is None:
        yield DomainInput("target.name", _open("name"), True, None, "The target.")
    for model, above in ((experiment.target_model, "target."), (experiment.workload_model, "")):
        for name, field in (model.model_fields if model else {}).items():
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            if field.is_required() or isinstance(default, bool | int | float | str):
                domain = _domain(field, default)
                yield DomainInput(
                    f"{above}{field.alias or name}", domain, field.is_required(), default, field.description or ""
                )


def semantic(version: str) -> str | None:
    """Return a version as MAJOR.MINOR.PATCH, which ado requires; None if it cannot be converted."""
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    return ".".join(str(int(part or 0)) for part in match.groups()) if match else None


@contextmanager
def skipping(name: str) -> Iterator[None]:
    """Log an exception, so that an experiment that ado cannot take does not affect the others."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a foreign module or its inputs may raise anything
        logging.getLogger("benchhouse").warning("%s is not offered to ado: %s: %s", name, type(error).__name__, error)


def _domain(field: FieldInfo, default: Any) -> dict[str, Any]:
    kind = _plain_type(field.annotation)
    if kind is bool:
        return {"variableType": "BINARY_VARIABLE_TYPE"}
    if get_origin(kind) is Literal:
        return {"variableType": "CATEGORICAL_VARIABLE_TYPE", "values": list(get_args(kind))}
    if kind in (int, float):  # for unbounded integers, ado cannot determine whether one domain contains another
        return {"variableType": "CONTINUOUS_VARIABLE_TYPE"}
    if kind is str:
        return _open(default)
    return {"variableType": "UNKNOWN_VARIABLE_TYPE"} if default is None else _open(default)


def _plain_type(annotation: Any) -> Any:
    """Return a type without None: `int | None` becomes int."""
    if get_origin(annotation) in (Union, UnionType):
        members = [part for part in get_args(annotation) if part is not type(None)]
        return members[0] if len(members) == 1 else None
    return annotation


def _open(example: Any) -> dict[str, Any]:
    return {"variableType": "OPEN_CATEGORICAL_VARIABLE_TYPE", "values": [example if example is not None else ""]}
