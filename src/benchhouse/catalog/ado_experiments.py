"""ado's experiments in this process: their descriptions as plain data, and how they are called.

Using this imports ado, but without Ray, queue, or store; exceptions of an experiment are passed on.
"""

import inspect
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

from benchhouse.catalog.ado import declare, metric_name, resources_of
from benchhouse.catalog.entries import EntryPointLine, load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment, ExperimentFailed, Metric
from benchhouse.schema.trial import ExperimentRef

CUSTOM = "custom_experiments"


def describe(entry: EntryPointLine) -> list[dict[str, Any]]:
    """Return the experiments behind one entry point of `ado.custom_experiments` or `ado.actuators`."""
    loaded = load_object(entry.object)
    return list(_of_actuator(loaded, entry) if entry.group == "ado.actuators" else _of_module(loaded))


def _of_module(loaded: Any) -> Iterator[dict[str, Any]]:
    """Yield all decorated functions of the entry's package, including those that its earlier entry points imported."""
    module = loaded if isinstance(loaded, ModuleType) else inspect.getmodule(loaded)
    package = _package_of(module.__name__) if module else ""
    seen: set[int] = set()
    for name, item in sorted(sys.modules.items()):
        for attribute, function in list(vars(item).items()) if _is_in(name, package) else ():
            if not getattr(function, "_is_custom_experiment", False) or id(function) in seen:
                continue
            if not _is_in(function.__module__, package):
                continue  # imported from another package, which lists it
            seen.add(id(function))
            yield describe_function(function) | {"object": _address(function, f"{name}:{attribute}")}


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _package_of(module: str) -> str:
    """Return the outermost package with a file, because unrelated distributions may share a namespace package."""
    parts = module.split(".")
    outer = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((name for name in outer if getattr(sys.modules.get(name), "__file__", None)), module)


def _address(function: Any, alias: str) -> str:
    """Return where a function is defined, or `alias` if it is not accessible there."""
    module, name = function.__module__, function.__name__
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is function else alias


def describe_function(function: Any) -> dict[str, Any]:
    options = getattr(function, "_ray_options", None)
    resources, notes = resources_of(options.model_dump() if options is not None else {})
    description = (inspect.getdoc(function) or "").split("\n")[0]
    own = {"description": description, "resources": resources, "notes": notes}
    return describe_experiment(function._experiment, CUSTOM) | own


def _of_actuator(actuator: Any, entry: EntryPointLine) -> Iterator[dict[str, Any]]:
    from ado.modules.actuators.standard import StandardActuator

    for experiment in actuator.catalog().experiments:
        described = describe_experiment(experiment, actuator.identifier)
        if not issubclass(actuator, StandardActuator):
            reason = "its actuator runs only inside ado's own engine (it is no StandardActuator)"
            described["broken"] = described["broken"] or f"{reason}; use it from ado itself: ado create operation"
        yield described | {"object": entry.object}


def describe_experiment(experiment: Any, actuator: str) -> dict[str, Any]:
    """Convert an `ado.schema.experiment.Experiment` to our terms."""
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
    described: dict[str, Any] = {"identifier": item.identifier, "required": required, "default": default}
    if not hasattr(item, "propertyDomain"):
        return described | {"domain": {}, "observed": True}
    domain = item.propertyDomain.model_dump(mode="json", exclude_none=True)
    if domain.get("variableType") == "BINARY_VARIABLE_TYPE" and not required:
        described["default"] = bool(default)  # ado stores it as a number
    description = (getattr(item, "metadata", None) or {}).get("description", "")
    return described | {"domain": domain, "description": str(description)}


def load_ado(ref: ExperimentRef) -> Experiment:
    """Load an experiment without ado's registry, which confuses two versions of a function with the same name."""
    loaded = load_object(ref.object)
    if getattr(loaded, "_is_custom_experiment", False):
        return _function(loaded, ref)
    identifier = ref.name.partition(".")[2]
    for experiment in loaded.catalog().experiments if hasattr(loaded, "catalog") else ():
        described = describe_experiment(experiment, loaded.identifier)
        if experiment.identifier == identifier and (described["version"] or ref.version) == ref.version:
            return declare(described | {"version": ref.version}, partial(_call_actuator, loaded, experiment))
    raise BenchError(f"{ref.object} does not offer {ref.name} {ref.version}: was the package changed?")


def _function(decorated: Any, ref: ExperimentRef) -> Experiment:
    """Return an experiment that calls the plain function, because the plan has checked the values as ado would."""
    described = describe_function(decorated)
    name, version = described["name"], described["version"]
    if name != ref.name or (version and version != ref.version):  # another version is refused, never run
        raise BenchError(f"found {name} {version}, not {ref.name} {ref.version}: was the package changed?")
    function = inspect.unwrap(decorated)
    return declare(described | {"version": ref.version}, lambda values: function(**values))


def _call_actuator(actuator: Any, experiment: Any, values: dict[str, Any]) -> Any:
    """Call one experiment of a StandardActuator with the values of one point."""
    from ado.modules.actuators.standard import StandardActuator
    from ado.schema.point import SpacePoint

    made = actuator()
    if actuator._get_request_executor is StandardActuator._get_request_executor:
        # After a direct call, exceptions keep their type and traceback, and the returned value is complete.
        return made._experiment_implementations()[experiment.identifier](**values)
    request = made.execute([SpacePoint(entity=values).to_entity()], experiment.reference, "benchhouse", 0)
    (result,) = request.measurements or (None,)
    if result is None or not hasattr(result, "measurements"):
        reason = getattr(result, "reason", "") or "the actuator gave no result"
        raise ExperimentFailed("invalid_measurement", str(reason), retryable=False)
    extra = dict(request.metadata or {})
    return extra | {item.property.targetProperty.identifier: item.value for item in result.measurements}
