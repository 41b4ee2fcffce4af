"""The published files of a nexus: packages, models, spaces of points, and benchmarks that several experiments answer.

Keys are spelled as published (camelCase where ado's are). A nexus is a folder with `packages/` and `benchmarks/`.
"""

from typing import Any

from pydantic import Field

from benchhouse.schema.model import Model
from benchhouse.schema.names import Name
from benchhouse.schema.space import Camel, PropertyRef, PropertyValue, Version
from benchhouse.schema.space import Property as Property
from benchhouse.schema.space import PropertyDomain as PropertyDomain
from benchhouse.schema.space import Space as Space

Scalar = bool | int | float | str


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


# benchmarks/<id>.yaml -------------------------------------------------------------------------------------------------


class LogicalBenchmark(Camel):
    benchmark_identifier: Name = Field(description="Its name; the file has this name.")
    target: PropertyRef = Field(description="What is ranked.")
    properties: list[Property] = Field(default=[], description="What a result is asked for.")
    metrics: list[str] = Field(min_length=1, description="What is measured.")
    metadata: dict[str, Any] | None = Field(default=None, description="Said about it.")


class PropertyMapping(Camel):
    """One of ours is one of the experiment's; or a value of ours stands for a region of the experiment's inputs."""

    benchmark: PropertyRef | None = Field(default=None, description="Of the logical benchmark.")
    experiment: PropertyRef | None = Field(default=None, description="Of the experiment.")
    categorical_value: PropertyValue | None = Field(default=None, description="A value of the logical benchmark...")
    predicate: list[Property] | None = Field(default=None, description="...where the experiment's inputs lie in these.")


class MetricMapping(Camel):
    benchmark: PropertyRef = Field(description="Metric of the logical benchmark.")
    experiment: PropertyRef = Field(description="Metric of the experiment.")


class BoundExperiment(Camel):
    actuator_identifier: str = Field(min_length=1, description="ado's actuator; `benchhouse` for ours.")
    experiment_identifier: str = Field(min_length=1, description="The experiment.")
    experiment_version: Version = Field(default="", description="The version that is asked for.")


class Binding(Camel):
    benchmark_identifier: str = Field(description="Which logical benchmark.")
    experiment: BoundExperiment = Field(description="Which experiment answers it.")
    target_mapping: str = Field(description="The experiment's input that is the target.")
    static_filters: list[PropertyValue] = Field(default=[], description="Only points with these values count.")
    property_mapping: list[PropertyMapping] = Field(default=[], description="Properties as the experiment's inputs.")
    metric_mapping: list[MetricMapping] = Field(default=[], description="Metrics as the experiment's.")


class LogicalFile(Camel):
    """`benchmarks/<id>.yaml` of a nexus."""

    logical_benchmark: LogicalBenchmark
    bindings: list[Binding] = Field(default=[], description="Which experiments answer it, and how.")


def is_logical(data: Any) -> bool:
    """Whether what a file of `benchmarks/` holds is a logical benchmark, and not one of our own."""
    return isinstance(data, dict) and ("logicalBenchmark" in data or "bindings" in data)
