"""`ws.servers`: recipes of servers, and servers that live until they are stopped."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.api.groups import VerbGroup
from benchhouse.catalog.recipes import find_recipe, load_recipe
from benchhouse.runs import servers
from benchhouse.runs.servers import (
    CheckedServer,
    Placement,
    Server,
    ServerOutput,
    ServerRequest,
    StartedServer,
    StoppedServers,
)
from benchhouse.schema.recipe import Recipe
from benchhouse.sites.recipes import RecipeStatus, list_recipe_status, recipe_text

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener

__all__ = ["Placement", "RecipeStatus", "Servers", "StartedServer", "recipe_text"]


class Servers(VerbGroup):
    """The servers of a workspace. They are named by their id, or the beginning of it."""

    def recipes(self) -> list[RecipeStatus]:
        """All recipes, with the version of each program that is installed here."""
        return list_recipe_status(self._folder)

    def recipe(self, name: str) -> Recipe:
        """A recipe by its name or file; `recipe_text` makes a file of it."""
        return find_recipe(name, self._folder.recipes).recipe

    def validate(self, path: str | os.PathLike[str]) -> Recipe:
        """Check the file of a recipe; every mistake is raised at once, with its place. Nothing is started."""
        return load_recipe(Path(path))

    def start(
        self,
        recipe: str,
        parameters: Mapping[str, str] | None = None,
        *,
        replicas: int | None = None,
        timeout_s: float | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
        progress: "bool | RunListener" = False,
    ) -> StartedServer:
        """Start a server, wait until it is ready, and leave it running.

        `parameters` are of the recipe; a secret is given as `$NAME` of an environment variable. `timeout_s` is the
        startup timeout. `placement=Placement("slurm", time_s=7200)` makes it a job on a compute node.
        """
        from benchhouse.api.execution import listener_of
        from benchhouse.worker.keeper import keep

        request = ServerRequest(recipe, parameters or {}, replicas, timeout_s, placement)
        return servers.start(self._folder, request, keep, listener_of(progress).note)

    def running(self) -> list[Server]:
        """Servers that run: those started by themselves and those attached to runs."""
        return servers.running(self._folder)

    def check(self, server: str, *, timeout_s: float = 5.0) -> CheckedServer:
        """Ask a server by its own probe until it answers, for at most `timeout_s` seconds."""
        return servers.check(self._folder, server, timeout_s)

    def logs(self, server: str, *, lines: int = 50) -> ServerOutput:
        """The last lines that a server wrote; also of one that is over."""
        return servers.output(self._folder, server, lines)

    def stop(self, server: str) -> StoppedServers:
        """Stop a server and wait until it has ended."""
        return servers.stop(self._folder, server)

    def stop_all(self) -> StoppedServers:
        """Stop every server that was started by itself; those attached to runs go on."""
        return servers.stop_all(self._folder)
