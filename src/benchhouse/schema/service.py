"""Services of a scenario, and the files of one that outlives a trial: `service.json` and `state.json`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from benchhouse.schema.layout import Folder, Inside
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.server_pods import KubernetesServer

Phase = Literal["starting", "ready", "unhealthy", "stopping", "stopped", "failed"]
OVER: tuple[Phase, ...] = ("stopped", "failed")
SECRET = "BENCHHOUSE_TRIAL_SECRET"  # noqa: S105 - its name
"""Variable in an experiment's environment with the value of {secret} in the recipes of its servers."""
_MENTION = re.compile(r"service:([A-Za-z0-9][A-Za-z0-9._-]*?)(?:#(\d+))?")
_BETWEEN = re.compile(r"\s*,\s*(?=[a-z]+://)")  # the path of an address may contain a comma too


class ServiceUse(Model, strict=True):
    """A server that a scenario needs. Targets and workloads name its endpoint as `service:NAME`."""

    recipe: str | Recipe | None = Field(None, description="Name of a recipe, a file of one, or one written here.")
    endpoint: str | None = Field(None, description="Address of a running server; bench neither starts nor stops it.")
    kubernetes: KubernetesServer | None = Field(
        None,
        description="A server that is already there on Kubernetes: service/NAME, inferenceservice/NAME (KServe) or "
        "inferencepool/NAME (llm-d), then .NAMESPACE, :PORT and /PATH where needed. Its address is looked up, unless "
        "`endpoint` says it, and the pods behind it are evidence.",
    )
    server: str | Annotated[list[str], Field(min_length=1)] | None = Field(
        None,
        description="Id of a running server of `bench servers start`, or the beginning of it; it is left running. A "
        "list: several of one recipe, as replicas.",
    )
    mode: Literal["embedded", "attached"] = Field(
        "embedded", description="embedded: started in each trial; attached: once a run."
    )
    parameters: dict[str, str | int | float] = Field(default_factory=dict, description="Of the recipe.")
    replicas: int | None = Field(None, ge=1, le=256, description="How many; as the recipe says where not given.")
    node: Annotated[int, Field(ge=0)] | Literal["others"] | None = Field(
        None,
        description="embedded: the node of the trial that it runs on, 0 (and where not given) being that of the "
        "experiment; others: replicas are spread over all but that one. attached, on Kubernetes: 0 is the node of the "
        "experiments, others any but those; where not given, the cluster chooses.",
    )
    time: Seconds | None = Field(None, gt=0, description="attached, kept by a batch job: time limit of that job.")

    @model_validator(mode="after")
    def _one_origin(self) -> "ServiceUse":
        there = self.endpoint if self.kubernetes is None else self.kubernetes
        if sum(origin is not None for origin in (self.recipe, there, self.server)) != 1:
            raise ValueError("a service has either a recipe, an endpoint (or its name on kubernetes), or a server")
        extras = self.parameters or self.replicas or self.node or self.time or self.mode != "embedded"
        if self.recipe is None and extras:
            raise ValueError(
                "a service with an endpoint, a name on kubernetes or a server is not started here: it has no mode, "
                "parameters, replicas, node, time"
            )
        if self.mode == "attached" and self.node not in (None, 0, "others"):
            raise ValueError("an attached service outlives its trials: node is 0 (theirs), others, or left out")
        return self


class TrialService(Model):
    """A service in trial.json: how to start it, or its address."""

    use: ServiceUse = Field(description="As the scenario says.")
    recipe: Recipe | None = Field(None, description="What its `recipe` names; none with an endpoint.")
    folder: str | None = Field(None, description="attached, or a server: where its keeper's files are.")
    others: list[str] = Field(default_factory=empty_list, description="The same of further servers, in their order.")
    pods: str | None = Field(None, description="kubernetes: file with its address and the pods behind it.")
    given: dict[str, str] = Field(default_factory=dict, description="Parameters that a server was started with.")
    count: int | None = Field(None, description="Replicas that a server was started with.")

    @property
    def folders(self) -> "list[ServiceFolder]":
        """The folders of the servers with these endpoints; empty if the trial starts the service or it has only an
        address.
        """
        return [ServiceFolder(Path(path)) for path in (self.folder, *self.others) if path is not None]

    @property
    def parameters(self) -> dict[str, str]:
        return self.given or {name: str(value) for name, value in self.use.parameters.items()}

    @property
    def replicas(self) -> int:
        assert self.recipe is not None
        return self.count or self.use.replicas or self.recipe.scale.replicas

    def identity(self) -> dict[str, Any]:
        """Return the fields that identify a measurement; where the service is started is not one of them."""
        if self.recipe is None:
            named = {"kubernetes": self.use.kubernetes} if self.use.kubernetes else {}
            return {"endpoint": self.use.endpoint} | named
        # The digest of a published image is in the evidence, like the version of a program.
        left_out = {"description", "licence", "install", "schema_version", "published"}
        if not self.recipe.image:
            left_out.add("image_program")
        if not self.recipe.members:
            left_out.add("members")  # recipes from before this field keep their digest
        return {
            "recipe": self.recipe.model_dump(mode="json", exclude=left_out),
            "parameters": self.parameters,
            "replicas": self.replicas,
            "mode": "attached" if self.use.server else self.use.mode,
        } | ({"node": self.use.node} if self.use.node or self.is_placed else {})

    @property
    def is_placed(self) -> bool:
        """Whether the service is attached, and its node is set relative to the trials."""
        return self.use.mode == "attached" and self.use.node is not None


