"""Recipes: declarations of how a server is started. A started recipe is a Service, with a running endpoint."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from benchhouse.schema.image import tagged, with_digest
from benchhouse.schema.model import SEALED, Model
from benchhouse.schema.names import Name
from benchhouse.schema.patterns import compiled
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.quoting import quote
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import exposed, is_plain_secret

_PLACE = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
_IMAGE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
LOOPBACK = "127.0.0.1"


def _bind(text: str) -> str:
    source, _, destination = text.partition(":")
    if not (source and destination):
        raise ValueError(f"{text!r} is not source:destination")
    return text


BindText = Annotated[str, AfterValidator(_bind)]
GIVEN = ("folder", "host", "program", "python", "threads", "secret", "replica")
"""Placeholders that are filled in when the server starts.

{secret} is generated for each start, and redacted wherever it appears. {host} is the address to listen on: the loopback
address, or the node's own if other nodes need to reach the server.
"""


class Ready(Model):
    """How to check that a server is up: an address that answers 200, a port, gRPC health, a query, or a log line."""

    kind: Literal["http", "tcp", "grpc", "sql", "log", "command"] = Field("tcp", description="Kind of probe.")
    url: str = Field("", description="http, grpc, sql: the address; by default the endpoint.")
    port: str = Field("port", description="tcp: name of the port.")
    query: str = Field("SELECT 1", description="sql: the query.")
    pattern: str = Field("", description="log: regular expression of the line to wait for.")
    command: tuple[str, ...] = Field((), description="command: exits with 0 when the server is up.")
    in_a_row: int = Field(1, ge=1, le=100, description="Successes in a row that are needed.")
    timeout: Seconds = Field(60.0, gt=0, description="Startup timeout in seconds.")
    verify_tls: bool = Field(True, description="http: whether the certificate is checked.")

    @model_validator(mode="after")
    def _has_what_it_asks(self) -> "Ready":
        if self.kind == "log":
            if not self.pattern:
                raise ValueError("a log probe needs a pattern")
            try:
                compiled(self.pattern)
            except ValueError as error:
                raise ValueError(f"{quote(self.pattern)} is {error}") from error
        if self.kind == "command" and not self.command:
            raise ValueError("a command probe needs a command")
        return self


class ServerScale(Model, strict=True):
    """The number of servers, and of nodes that they are spread over."""

    replicas: int = Field(1, ge=1, le=256, description="Identical servers, each with its own endpoint.")
    nodes: int = Field(1, ge=1, le=10_000, description="Nodes that they are spread over.")


Port = Annotated[int, Field(ge=0, le=65535, description="0: any free one.")]


class Recipe(Model):
    """How one server is started.

    In texts, {host}, {port} (or another of `ports`), {folder}, {program}, {secret} and each of `parameters` are
    replaced by their values; {folder} is empty, private, and removed with the server.
    """

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    name: Name = Field(description="Name of the recipe.")
    description: str = Field("", description="What it is, for people.")
    licence: str = Field("", description="Licence of the server.")
    program: tuple[str, ...] = Field(
        (),
        description="Where to look for the program, in order: a name on PATH, an absolute path with *, or "
        "`package:path/inside` of an installed Python package.",
    )
    image: str = Field("", description="Container image with its digest, used where the program is not installed.")
    published: str = Field(
        "",
        description="Image that its maker publishes, NAME:TAG or NAME:TAG@sha256:...; used like `image` once it has a "
        "digest, its own or that of `bench images pin`.",
    )
    image_program: str = Field(
        "", description="The program inside the image; by default the first of `program`, found by the image's PATH."
    )
    install: str = Field("", description="How to install it.")
    version_command: tuple[str, ...] = Field((), description="Prints the server's version.")
    parameters: dict[str, str | None] = Field(
        default_factory=dict, description="User's parameters with defaults, or null."
    )
    prepare: tuple[tuple[str, ...], ...] = Field((), description="Commands to run first, in order.")
    command: tuple[str, ...] = Field(min_length=1, description="Program and arguments of the server.")
    members: tuple[str, ...] = Field(
        (),
        description="Program and arguments on each further node, where one server spans several (`scale.nodes`); "
        "{head} is the address of the first, {head_port} (or another of `ports`) its port.",
    )
    files: dict[str, str] = Field(default_factory=dict, description="Files to write into {folder} first.")
    ports: dict[str, Port] = Field(default_factory=lambda: {"port": 0}, description="Ports that it needs, by name.")
    binds: tuple[BindText, ...] = Field((), description="source:destination folders for its container.")
    environment: dict[str, str] = Field(default_factory=dict, description="Further variables; a secret as $NAME.")
    resources: Resources | None = Field(None, description="Resources that it needs.")
    scale: ServerScale = Field(default_factory=ServerScale, description="How many servers.")
    endpoint: str = Field(description="What drivers connect to: an address, or a path below {folder}.")
    metrics: str = Field("", description="Address of its metrics in Prometheus format.")
    ready: Ready = Field(default_factory=Ready, description="How to tell that it is up.")
    refuses_root: bool = Field(False, description="Whether it refuses to run as root; then it runs as nobody.")
    stop_signal: Literal["TERM", "INT", "QUIT"] = Field("TERM", description="Signal that ends it.")

    @field_validator("image")
    @classmethod
    def _image_is_pinned(cls, image: str) -> str:
        if image and not _IMAGE.fullmatch(image):
            raise ValueError(f"{image!r} is not pinned: name@sha256: and 64 hexadecimal digits")
        return image

    @field_validator("published")
    @classmethod
    def _published_is_exact(cls, published: str) -> str:
        if not published:
            return ""
        reference = tagged(published)
        if reference.tag == "latest":
            raise ValueError(f"{published!r} is another image tomorrow: name its version")
        return str(reference)

    @field_validator("files")
    @classmethod
    def _files_stay_inside(cls, files: dict[str, str]) -> dict[str, str]:
        for path in files:
            if not path or Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{path!r} is not below the server's folder")
        return files

    @model_validator(mode="after")
    def _shows_no_secret(self, info: ValidationInfo) -> "Recipe":
        if info.context == SEALED:
            return self
        for name, value in self.environment.items():
            if "{secret}" not in value and is_plain_secret(name, value):
                raise ValueError(f"{name} is a secret in plain text: write ${name} and set it outside, or {{secret}}")
        for text in (*self._texts(), *self.environment.values(), *self.files.values()):
            if exposed(text.replace("{secret}", "$MADE_UP_SECRET")) is not None:
                raise ValueError("a secret in plain text: write {secret} for a generated one, or $NAME_PASSWORD")
        return self

    @model_validator(mode="after")
    def _can_be_started(self) -> "Recipe":
        if not self.program and not self.image and not self.published:
            raise ValueError("a recipe has a program, an image, or both")
        known = {*GIVEN, *self.ports, *self.parameters}
        if taken := {*GIVEN} & {*self.ports, *self.parameters} or {*self.ports} & {*self.parameters}:
            raise ValueError(f"{', '.join(sorted(taken))} already means something else")
        for text in self._texts():
            for place in _PLACE.findall(text):
                if place not in known:
                    raise ValueError(f"{{{place}}} in {text!r} is none of {', '.join(sorted(known))}")
        if self.ready.kind == "tcp" and self.ready.port not in self.ports:
            raise ValueError(f"ready probes port {self.ready.port!r}, none of {', '.join(self.ports) or '(none)'}")
        return self

    @property
    def pinned_image(self) -> str:
        """The image with its digest; empty if the recipe has no image or it is not pinned."""
        return self.image or (self.published if "@" in self.published else "")

    def with_pin(self, digests: Mapping[str, str]) -> "Recipe":
        """Return the recipe with the digest that a lock has for its published image; unchanged if the lock has none."""
        published = with_digest(self.published, digests)
        return self if published == self.published else self.model_copy(update={"published": published})

    def image_facts(self, sha256: str) -> dict[str, str]:
        """Return the facts about a server's image for evidence: the digest of its file, and the reference it was pulled
        by.

        Empty for a program of the machine, which has no `sha256`.
        """
        return {"image": sha256, "reference": self.pinned_image} if sha256 else {}

    @property
    def reachable(self) -> bool:
        """Whether other nodes can reach the server, if it listens for them."""
        return "{host}" in self.endpoint

    def nodes_fault(self, replicas: int) -> str:
        """Return why the recipe cannot run on `scale.nodes` nodes; empty if it can."""
        nodes = self.scale.nodes
        if nodes > 1 and not self.reachable:
            return f"the recipe {self.name} can't be on {nodes} nodes: it does not say {{host}}, so no other reaches it"
        if self.members and replicas > 1:
            return f"the recipe {self.name} is one server that spans its nodes: it has no replicas"
        if nodes > replicas and not self.members:
            return (
                f"the recipe {self.name} does not say how one server spans {nodes} nodes (`members`), and "
                f"{replicas} replica{'s' if replicas > 1 else ''} can't be spread over them"
            )
        return ""

    @property
    def expendable(self) -> bool:
        """Whether a trial continues when one of several servers ends; true for load clients, which show the loss."""
        return self.endpoint.startswith("client://")

    @property
    def guarded(self) -> bool:
        """Whether the server requires a secret that is generated for each start."""
        return "{secret}" in self.endpoint

    def _texts(self) -> Iterator[str]:
        """Yield the texts in which a brace can only be a placeholder."""
        yield from (self.endpoint, self.metrics, self.ready.url, *self.binds)
        yield from self.parameters_used()

    def parameters_used(self) -> Iterator[str]:
        """Yield the words of the commands that use a parameter."""
        for command in (*self.prepare, self.command, self.ready.command, self.version_command):
            yield from (word for word in command if any(f"{{{name}}}" in word for name in self.parameters))


@dataclass(frozen=True)
class Service:
    """A running server: its address, its process, and its name in the logs."""

    recipe: str
    name: str  # name of the recipe or in the scenario, with the number of the replica
    endpoint: str
    pid: int
    folder: Path
    start_s: float
    metrics: str = ""
    image: str = ""  # sha256 of the image in which it runs; empty for a program of the machine


def fill(text: str, places: dict[str, str]) -> str:
    """Return `text` with its placeholders filled in; other braces are unchanged."""
    return _PLACE.sub(lambda match: places.get(match[1], match[0]), text)
