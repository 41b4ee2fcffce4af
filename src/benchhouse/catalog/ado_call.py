"""Calling an experiment of ado in this process: no Ray, no queue, no store; what it raises is raised."""

import inspect
from typing import Any

from benchhouse.catalog.ado import declare
from benchhouse.catalog.ado_describe import check, describe_experiment, describe_function
from benchhouse.catalog.entries import load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment, ExperimentFailed
from benchhouse.schema.trial import ExperimentRef


def load_ado(ref: ExperimentRef) -> Experiment:
    """The function or actuator that `ref` names. It is loaded by itself: ado finds functions by name, whatever the
    version, and with two versions installed runs the wrong one."""
    loaded = load_object(ref.object)
    if getattr(loaded, "_is_custom_experiment", False):
        return _function(loaded, ref)
    identifier = ref.name.partition(".")[2]
    for experiment in loaded.catalog().experiments if hasattr(loaded, "catalog") else ():
        described = describe_experiment(experiment, loaded.identifier)
        if experiment.identifier == identifier and (described["version"] or ref.version) == ref.version:
            return declare(described | {"version": ref.version}, _Actuated(loaded, experiment))
    raise BenchError(f"{ref.object} does not offer {ref.name} {ref.version}: was the package changed?")


def _function(decorated: Any, ref: ExperimentRef) -> Experiment:
    """Called as its package wrote it: the plan has checked the values by the same description as ado would."""
    described = describe_function(decorated)
    check(described, ref.name, ref.version)
    function = inspect.unwrap(decorated)
    return declare(described | {"version": ref.version}, lambda values: function(**values))


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
