"""Recipe: a server as a declaration; whoever starts it turns it into a Service, a running endpoint."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_PLACE = re.compile(r"\{([a-z_]+)\}")
_GIVEN = ("folder", "program", "python", "threads")


class Ready(Model):
    """How a server shows that it is up: an address that answers 200, a port that takes connections, a command."""

    kind: Literal["http", "tcp", "command"] = Field("tcp", description="What is asked.")
    url: str = Field("", description="http: the address, {port} and all.")
    command: tuple[str, ...] = Field((), description="command: it is up when this ends with 0.")
    timeout: Seconds = Field(60.0, gt=0, description="Longest time until then.")
    verify_tls: bool = Field(True, description="http: whether the certificate is checked.")


class Recipe(Model):
    """How one server is started for a trial. In texts, {port} (or another of `ports`), {folder}, {program} stand for
    what they will be; {folder} is empty, private, and removed with the server."""

    name: str = Field(description="Name of the recipe.")
    description: str = Field("", description="What it is, for people.")
    licence: str = Field("", description="Licence of the server.")
    program: tuple[str, ...] = Field(
        min_length=1,
        description="Where the program may be, best first: a name on PATH, an absolute path with *, or "
        "`package:path/inside` of an installed Python package.",
    )
    install: str = Field("", description="What to do where it is not there.")
    prepare: tuple[tuple[str, ...], ...] = Field((), description="Commands that run before, one after the other.")
    command: tuple[str, ...] = Field(min_length=1, description="Program and arguments of the server itself.")
    files: dict[str, str] = Field(default_factory=dict, description="Files to write into {folder} first.")
    ports: tuple[str, ...] = Field(("port",), description="Free ports that it needs, by name.")
    environment: dict[str, str] = Field(default_factory=dict, description="Further variables.")
    endpoint: str = Field(description="What a driver is given: an address, or a path below {folder}.")
    ready: Ready = Field(default_factory=Ready, description="When it is up.")
    refuses_root: bool = Field(False, description="Whether it does not run as root; it is then run as nobody.")
    stop_signal: Literal["TERM", "INT", "QUIT"] = Field("TERM", description="What asks it to end.")

    @model_validator(mode="after")
    def _places_are_known(self) -> "Recipe":
        known = {*_GIVEN, *self.ports}
        for text in (self.endpoint, self.ready.url):
            for place in _PLACE.findall(text):
                if place not in known:
                    raise ValueError(f"{{{place}}} in {text!r} is none of {', '.join(sorted(known))}")
        return self


@dataclass(frozen=True)
class Service:
    """A server that runs: where it is, which process began it, and where its words go."""

    recipe: str
    endpoint: str
    pid: int
    folder: Path
    log: Path
    start_s: float


def fill(text: str, places: dict[str, str]) -> str:
    """`text` with its places filled in; other braces stay."""
    return _PLACE.sub(lambda found: places.get(found[1], found[0]), text)
