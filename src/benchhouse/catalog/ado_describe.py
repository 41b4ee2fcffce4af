"""What ado's decorators and actuators say of an experiment, as plain data. Where this is used, ado gets imported."""

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from benchhouse.catalog.ado import metric_name, resources_of
from benchhouse.catalog.ado_without_ray import import_ado
from benchhouse.catalog.entries import Entry, load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Metric

CUSTOM = "custom_experiments"


def describe(entry: Entry) -> list[dict[str, Any]]:
    """The experiments behind one entry point of `ado.custom_experiments` or `ado.actuators`."""
    keep_ray_options()
    found = load_object(entry.object)
    return list(_of_actuator(found, entry) if entry.group == "ado.actuators" else _of_module(found, entry))


@cache
def keep_ray_options() -> None:
    """ado forgets those options of Ray that it does not know; here they are kept, so that they can be told."""
    options = import_ado().RayRemoteOptions
    options.model_config["extra"] = "allow"
    options.model_rebuild(force=True)


def _of_module(found: Any, entry: Entry) -> Iterator[dict[str, Any]]:
    """All decorated functions of the entry's package: two of one name and different versions are two experiments."""
    module = found if isinstance(found, ModuleType) else inspect.getmodule(found)
    top = module.__name__.partition(".")[0] if module else ""
    loaded = [item for name, item in sorted(sys.modules.items()) if name == top or name.startswith(f"{top}.")]
    seen: set[int] = set()
    for item in sorted(loaded, key=lambda item: item is not module):
        for attribute, function in list(vars(item).items()):
            if not getattr(function, "_is_custom_experiment", False) or id(function) in seen:
                continue
            if function.__module__.partition(".")[0] != top:
                continue  # borrowed from another package, which lists it
            seen.add(id(function))
            yield describe_function(function) | {"object": f"{item.__name__}:{attribute}"}


def describe_function(function: Any) -> dict[str, Any]:
    options = getattr(function, "_ray_options", None)
    given = {**options.model_dump(), **(options.model_extra or {})} if options is not None else {}
    resources, notes = resources_of(given)
    told = describe_experiment(function._experiment, CUSTOM)
    about = (inspect.getdoc(function) or "").split("\n")[0]
    return told | {"description": about, "resources": resources, "notes": notes}


def _of_actuator(found: Any, entry: Entry) -> Iterator[dict[str, Any]]:
    from ado.modules.actuators.standard import StandardActuator

    catalog = found.catalog()
    for experiment in catalog.experiments:
        told = describe_experiment(experiment, found.identifier)
        if not issubclass(found, StandardActuator):
            reason = "its actuator runs only inside ado's own engine (it is no StandardActuator)"
            told["broken"] = told["broken"] or f"{reason}; use it from ado itself: ado create operation"
        yield told | {"object": entry.object}


def describe_experiment(experiment: Any, actuator: str) -> dict[str, Any]:
    """An `ado.schema.experiment.Experiment` in our words."""
    defaults = {item.property.identifier: item.value for item in experiment.defaultParameterization}
    inputs = [_input(item, required=True) for item in experiment.requiredProperties]
    inputs += [
        _input(item, required=False, default=defaults[item.identifier]) for item in experiment.optionalProperties
    ]
    observed = [item["identifier"] for item in inputs if item.get("observed")]
    needs = f"it needs what another experiment measures: {', '.join(observed)}" if observed else None
    reason = "its package marks it as deprecated"
    return {
        "name": f"{actuator}.{experiment.identifier}",
        "version": experiment.version or "",
        "description": str((experiment.metadata or {}).get("description", "")),
        "metrics": [describe_metric(item.identifier) for item in experiment.targetProperties],
        "inputs": inputs,
        "resources": {},
        "notes": [],
        "deprecated": {"reason": reason, "replaced_by": None} if experiment.deprecated else None,
        "broken": needs,
    }


def describe_metric(output: str) -> dict[str, Any]:
    name = metric_name(output)
    return Metric(name=name, formula="" if name == output else f"the output '{output}'").model_dump()


def _input(item: Any, *, required: bool, default: Any = None) -> dict[str, Any]:
    told: dict[str, Any] = {"identifier": item.identifier, "required": required, "default": default}
    if not hasattr(item, "propertyDomain"):
        return told | {"domain": {}, "observed": True}
    domain = item.propertyDomain.model_dump(mode="json", exclude_none=True)
    if domain.get("variableType") == "BINARY_VARIABLE_TYPE" and not required:
        told["default"] = bool(default)  # ado keeps it as a number
    about = (getattr(item, "metadata", None) or {}).get("description", "")
    return told | {"domain": domain, "description": str(about)}


def check(experiment: dict[str, Any], name: str, version: str) -> None:
    """The experiment that was loaded is the one that was asked for: another version is refused, never run."""
    found = experiment["name"], experiment["version"]
    if found[0] != name or (found[1] and found[1] != version):
        raise BenchError(f"found {' '.join(found)}, not {name} {version}: was the package changed?")
