"""The published files of a nexus: packages, models, spaces of points, and logical benchmarks.

Keys are spelled as published (camelCase in ado's formats). A nexus is a folder with `packages/` and `benchmarks/`.
"""

from typing import Any

from pydantic import Field

from benchhouse.schema.ado import ExperimentReference, Property, PropertyRef, PropertyValue
from benchhouse.schema.model import Camel, Model
from benchhouse.schema.names import Name

Scalar = bool | int | float | str


# nexus.yaml -----------------------------------------------------------------------------------------------------------


class BenchmarkPackage(Model):
    requirement_specifier: str = Field(min_length=1, description="PyPI name, URL, or path from the root of the nexus.")
    experiments: list[str] = Field([], description="Experiments of it that this package uses.")


class PackageEntry(Model):
    name: Name = Field(description="The package; its folder has this name.")
    benchmark_packages: list[BenchmarkPackage] = Field([], description="Python packages with its experiments.")


class NexusFile(Model):
    """`packages/<package>/nexus.yaml`: a package and the Python packages with its experiments."""

    package: PackageEntry


# model.yaml -----------------------------------------------------------------------------------------------------------


class VllmPlugins(Model):
    general: str = Field("", description="vLLM plugin that the model needs.")
    io_processors: list[str] = Field([], description="vLLM IO processors that it needs.")


class ModelVllm(Model):
    enabled: bool = Field(description="Whether vLLM serves it.")
    plugins: VllmPlugins = Field(default_factory=VllmPlugins, description="What vLLM needs for it.")


class ModelEntry(Model):
    id: str = Field(min_length=1, description="The target of every benchmark in this folder.")
    owner: str = Field("", description="Who answers for its benchmarks.")
    vllm: ModelVllm | None = Field(None, description="How vLLM serves it.")


class ModelFile(Model):
    """`packages/<package>/models/<model>/model.yaml`: the model that the benchmarks in this folder measure."""

    model: ModelEntry


# benchmarks/<id>.yaml -------------------------------------------------------------------------------------------------


class LogicalBenchmark(Camel):
    benchmark_identifier: Name = Field(description="Its name; the file has this name.")
    target: PropertyRef = Field(description="What is ranked.")
    properties: list[Property] = Field([], description="What a result is asked for.")
    metrics: list[str] = Field(min_length=1, description="What is measured.")
    metadata: dict[str, Any] | None = Field(None, description="Said about it.")


class PropertyMapping(Camel):
    """A property and its input of the experiment, or a value of a property and its region of the inputs."""

    benchmark: PropertyRef | None = Field(None, description="Of the logical benchmark.")
    experiment: PropertyRef | None = Field(None, description="Of the experiment.")
    categorical_value: PropertyValue | None = Field(None, description="A value of the logical benchmark...")
    predicate: list[Property] | None = Field(None, description="...where the experiment's inputs lie in these.")


class MetricMapping(Camel):
    benchmark: PropertyRef = Field(description="Metric of the logical benchmark.")
    experiment: PropertyRef = Field(description="Metric of the experiment.")


class BoundExperiment(ExperimentReference):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `benchhouse` for ours.")


class Binding(Camel):
    benchmark_identifier: str = Field(description="Which logical benchmark.")
    experiment: BoundExperiment = Field(description="Which experiment answers it.")
    target_mapping: str = Field(description="The experiment's input that is the target.")
    static_filters: list[PropertyValue] = Field([], description="Only points with these values count.")
    property_mapping: list[PropertyMapping] = Field([], description="Properties as the experiment's inputs.")
    metric_mapping: list[MetricMapping] = Field([], description="Metrics as the experiment's.")


class LogicalFile(Camel):
    """`benchmarks/<id>.yaml` of a nexus: a logical benchmark and its bindings."""

    logical_benchmark: LogicalBenchmark
    bindings: list[Binding] = Field([], description="Which experiments answer it, and how.")


def is_logical(data: Any) -> bool:
    """Return whether the data of a file in `benchmarks/` is a logical benchmark, not a registered one."""
    return isinstance(data, dict) and ("logicalBenchmark" in data or "bindings" in data)
