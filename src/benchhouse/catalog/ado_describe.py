"""What ado's decorators and actuators say of an experiment, as plain data. Where this is used, ado gets imported."""

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from benchhouse.catalog.ado import metric_name, resources_of
from benchhouse.catalog.entries import Entry, load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Metric

CUSTOM = "custom_experiments"


def describe(entry: Entry) -> list[dict[str, Any]]:
    """The experiments behind one entry point of `ado.custom_experiments` or `ado.actuators`."""
    loaded = load_object(entry.object)
    return list(_of_actuator(loaded, entry) if entry.group == "ado.actuators" else _of_module(loaded))


def _of_module(loaded: Any) -> Iterator[dict[str, Any]]:
    """All decorated functions of the entry's package: two of one name and different versions are two experiments.

    What an earlier entry point of that package has imported is listed again, by the same `object`.
    """
    module = loaded if isinstance(loaded, ModuleType) else inspect.getmodule(loaded)
    package = _package_of(module.__name__) if module else ""
    seen: set[int] = set()
    for name, item in sorted(sys.modules.items()):
        for attribute, function in list(vars(item).items()) if _is_in(name, package) else ():
            if not getattr(function, "_is_custom_experiment", False) or id(function) in seen:
                continue
            if not _is_in(function.__module__, package):
                continue  # borrowed from another package, which lists it
            seen.add(id(function))
            yield describe_function(function) | {"object": _address(function, f"{name}:{attribute}")}


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _package_of(module: str) -> str:
    """The outermost package with a file: a namespace package is shared by distributions that have nothing in common."""
    parts = module.split(".")
    outer = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((name for name in outer if getattr(sys.modules.get(name), "__file__", None)), module)


def _address(function: Any, alias: str) -> str:
    """Where it is defined; `alias` where it can't be had from there."""
    module, name = function.__module__, function.__name__
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is function else alias


def describe_function(function: Any) -> dict[str, Any]:
    options = getattr(function, "_ray_options", None)
    resources, notes = resources_of(options.model_dump() if options is not None else {})
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
