"""ado's files: `space.yaml` (points, and the experiments that measure them) and operations over a space.

Keys are spelled as ado publishes them, in camelCase.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from benchhouse.schema.model import Camel, number_as_text

OURS = "benchhouse"
"""Name of the ado actuator that offers Benchhouse experiments."""
TRIAL = "trial"
"""Name of that actuator's experiment for one trial that Benchhouse planned."""


def listed_name(actuator: str, experiment: str) -> str:
    """Return the name of an experiment in lists: its own if it is a Benchhouse experiment, otherwise with the actuator
    first.
    """
    return experiment if actuator == OURS else f"{actuator}.{experiment}"


Version = Annotated[str, BeforeValidator(number_as_text)]
VariableType = Literal[
    "CONTINUOUS_VARIABLE_TYPE",
    "DISCRETE_VARIABLE_TYPE",
    "CATEGORICAL_VARIABLE_TYPE",
    "OPEN_CATEGORICAL_VARIABLE_TYPE",
    "BINARY_VARIABLE_TYPE",
    "UNKNOWN_VARIABLE_TYPE",
]


class PropertyDomain(Camel):
    values: list[Any] | None = Field(None, description="The values, one by one.")
    domain_range: tuple[float, float] | None = Field(None, description="From, and up to but without.")
    interval: float | None = Field(None, gt=0, description="Step of a range.")
    variable_type: VariableType | None = Field(None, description="What kind of values these are.")
    probability_function: Any = Field(None, description="How ado samples; read and not used.")


class Property(Camel):
    identifier: str = Field(min_length=1, description="The property's name.")
    property_domain: PropertyDomain | None = Field(None, description="Which values it takes.")
    property_type: str | None = Field(None, description="`CONSTITUTIVE_PROPERTY_TYPE`; read and not used.")
    metadata: dict[str, Any] | None = Field(None, description="Said about it.")


class PropertyRef(Camel):
    identifier: str = Field(min_length=1, description="The property's name.")
    property_type: str | None = Field(None, description="`CONSTITUTIVE_PROPERTY_TYPE`; read and not used.")


class PropertyValue(Camel):
    property: PropertyRef = Field(description="Which property.")
    value: Any = Field(description="Its value.")
    value_type: str | None = Field(None, description="What ado takes it for; read and not used.")


class ExperimentReference(Camel):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `custom_experiments` for functions.")
    experiment_identifier: str = Field(min_length=1, description="The experiment.")
    experiment_version: Version = Field("", description="The version that is asked for.")

    @property
    def listed_name(self) -> str:
        """The name of the experiment in lists and results."""
        return listed_name(self.actuator_identifier, self.experiment_identifier)


class SpaceExperiment(ExperimentReference):
    parameterization: list[PropertyValue] | None = Field(None, description="Optional inputs given a value.")


class AdoSpace(Camel):
    """`space.yaml` of ado: points, and the experiments that measure them."""

    entity_space: list[Property] = Field([], description="The properties that span the space.")
    experiments: list[SpaceExperiment] = Field(min_length=1, description="What measures each point.")
    sample_store_identifier: str | None = Field(None, description="ado's store; not used here.")
    metadata: dict[str, Any] | None = Field(None, description="Said about it.")


class OperationModule(Camel):
    operation_type: Literal["explore", "search"] = Field("explore", description="What kind of operation it is.")
    operator_name: str = Field("random_walk", description="Which operator chooses the points.")


class SamplerConfig(Camel):
    sampler_type: Literal["generator", "selector"] = Field("generator", description="Where points come from.")
    mode: Literal["sequential", "random", "sequentialgrouped", "randomgrouped"] = Field(
        "random", description="Order of points."
    )
    grouping: list[str] = Field([], description="Properties by which points are grouped; not used here.")


class WalkParameters(Camel):
    number_entities: int | Literal["all"] = Field(1, description="How many points of the space.")
    batch_size: int = Field(1, ge=1, description="Points at a time.")
    single_measurement: bool = Field(True, description="Whether ado reuses what it measured; not used here.")
    max_retries: int = Field(0, ge=0, description="How often a failed point is tried again.")
    sampler_config: SamplerConfig = Field(default_factory=SamplerConfig, description="How points are chosen.")


class OperationBody(Camel):
    module: OperationModule = Field(default_factory=OperationModule, description="Which operator.")
    parameters: WalkParameters = Field(default_factory=WalkParameters, description="What the operator is told.")


class AdoOperation(Camel):
    """`operation.yaml` of ado, which names the file of its space."""

    operation: OperationBody
    spaces: list[str] = Field(min_length=1, max_length=1, description="The file of its space, beside this one.")
    actuator_configuration_identifiers: list[str] = Field([], description="Of ado's store; not used here.")
    metadata: dict[str, Any] | None = Field(None, description="Said about it.")
