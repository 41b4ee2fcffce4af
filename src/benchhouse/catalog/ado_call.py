"""Calling an experiment of ado in this process: no Ray, no queue, no store; what it raises is raised."""

from typing import Any

from benchhouse.catalog.ado import declare
from benchhouse.catalog.ado_describe import check, describe_experiment, describe_function, keep_ray_options
from benchhouse.catalog.entries import load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment, ExperimentFailed
from benchhouse.schema.trial import ExperimentRef


def load_ado(ref: ExperimentRef) -> Experiment:
    """The function or actuator that `ref` names. It is loaded by itself: ado finds functions by name, whatever the
    version, and with two versions installed runs the wrong one."""
    keep_ray_options()
    found = load_object(ref.object)
    if getattr(found, "_is_custom_experiment", False):
        told = describe_function(found)
        check(told, ref.name, ref.version)
        return declare(told | {"version": ref.version}, lambda values: found(**values))
    identifier = ref.name.partition(".")[2]
    for experiment in found.catalog().experiments if hasattr(found, "catalog") else ():
        told = describe_experiment(experiment, found.identifier)
        if experiment.identifier == identifier and (told["version"] or ref.version) == ref.version:
            return declare(told | {"version": ref.version}, _Actuated(found, experiment))
    raise BenchError(f"{ref.object} does not offer {ref.name} {ref.version}: was the package changed?")


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
