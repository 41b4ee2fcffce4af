"""A Ray cluster that KubeRay makes for one run: the size and number of its pods."""

from typing import Annotated

from pydantic import Field, model_validator

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Memory, Seconds

_NAME = r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$"


class RayHead(Model, strict=True):
    """The head's pod. It runs the orchestrator of the run, but no trials."""

    cpus: int = Field(2, ge=1, description="Cores; requested, and the limit.")
    memory: Memory = Field(4 * 2**30, description="Memory; requested, and the limit.")


class RayWorkers(Model, strict=True):
    """A group of workers of one size."""

    name: Annotated[str, Field(pattern=_NAME)] = Field("workers", description="Of the group: a-z, 0-9 and -.")
    cpus: int = Field(ge=1, description="Cores of one worker; requested, and the limit.")
    memory: Memory = Field(description="Memory of one worker; requested, and the limit.")
    gpus: int = Field(0, ge=0, description="GPUs of one worker, as kubernetes.gpu_resource.")
    min: int | None = Field(None, ge=0, description="Fewest workers; by default `max`: the group does not scale.")
    max: int = Field(1, ge=1, description="Most workers.")

    @property
    def least(self) -> int:
        return self.max if self.min is None else self.min

    @model_validator(mode="after")
    def _in_order(self) -> "RayWorkers":
        if self.least > self.max:
            raise ValueError(f"min: {self.min} is more than max: {self.max}")
        return self


class KubeRay(Model, strict=True):
    """A RayJob: a cluster for one run, which ends with it. Image, namespace, volume, queue: see `kubernetes:`."""

    version: str | None = Field(None, pattern=r"^\d+\.\d+\.\d+$", description="Version of Ray in the image: 2.60.0.")
    head: RayHead = Field(default_factory=RayHead)
    workers: tuple[RayWorkers, ...] = Field(strict=False, min_length=1, description="Groups of workers.")
    idle: Seconds = Field(60.0, gt=0, description="How long a worker without work stays, where a group scales.")

    @property
    def scales(self) -> bool:
        return any(group.least < group.max for group in self.workers)

    @model_validator(mode="after")
    def _names(self) -> "KubeRay":
        names = [group.name for group in self.workers]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two groups of workers are called {twice[0]!r}: give each a name")
        return self


class RayCluster(Model, strict=True):
    """How the cluster of a run is made."""

    kuberay: KubeRay = Field(description="The KubeRay operator, on Kubernetes.")
