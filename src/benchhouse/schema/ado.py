"""ado's operation file, as far as it says which points of a space are measured, in which order."""

from typing import Any, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from benchhouse.schema.model import Model

OURS = "benchhouse"
"""How ado calls the actuator that offers our experiments."""
TRIAL = "trial"
"""Its experiment that runs one trial which was planned here."""


class _Camel(Model):
    model_config = Model.model_config | {"alias_generator": to_camel}


class OperationModule(_Camel):
    operation_type: Literal["explore", "search"] = Field(default="explore", description="What kind of operation it is.")
    operator_name: str = Field(default="random_walk", description="Which operator chooses the points.")


class SamplerConfig(_Camel):
    sampler_type: Literal["generator", "selector"] = Field(default="generator", description="Where points come from.")
    mode: Literal["sequential", "random", "sequentialgrouped", "randomgrouped"] = Field(
        default="random", description="In which order points are taken."
    )
    grouping: list[str] = Field(default=[], description="Properties by which points are grouped; not used here.")


class WalkParameters(_Camel):
    number_entities: int | Literal["all"] = Field(default=1, description="How many points of the space.")
    batch_size: int = Field(default=1, ge=1, description="Points at a time.")
    single_measurement: bool = Field(default=True, description="Whether ado reuses what it measured; not used here.")
    max_retries: int = Field(default=0, ge=0, description="How often a failed point is tried again.")
    sampler_config: SamplerConfig = Field(default_factory=SamplerConfig, description="How points are chosen.")


class OperationBody(_Camel):
    module: OperationModule = Field(default_factory=OperationModule, description="Which operator.")
    parameters: WalkParameters = Field(default_factory=WalkParameters, description="What the operator is told.")


class Operation(_Camel):
    """`operation.yaml` of ado; its space is named by its file."""

    operation: OperationBody
    spaces: list[str] = Field(min_length=1, max_length=1, description="The file of its space, beside this one.")
    actuator_configuration_identifiers: list[str] = Field(default=[], description="Of ado's store; not used here.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")
