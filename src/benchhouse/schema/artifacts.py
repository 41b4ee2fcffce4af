"""Artifacts of a scenario: the image in which it runs, and the data of its workload."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.names import Name
from benchhouse.schema.shorthand import AlsoTakes


class DatasetFile(Model, strict=True):
    """A file with the data of the workload; plain text is its path."""

    path: str = Field(min_length=1, description="A file; relative to the scenario's folder.")
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of the file; another one is then refused.")
    licence: str = Field("", description="Licence of the data, kept with the results.")


def _from_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class Artifacts(Model, strict=True):
    """Image and data of a scenario, and the models and servers that it measures."""

    container: str | None = Field(None, description="Container image, as `runtime.image`.")
    dataset: Annotated[DatasetFile, BeforeValidator(_from_path), AlsoTakes({"type": "string"})] | None = Field(
        None, description="The data of the workload: prompts, vectors, contents; a path, or path, sha256, licence."
    )
    models: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Licences of models, by the name that each has here, kept with results.",
    )
    servers: dict[Name, str] = Field(
        default_factory=dict, description="Images, with version and digest, of servers that are there already, by name."
    )


class MeasuredModel(Model):
    """The model of a trial, by the name used in requests, and its license."""

    name: str
    licence: str = Field("", description="As `artifacts.models` of the scenario says; empty: nobody said.")


def measured_model(
    target: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Mapping[str, Any]
) -> MeasuredModel | None:
    """Return the `model` of the target or, if it has none, of the workload; None if neither names one."""
    name = target.get("model") or parameters.get("model")
    if not isinstance(name, str):
        return None
    return MeasuredModel(name=name, licence=artifacts.get("models", {}).get(name, ""))


class StagedDataset(Model):
    """The dataset of a trial: a copy in the cache, made before the first trial."""

    name: str = Field(description="Path that the scenario gives.")
    input: str = Field(description="Input of the experiment that takes it: `prompts.file`.")
    path: str = Field(description="The copy.")
    sha256: str
    bytes: int
    licence: str = ""
