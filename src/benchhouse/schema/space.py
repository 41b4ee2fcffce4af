"""`space.yaml` of ado: points, and the experiments that measure them. Keys are spelled as published, in camelCase."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.alias_generators import to_camel

from benchhouse.schema.model import Model


def _text(value: Any) -> Any:
    """`2.0` of YAML is a number; a version is a text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Version = Annotated[str, BeforeValidator(_text)]


class Camel(Model):
    """Of ado's family of files: keys in camelCase."""

    model_config = Model.model_config | {"alias_generator": to_camel}


VariableType = Literal[
    "CONTINUOUS_VARIABLE_TYPE",
    "DISCRETE_VARIABLE_TYPE",
    "CATEGORICAL_VARIABLE_TYPE",
    "OPEN_CATEGORICAL_VARIABLE_TYPE",
    "BINARY_VARIABLE_TYPE",
    "UNKNOWN_VARIABLE_TYPE",
]


class PropertyDomain(Camel):
    values: list[Any] | None = Field(default=None, description="The values, one by one.")
    domain_range: tuple[float, float] | None = Field(default=None, description="From, and up to but without.")
    interval: float | None = Field(default=None, gt=0, description="Step of a range.")
    variable_type: VariableType | None = Field(default=None, description="What kind of values these are.")
    probability_function: Any = Field(default=None, description="How ado samples; read and not used.")


class Property(Camel):
    identifier: str = Field(min_length=1, description="The property's name.")
    property_domain: PropertyDomain | None = Field(default=None, description="Which values it takes.")
    property_type: str | None = Field(default=None, description="`CONSTITUTIVE_PROPERTY_TYPE`; read and not used.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")


class PropertyRef(Camel):
    identifier: str = Field(min_length=1, description="The property's name.")
    property_type: str | None = Field(default=None, description="`CONSTITUTIVE_PROPERTY_TYPE`; read and not used.")


class PropertyValue(Camel):
    property: PropertyRef = Field(description="Which property.")
    value: Any = Field(description="Its value.")
    value_type: str | None = Field(default=None, description="What ado takes it for; read and not used.")


class SpaceExperiment(Camel):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `custom_experiments` for functions.")
    experiment_identifier: str = Field(min_length=1, description="The experiment.")
    experiment_version: Version = Field(default="", description="The version that is asked for.")
    parameterization: list[PropertyValue] | None = Field(default=None, description="Optional inputs given a value.")


class Space(Camel):
    """`space.yaml`: points, and the experiments that measure them."""

    entity_space: list[Property] = Field(default=[], description="The properties that span the space.")
    experiments: list[SpaceExperiment] = Field(min_length=1, description="What measures each point.")
    sample_store_identifier: str | None = Field(default=None, description="ado's store; not used here.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")
