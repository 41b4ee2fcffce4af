"""Our experiments inside ado: the actuator `benchhouse`, found through the entry point `ado.actuators`.

Every point is a trial of our own worker, in its own process: limits, outcomes, and evidence are the same as elsewhere.
This is the only module that imports ado at its top level, and no other module of ours imports it.
"""

import functools
from collections.abc import Callable
from typing import Any

from ado.modules.actuators.catalog import ExperimentCatalog
from ado.modules.actuators.standard import StandardActuator
from ado.schema.domain import PropertyDomain, VariableTypeEnum
from ado.schema.experiment import Experiment as Theirs
from ado.schema.observed_property import ObservedPropertyValue
from ado.schema.property import AbstractPropertyDescriptor, ConstitutiveProperty, ConstitutivePropertyDescriptor
from ado.schema.property_value import ConstitutivePropertyValue
from ado.schema.request import MeasurementRequest
from ado.schema.result import InvalidMeasurementResult, ValidMeasurementResult
from ado.utilities.support import compute_measurement_status

from benchhouse.bridges import domains, points
from benchhouse.catalog.listing import Listed, list_experiments
from benchhouse.schema.ado import OURS, TRIAL
from benchhouse.sites import places

_DESCRIBED = "benchhouse"  # key in the metadata of an experiment that names ours


class Benchhouse(StandardActuator):  # type: ignore[misc]
    """The experiments of benchhouse, with each point as a supervised trial."""

    identifier = OURS

    @classmethod
    def catalog(cls, actuator_configuration: Any = None) -> ExperimentCatalog:
        """Return the newest experiment per name and major version, because ado does not distinguish further."""
        offered = [_trial_experiment()]
        for item in list_experiments(places.cache()):
            if item.broken or item.bridge:
                continue
            with domains.skipping(item.name):
                offered.append(_their_experiment(item))
        return ExperimentCatalog({item.major_version_identifier: item for item in offered}, "benchhouse")

    def _get_request_executor(
        self, request: MeasurementRequest, use_ray: bool = False
    ) -> Callable[[], MeasurementRequest]:
        experiment = type(self).catalog().experimentForReference(request.experimentReference, resolve=True)
        return functools.partial(measure, request, experiment)


def measure(request: MeasurementRequest, experiment: Any) -> MeasurementRequest:
    """Run every point of a request. An exception of a point is the failure of only that point."""
    results = []
    for entity in request.entities:
        values = experiment.propertyValuesFromEntity(entity)
        described = experiment.metadata.get(_DESCRIBED)
        ended = points.run_job(values["job"]) if described is None else points.run_point(described, values)
        results.append(_result(ended, entity.identifier, request, experiment))
    request.measurements = results
    request.status = compute_measurement_status(results)
    return request


def _result(ended: points.PointResult, entity: str, request: MeasurementRequest, experiment: Any) -> Any:
    observed = {item.targetProperty.identifier: item for item in experiment.observedProperties}
    values = [
        ObservedPropertyValue(property=observed[name], value=value)
        for name, value in ended.values.items()
        if name in observed
    ]
    if ended.failure or not values:
        reason = ended.failure or "it measured nothing that it declares"
        return InvalidMeasurementResult(
            entityIdentifier=entity,
            experimentReference=request.experimentReference,
            reason=reason,
            metadata=ended.facts,
        )
    return ValidMeasurementResult(entityIdentifier=entity, measurements=values, metadata=ended.facts)


def _their_experiment(item: Listed) -> Theirs:
    code = item.code()
    inputs = list(domains.inputs_of(code))
    defaults = {entry.name: entry.default for entry in inputs if not entry.required}
    return Theirs(
        actuatorIdentifier=OURS,
        identifier=item.name,
        requiredProperties=tuple(_property(entry) for entry in inputs if entry.required),
        optionalProperties=tuple(_property(entry) for entry in inputs if not entry.required),
        defaultParameterization=tuple(
            ConstitutivePropertyValue(property=ConstitutivePropertyDescriptor(identifier=name), value=value)
            for name, value in defaults.items()
        ),
        targetProperties=[AbstractPropertyDescriptor(identifier=metric.name) for metric in code.metrics]
        or [AbstractPropertyDescriptor(identifier="duration_s")],
        deprecated=item.deprecated is not None,
        version=domains.semantic(item.version),
        metadata={
            "description": item.description,
            "version": item.version,
            "distribution": f"{item.distribution} {item.distribution_version}",
            _DESCRIBED: item.ref().model_dump(),
        },
    )


def _property(entry: domains.DomainInput) -> ConstitutiveProperty:
    domain = PropertyDomain.model_validate(entry.domain)
    return ConstitutiveProperty(
        identifier=entry.name, propertyDomain=domain, metadata={"description": entry.description}
    )


def _trial_experiment() -> Theirs:
    """Return the experiment of `bench run --engine ado`: a trial that was planned here, identified by its file."""
    domain = PropertyDomain(variableType=VariableTypeEnum.OPEN_CATEGORICAL_VARIABLE_TYPE, values=["job.json"])
    return Theirs(
        actuatorIdentifier=OURS,
        identifier=TRIAL,
        requiredProperties=(ConstitutiveProperty(identifier="job", propertyDomain=domain),),
        targetProperties=[AbstractPropertyDescriptor(identifier=name) for name in ("succeeded", "duration_s")],
        version="1.0.0",
        metadata={"description": "One planned trial of `bench run --engine ado`."},
    )
