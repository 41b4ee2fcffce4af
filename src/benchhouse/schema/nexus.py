"""The published files of a nexus: packages, models, spaces of points, and benchmarks that several experiments answer.

Keys are spelled as published (camelCase where ado's are). A nexus is a folder with `packages/` and `benchmarks/`.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.alias_generators import to_camel

from benchhouse.schema.model import Model
from benchhouse.schema.names import Name

Scalar = bool | int | float | str


def _text(value: Any) -> Any:
    """`2.0` of YAML is a number; a version is a text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Version = Annotated[str, BeforeValidator(_text)]


class _Camel(Model):
    """Of ado's family of files: keys in camelCase."""

    model_config = Model.model_config | {"alias_generator": to_camel}


# nexus.yaml -----------------------------------------------------------------------------------------------------------


class BenchmarkPackage(Model):
    requirement_specifier: str = Field(
        min_length=1, description="What to install: a name of PyPI, a git or other URL, or a path from the nexus' root."
    )
    experiments: list[str] = Field(default=[], description="Experiments of it that this package uses.")


class PackageEntry(Model):
    name: Name = Field(description="The package; its folder has this name.")
    benchmark_packages: list[BenchmarkPackage] = Field(default=[], description="Python packages with its experiments.")


class NexusFile(Model):
    """`packages/<package>/nexus.yaml`."""

    package: PackageEntry


# model.yaml -----------------------------------------------------------------------------------------------------------


class VllmPlugins(Model):
    general: str = Field(default="", description="vLLM plugin that the model needs.")
    io_processors: list[str] = Field(default=[], description="vLLM IO processors that it needs.")


class ModelVllm(Model):
    enabled: bool = Field(description="Whether vLLM serves it.")
    plugins: VllmPlugins = Field(default_factory=VllmPlugins, description="What vLLM needs for it.")


class ModelEntry(Model):
    id: str = Field(min_length=1, description="The target of every benchmark in this folder.")
    owner: str = Field(default="", description="Who answers for its benchmarks.")
    vllm: ModelVllm | None = Field(default=None, description="How vLLM serves it.")


class ModelFile(Model):
    """`packages/<package>/models/<model>/model.yaml`."""

    model: ModelEntry


# space.yaml (ado) -----------------------------------------------------------------------------------------------------

VariableType = Literal[
    "CONTINUOUS_VARIABLE_TYPE",
    "DISCRETE_VARIABLE_TYPE",
    "CATEGORICAL_VARIABLE_TYPE",
    "OPEN_CATEGORICAL_VARIABLE_TYPE",
    "BINARY_VARIABLE_TYPE",
    "UNKNOWN_VARIABLE_TYPE",
]


class PropertyDomain(_Camel):
    values: list[Any] | None = Field(default=None, description="The values, one by one.")
    domain_range: tuple[float, float] | None = Field(default=None, description="From, and up to but without.")
    interval: float | None = Field(default=None, gt=0, description="Step of a range.")
    variable_type: VariableType | None = Field(default=None, description="What kind of values these are.")
    probability_function: Any = Field(default=None, description="How ado samples; read and not used.")


class Property(_Camel):
    identifier: str = Field(min_length=1, description="The property's name.")
    property_domain: PropertyDomain | None = Field(default=None, description="Which values it takes.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")


class PropertyRef(_Camel):
    identifier: str = Field(min_length=1, description="The property's name.")


class PropertyValue(_Camel):
    property: PropertyRef = Field(description="Which property.")
    value: Any = Field(description="Its value.")


class SpaceExperiment(_Camel):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `custom_experiments` for functions.")
    experiment_identifier: str = Field(min_length=1, description="The experiment.")
    experiment_version: Version = Field(default="", description="The version that is asked for.")
    parameterization: list[PropertyValue] | None = Field(default=None, description="Optional inputs given a value.")


class Space(_Camel):
    """`space.yaml`: points, and the experiments that measure them."""

    entity_space: list[Property] = Field(default=[], description="The properties that span the space.")
    experiments: list[SpaceExperiment] = Field(min_length=1, description="What measures each point.")
    sample_store_identifier: str | None = Field(default=None, description="ado's store; not used here.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")


# benchmarks/<id>.yaml -------------------------------------------------------------------------------------------------


class LogicalBenchmark(_Camel):
    benchmark_identifier: Name = Field(description="Its name; the file has this name.")
    target: PropertyRef = Field(description="What is ranked.")
    properties: list[Property] = Field(default=[], description="What a result is asked for.")
    metrics: list[str] = Field(min_length=1, description="What is measured.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")


class PropertyMapping(_Camel):
    """One of ours is one of the experiment's; or a value of ours stands for a region of the experiment's inputs."""

    benchmark: PropertyRef | None = Field(default=None, description="Of the logical benchmark.")
    experiment: PropertyRef | None = Field(default=None, description="Of the experiment.")
    categorical_value: PropertyValue | None = Field(default=None, description="A value of the logical benchmark...")
    predicate: list[Property] | None = Field(default=None, description="...where the experiment's inputs lie in these.")


class MetricMapping(_Camel):
    benchmark: PropertyRef = Field(description="Metric of the logical benchmark.")
    experiment: PropertyRef = Field(description="Metric of the experiment.")


class BoundExperiment(_Camel):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `benchhouse` for ours.")
    experiment_identifier: str = Field(min_length=1, description="The experiment.")
    experiment_version: Version = Field(default="", description="The version that is asked for.")


class Binding(_Camel):
    benchmark_identifier: str = Field(description="Which logical benchmark.")
    experiment: BoundExperiment = Field(description="Which experiment answers it.")
    target_mapping: str = Field(description="The experiment's input that is the target.")
    static_filters: list[PropertyValue] = Field(default=[], description="Only points with these values count.")
    property_mapping: list[PropertyMapping] = Field(default=[], description="Properties as the experiment's inputs.")
    metric_mapping: list[MetricMapping] = Field(default=[], description="Metrics as the experiment's.")


class LogicalFile(_Camel):
    """`benchmarks/<id>.yaml` of a nexus."""

    logical_benchmark: LogicalBenchmark
    bindings: list[Binding] = Field(default=[], description="Which experiments answer it, and how.")


def is_logical(data: Any) -> bool:
    """Whether what a file of `benchmarks/` holds is a logical benchmark, and not one of our own."""
    return isinstance(data, dict) and ("logicalBenchmark" in data or "bindings" in data)
