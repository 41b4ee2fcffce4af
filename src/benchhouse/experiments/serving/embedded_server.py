"""Embedded mode: the server is started for the trial and stopped with it."""

from pydantic import Field

from benchhouse.schema.experiment import Context
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.recipe import Ready, Recipe


class Starting(Model):
    """How the server is started, and when it counts as up."""

    command: tuple[str, ...] = Field(min_length=1, description="Program and arguments; {port} is the free port.")
    ready: str = Field("/health", description="Path that answers 200 once the server is up.")
    timeout: Seconds = Field(300.0, gt=0, description="Startup timeout.")
    environment: dict[str, str] = Field(default_factory=dict, description="Further environment variables.")


def address(starting: Starting | None, url: str, ctx: Context, verify_tls: bool = True) -> str:
    """Return the address of the server, after starting it if `starting` is given."""
    if starting is None:
        return url
    ready_url = url.rstrip("/").removesuffix("/v1") + starting.ready
    recipe = Recipe(
        name="server",
        program=(starting.command[0],),
        command=("{program}", *starting.command[1:]),
        environment=starting.environment,
        endpoint=url,
        ready=Ready(kind="http", url=ready_url, timeout=starting.timeout, verify_tls=verify_tls),
    )
    return ctx.service(recipe).endpoint
