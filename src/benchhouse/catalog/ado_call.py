"""Calling an experiment of ado in this process: no Ray, no queue, no store; what it raises is raised."""

from typing import Any

from benchhouse.catalog.ado import Call, declare
from benchhouse.catalog.ado_describe import check, describe_experiment, describe_function, describe_metric
from benchhouse.catalog.ado_functions import PREFIX, Decorated, prepare_for_functions
from benchhouse.catalog.ado_without_ray import import_ado
from benchhouse.catalog.entries import load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment, ExperimentFailed
from benchhouse.schema.trial import ExperimentRef


def load_ado(ref: ExperimentRef) -> Experiment:
    """The function or actuator that `ref` names. It is loaded by itself: ado finds functions by name, whatever the
    version, and with two versions installed runs the wrong one."""
    preload_ado(ref.name, once=True)
    found = load_object(ref.object)
    if getattr(found, "_is_custom_experiment", False):
        return _function(found, ref)
    identifier = ref.name.partition(".")[2]
    for experiment in found.catalog().experiments if hasattr(found, "catalog") else ():
        told = describe_experiment(experiment, found.identifier)
        if experiment.identifier == identifier and (told["version"] or ref.version) == ref.version:
            return declare(told | {"version": ref.version}, _Actuated(found, experiment))
    raise BenchError(f"{ref.object} does not offer {ref.name} {ref.version}: was the package changed?")


def preload_ado(name: str, *, once: bool) -> None:
    """What of ado an experiment needs to be imported, with as little as possible where that is done `once`.

    Where many processes are forked afterwards, none of them should have to import the rest of it for itself.
    """
    if once and name.startswith(PREFIX):
        prepare_for_functions()
    else:
        import_ado()


def _function(found: Any, ref: ExperimentRef) -> Experiment:
    """Called as its package wrote it: the plan has checked the values by the same description as ado would."""
    call: Call = lambda values: found._original_func(**values)  # noqa: E731
    if isinstance(found, Decorated) and found.name == ref.name and found.version in ("", ref.version):
        outputs = [describe_metric(output) for output in found.outputs]
        return declare({"name": ref.name, "version": ref.version, "metrics": outputs, "inputs": None}, call)
    told = describe_function(found)
    check(told, ref.name, ref.version)
    return declare(told | {"version": ref.version}, call)


class _Actuated:
    """One experiment of a StandardActuator, called with the values of one point."""

    def __init__(self, actuator: Any, experiment: Any) -> None:
        self.actuator, self.experiment = actuator, experiment

    def __call__(self, values: dict[str, Any]) -> Any:
        from ado.modules.actuators.standard import StandardActuator

        made = self.actuator()
        if self.actuator._get_request_executor is StandardActuator._get_request_executor:
            # Called directly, its exceptions keep their type and traceback, and what it returns stays whole.
            return made._experiment_implementations()[self.experiment.identifier](**values)
        return self._execute(made, values)

    def _execute(self, made: Any, values: dict[str, Any]) -> dict[str, Any]:
        from ado.schema.point import SpacePoint

        entity = SpacePoint(entity=values).to_entity()
        request = made.execute([entity], self.experiment.reference, "benchhouse", 0)
        (result,) = request.measurements or (None,)
        if result is None or not hasattr(result, "measurements"):
            reason = getattr(result, "reason", "") or "the actuator gave no result"
            raise ExperimentFailed("invalid_measurement", str(reason), retryable=False)
        extra = dict(request.metadata or {})
        return extra | {item.property.targetProperty.identifier: item.value for item in result.measurements}
