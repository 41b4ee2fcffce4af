"""Infrastructure that `bench infra` describes: the request, the written files, and prices."""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from benchhouse.schema.model import Model

Provider = Literal["aws", "kind", "slurm"]
PROVIDERS: tuple[str, ...] = get_args(Provider)
Stage = Literal["written", "applying", "applied", "destroying", "destroyed"]

_RANGE = re.compile(r"(\d{1,4})(?:\.\.(\d{1,4}))?")
_NAME = r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$"  # the longest derived name, of a bucket, has 63 characters
_INSTANCE = r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$"


class NodeRange(Model):
    """A number of nodes: at least `min`, at most `max`."""

    min: int = Field(ge=0, le=1000, description="Nodes that are always there.")
    max: int = Field(ge=0, le=1000, description="Nodes that the autoscaler may have at a time.")

    @model_validator(mode="after")
    def _in_order(self) -> "NodeRange":
        if self.min > self.max:
            raise ValueError(f"{self.min} is more than {self.max}: write MIN..MAX")
        return self

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"


def _node_range(value: Any) -> Any:
    """Return the range for typed text: `2` or `1..4`."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return value
    match = _RANGE.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is no number of nodes: write 2, or MIN..MAX such as 1..4")
    return {"min": int(match[1]), "max": int(match[2] or match[1])}


Nodes = Annotated[NodeRange, BeforeValidator(_node_range)]


class InfraRequest(Model):
    """A request for infrastructure. Its values cannot contain syntax of a shell, of YAML, or of HCL."""

    provider: Provider
    name: str = Field(pattern=_NAME, description="At most 32 of a-z, 0-9 and -, a letter first.")
    region: str = Field("us-east-1", pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d$", description="Region of AWS.")
    nodes: Nodes = Field(NodeRange(min=1, max=4), description="Nodes without GPUs.")
    gpu_nodes: Nodes = Field(NodeRange(min=0, max=0), description="Nodes with GPUs.")
    instance_type: str = Field("m6i.2xlarge", pattern=_INSTANCE, description="Of the nodes without GPUs.")
    gpu_instance_type: str = Field("g6.xlarge", pattern=_INSTANCE, description="Of the nodes with GPUs.")

    @model_validator(mode="after")
    def _as_the_provider_can(self) -> "InfraRequest":
        if self.nodes.min < 1:
            raise ValueError("nodes: at least 1 has to be there")
        if self.provider != "aws":
            if self.gpu_nodes.max:
                raise ValueError(f"gpu_nodes: {self.provider} has none here, aws has")
            if self.nodes.min != self.nodes.max:
                raise ValueError(f"nodes: {self.provider} adds no nodes by itself: give one number")
            if self.nodes.max > 16:
                raise ValueError(f"nodes: {self.provider} puts them all on one machine, so at most 16")
        return self


class PriceTable(Model):
    """A table of prices, by the name of the priced item."""

    as_of: str = Field(min_length=1, description="When they were valid.")
    region: str = Field(min_length=1, description="Where they are valid.")
    currency: str = Field("USD", pattern=r"^[A-Z]{3}$")
    hourly: dict[str, Annotated[float, Field(ge=0)]] = Field(description="Of an instance type, or another thing.")
    monthly_gb: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict, description="Of storage.")


class InfraManifest(Model):
    """The files that `bench infra` wrote into a folder, so that it never overwrites other files."""

    schema_version: Literal[1] = 1
    request: InfraRequest
    created: str
    suffix: str = Field(pattern=r"^[0-9a-f]{8}$", description="Makes the name of a bucket unique.")
    stage: Stage = Field("written", description="How far it got: what runs is asked of the provider, not of this.")
    files: dict[str, tuple[str, ...]] = Field(
        description="sha256 that a file had, the last one that it should have: before that, it was being replaced."
    )
