"""What a scenario brings along: the image that it runs in, and the data that its workload is made of."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.names import Name
from benchhouse.schema.shorthand import AlsoTakes


class DatasetFile(Model, strict=True):
    """A file that becomes the data of the workload; a bare text is its path."""

    path: str = Field(min_length=1, description="A file; relative to the scenario's folder.")
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of the file; another one is then refused.")
    licence: str = Field("", description="Licence of the data, kept with the results.")


def _from_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class Artifacts(Model, strict=True):
    """Image and data of a scenario, and what it measures that nobody else could name."""

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
    """The model of a trial, by the name that it is asked for, and its licence."""

    name: str
    licence: str = Field("", description="As `artifacts.models` of the scenario says; empty: nobody said.")


def measured_model(
    target: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Mapping[str, Any]
) -> MeasuredModel | None:
    """What target or workload call `model`; None where neither does."""
    name = target.get("model") or parameters.get("model")
    if not isinstance(name, str):
        return None
    return MeasuredModel(name=name, licence=artifacts.get("models", {}).get(name, ""))


class StagedDataset(Model):
    """The data of a trial: a copy in the cache, made before the first trial."""

    name: str = Field(description="Path that the scenario gives.")
    input: str = Field(description="Input of the experiment that takes it: `prompts.file`.")
    path: str = Field(description="The copy.")
    sha256: str
    bytes: int
    licence: str = ""