class ServiceSpec(Model):
    """service.json: what a keeper starts, and for which run."""

    schema_version: Literal[1] = 1
    id: str
    recipe: Recipe
    parameters: dict[str, str] = Field(default_factory=dict)
    replicas: int = 1
    replica: int = Field(0, description="Number of the first of them.")
    run_id: str = Field("", description="The run that it is attached to; empty for one that was started by itself.")
    images: str = Field("", description="Folder of the pinned images that it may be started from.")
    owner: str = Field(
        "",
        description="Process whose end also ends the service. `stdin`: it ends with its standard input; `files`: "
        "when there is a file `stop`.",
    )
    alive: str = Field(
        "", description="files: file that whoever it was started for keeps changing; it ends when that stops."
    )
    reach: Literal["machine", "network"] = Field("machine", description="Who is to reach it.")
    time: float | None = Field(None, description="Time limit in seconds, where a batch system keeps it.")
    node: str | None = Field(None, description="Node that its batch job is to run on; null: any.")
    interface: str | None = Field(None, description="network: device on whose address it is to listen.")
    created: str = ""


class Replica(Model):
    """One server of a service."""

    endpoint: str = Field(description="Where it is; what is secret in it is blanked.")
    pid: int
    node: str = Field("", description="Node that its process is on, where that is not the experiment's.")
    metrics: str = ""
    image: str = Field("", description="sha256 of the image that it runs in; empty for a program of the machine.")
    start_s: float


class Address(Model):
    """A server with all data needed to send requests, including its secret."""

    name: str
    endpoint: str
    places: dict[str, str]


class Addresses(Model):
    """endpoints.json: the addresses of a service with their secrets, readable only by its user."""

    servers: list[Address]

    @property
    def endpoints(self) -> list[str]:
        return [server.endpoint for server in self.servers]


class LiveServices(Model):
    """services.json in the folder of a running trial: the servers that it started. It is not part of the evidence."""

    services: dict[str, Replica] = Field(default_factory=dict)


class KeeperJob(Model):
    """job.json of a service whose keeper is a batch job; written right after it was submitted."""

    executor: str
    job_id: str
    name: str
    where: dict[str, str] = Field(default_factory=dict, description="What else it takes to find it there.")


class ServiceState(Model):
    """state.json: the state of a service. Its endpoints with secrets are in `endpoints.json`, for its user only."""

    schema_version: Literal[1] = 1
    id: str
    recipe: str
    version: str = ""
    phase: Phase
    message: str = ""
    keeper: str = Field(description="The process that keeps it: pid, start time and namespace.")
    host: str = ""
    job: str | None = Field(None, description="Slurm's number of the job.")
    replicas: list[Replica] = Field(default_factory=empty_list)
    since: str = Field(description="When this phase began.")
    started: str = ""
    checked: str = Field("", description="When it last answered.")


class ServiceFolder(Folder):
    """The files of one service that outlives a trial."""

    spec = Inside("service.json")
    state = Inside("state.json")
    endpoints = Inside("endpoints.json")
    job = Inside("job.json")  # the batch job of the keeper, if there is one
    stop = Inside("stop")  # requests a keeper to stop after the number of seconds in the file
    log = Inside("keeper.log")  # the keeper's own output, if its state cannot hold it


def read_state(folder: ServiceFolder) -> ServiceState | None:
    """Return the state; None before the first one is written."""
    try:
        return ServiceState.model_validate_json(folder.state.read_bytes())
    except (OSError, ValueError):
        return None


def is_mention(text: str) -> bool:
    """Return whether text stands for the endpoint of a service, which is known only when that runs."""
    return _MENTION.fullmatch(text) is not None


def mentioned(value: Any) -> set[str]:
    """Return the services that a target or a workload names."""
    if isinstance(value, dict):
        return set().union(*map(mentioned, value.values()))
    if isinstance(value, list):
        return set().union(*map(mentioned, value))
    mention = _MENTION.fullmatch(value) if isinstance(value, str) else None
    return {mention[1]} if mention else set()


def split_endpoints(text: str) -> tuple[str, ...]:
    """Split the addresses that `with_endpoints` has joined.

    Raise ValueError if they differ in more than host and port, because each request may go to any of them.
    """
    addresses = tuple(_BETWEEN.split(text.strip()))
    if len(addresses) > 1:
        parts = [urlsplit(address) for address in addresses]
        if len({(part.scheme, part.path.rstrip("/"), part.query) for part in parts}) > 1:
            raise ValueError(f"several addresses must have one scheme and one path: {text}")
        if len({part.netloc for part in parts}) < len(parts):
            raise ValueError(f"an address stands twice: {text}")
    return addresses


def with_endpoints(value: Any, endpoints: Mapping[str, list[str]]) -> Any:
    """Return `value` with `service:NAME` replaced by its endpoint.

    Endpoints of several replicas are separated by commas; `service:NAME#2` is replaced by that of the third replica.
    """
    if isinstance(value, dict):
        return {key: with_endpoints(item, endpoints) for key, item in value.items()}
    if isinstance(value, list):
        return [with_endpoints(item, endpoints) for item in value]
    mention = _MENTION.fullmatch(value) if isinstance(value, str) else None
    if mention is None or mention[1] not in endpoints:
        return value
    replicas = endpoints[mention[1]]
    return ",".join(replicas) if mention[2] is None else replicas[int(mention[2])]
