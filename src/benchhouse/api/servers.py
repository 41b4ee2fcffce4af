"""`ws.servers`: recipes of servers, and servers that run until they are stopped."""

import contextlib
import os
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.api.long_lived_servers import every_folder, start_long_lived, stop_long_lived
from benchhouse.api.placement import Placement, keepers_of
from benchhouse.api.verb_group import VerbGroup
from benchhouse.catalog.recipes import FoundRecipe, find_recipe, list_recipes, load_recipe, parameter_faults
from benchhouse.documents.problems import guess_hint
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import now
from benchhouse.processes.process_identity import pid_of
from benchhouse.processes.services import is_lost, job_of
from benchhouse.runs.cleanup import sweep
from benchhouse.runs.service_control import running_states
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.image import find_pinned
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.secrets import exposed, is_secret_key, reference
from benchhouse.schema.service import OVER, Addresses, ServiceFolder, ServiceSpec, ServiceState
from benchhouse.sites import places
from benchhouse.sites.image_lock import read_lock

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener


@dataclass(frozen=True)
class RecipeStatus:
    """A recipe, and what is installed here for it."""

    recipe: str
    """Name of the recipe; empty if its file can't be read."""
    version: str | None = None
    """Version of the installed program."""
    program: str | None = None
    """Path of the program; None if it is not installed, or was not looked for."""
    image: str | None = None
    """Container image that the server may be started from, with its digest if the recipe or the lock has one."""
    pinned: bool = False
    """Whether that image was pulled and pinned at this site."""
    install: str = ""
    """How to install the program."""
    licence: str = ""
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    """Default of each parameter; None if it must be given."""
    description: str = ""
    origin: str = ""
    """The file, or the distribution that ships it."""
    broken: str | None = None
    """Why the file of the recipe can't be read."""


@dataclass(frozen=True)
class Server:
    """A server that was started on its own or is attached to a run, as its files describe it."""

    id: str
    recipe: str
    version: str
    phase: str
    """starting, ready, unhealthy, stopping, stopped, failed; lost: the process that kept it was killed."""
    message: str
    """Why it has ended or is unhealthy."""
    endpoints: tuple[str, ...]
    """One address per replica, with secrets blanked."""
    metrics: tuple[str, ...]
    """Addresses of the replicas' Prometheus metrics."""
    pids: tuple[int, ...]
    job: str
    """The batch job that keeps the server, otherwise the process."""
    run_id: str
    """The run that the server is attached to; empty if it was started on its own."""
    host: str
    started: str
    """When it started, UTC."""
    checked: str
    """When it last answered, UTC."""
    folder: str
    """The folder of its specification, state, and logs."""


@dataclass(frozen=True)
class StartedServer(Server):
    """A server that has just become ready."""

    start_s: float
    """Seconds until it was ready."""


@dataclass(frozen=True)
class CheckedServer(Server):
    """A server that was checked by its own probe."""

    healthy: bool
    """Whether every replica answered in time."""


@dataclass(frozen=True)
class StoppedServers:
    """Servers that were stopped."""

    stopped: tuple[str, ...]
    """Ids of the servers."""
    killed: tuple[int, ...]
    """Pids of the keepers that had to be killed."""
    swept_processes: int
    """Number of processes without an owner that were ended too."""


@dataclass(frozen=True)
class ServerOutput:
    """The last lines that a server wrote."""

    lines: tuple[str, ...]
    """The lines with their line ends, one replica after the other."""
    folder: Path
    """The folder of the complete logs."""


class Servers(VerbGroup):
    """The servers of a workspace. They are named by their id, or the first characters of it."""

    def recipes(self, *, programs: bool = True) -> list[RecipeStatus]:
        """Return all recipes, with the version of each program that is installed here.

        The programs are started to find out their versions; without `programs`, nothing is started, and neither
        programs nor versions are returned.
        """
        good, broken = list_recipes(self._folder.recipes)
        images, digests = places.images_if_known(places.site(self._folder)), read_lock(self._folder.image_lock).digests
        good = [replace(item, recipe=item.recipe.with_pin(digests)) for item in good]
        return [_status(item, images, programs) for item in good] + [
            RecipeStatus("", broken=error.message) for error in broken
        ]

    def recipe(self, name: str) -> Recipe:
        """Return a recipe by its name or file. `recipe_text` converts it to the text of a file."""
        return find_recipe(name, self._folder.recipes).recipe

    def validate(self, path: str | os.PathLike[str]) -> Recipe:
        """Check the file of a recipe without starting anything. Raises BenchError with every mistake and its place."""
        return load_recipe(Path(path))

    def validate_text(self, text: str, name: str = "<recipe>") -> Recipe:
        """Check the text of a recipe. Errors refer to it by `name`."""
        return validated(parse_yaml(text, name), Recipe)

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

        `parameters` are those of the recipe; a secret is given as `$NAME` of an environment variable. `timeout_s` is
        the startup timeout. `placement=Placement("slurm", time_s=7200, resources={"gpus": 1})` makes it a job on a
        compute node.
        """
        from benchhouse.api.execution import listener_of

        found = _checked_recipe(self.recipe(recipe), parameters or {})
        if timeout_s is not None:
            found = found.model_copy(update={"ready": found.ready.model_copy(update={"timeout": timeout_s})})
        spec = ServiceSpec(
            id=f"{found.name}-{secrets.token_hex(2)}",
            recipe=found,
            parameters=dict(parameters or {}),
            replicas=replicas or found.scale.replicas,
            created=now(),
        )
        began = time.monotonic()
        ((folder, state),) = start_long_lived(self._folder, [spec], placement, listener_of(progress).note)
        return StartedServer(**vars(described(folder, state)), start_s=time.monotonic() - began)

    def running(self) -> list[Server]:
        """Return the running servers: those started on their own and those attached to runs."""
        return [_asked(folder, described(folder, state)) for folder, state in _up(every_folder(self._folder))]

    def check(self, server: str, *, timeout_s: float = 5.0) -> CheckedServer:
        """Probe a server by its own probe until it answers, for at most `timeout_s` seconds."""
        from benchhouse.processes.probes import ServerProbe

        folder, state = find_server(self._folder, server)
        server_now = described(folder, state)
        if server_now.phase in (*OVER, "lost"):
            return CheckedServer(**vars(server_now), healthy=False)
        spec = ServiceSpec.model_validate_json(folder.spec.read_bytes())
        ready = spec.recipe.ready.model_copy(update={"timeout": timeout_s, "in_a_row": 1})
        try:
            addresses = Addresses.model_validate_json(folder.endpoints.read_bytes()).servers
        except OSError:  # it is starting or stopping
            addresses = []
        healthy = bool(addresses)
        for address in addresses:
            tail = partial(_tail, folder.path / "logs" / f"{address.name}.log")
            healthy = healthy and ServerProbe(ready, address.endpoint, address.places, tail).wait(lambda: None)
        return CheckedServer(**vars(server_now), healthy=healthy)

    def logs(self, server: str, *, lines: int = 50) -> ServerOutput:
        """Return the last lines that a server wrote. The server may have ended."""
        folder = find_server(self._folder, server, over_too=True)[0].path / "logs"
        texts = [line for path in sorted(folder.glob("*.log")) for line in _last_lines(path, lines)]
        return ServerOutput(tuple(texts), folder)

    def stop(self, server: str) -> StoppedServers:
        """Stop a server and wait until it has ended."""
        folder, state = find_server(self._folder, server)
        if state.phase in OVER:
            raise BenchError(f"{state.id} is over: {state.message or state.phase}", "see: bench servers ps")
        return _stopped(self._folder, [(folder, state)])

    def stop_all(self) -> StoppedServers:
        """Stop every server that was started on its own. Servers attached to runs keep running."""
        return _stopped(self._folder, _up(list(self._folder.services.glob("*"))))


def _up(folders: Sequence[Path]) -> list[tuple[ServiceFolder, ServiceState]]:
    """Return the servers that have not ended, except monitors and load clients, which have their own commands."""
    from benchhouse.load import clients
    from benchhouse.worker.monitors import standing_monitor

    others = tuple(f"{recipe.name}-" for recipe in (standing_monitor.RECIPE, clients.RECIPE))
    states = running_states([folder for folder in folders if not folder.name.startswith(others)])
    return [(folder, state) for folder, state in states if state.phase not in OVER]


def _asked(folder: ServiceFolder, server: Server) -> Server:
    """Mark a server as lost if its batch system reports that its job ended: its files don't show that its node died."""
    job = job_of(folder)
    keepers = keepers_of(job.executor, Assignment()) if job else None
    ended = keepers.gone(folder) if keepers else ""
    return replace(server, phase="lost", message=ended) if ended else server


def _status(found: FoundRecipe, images: str, programs: bool) -> RecipeStatus:
    from benchhouse.processes.programs import find_program, version_of

    recipe = found.recipe
    program = version = None
    if programs:
        with contextlib.suppress(ExperimentFailed):
            program = find_program(recipe)
            version = version_of(recipe)
    if recipe.version_command and not version:  # an interpreter without the package is not the server
        program = None
    return RecipeStatus(
        recipe=recipe.name,
        version=version,
        program=program,
        image=recipe.pinned_image or recipe.published or None,
        pinned=bool(recipe.pinned_image and images and find_pinned(Path(images), recipe.pinned_image)),
        install=recipe.install,
        licence=recipe.licence,
        parameters=recipe.parameters,
        description=recipe.description,
        origin=found.origin,
    )


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe as the content of its file."""
    return dump_yaml({"schema_version": 1, **recipe.model_dump(mode="json", exclude_defaults=True)})


def _checked_recipe(recipe: Recipe, parameters: Mapping[str, str]) -> Recipe:
    """Return the recipe. Raises BenchError if it can't be started with these parameters."""
    for name, message in parameter_faults(recipe, parameters):
        hint = f"{guess_hint(name, recipe.parameters)}it has: {', '.join(recipe.parameters) or 'none'}"
        raise BenchError(message, hint if name in parameters else f"give it: -p {name}=...")
    for name, value in parameters.items():
        if exposed(value) is not None or (is_secret_key(name) and reference(value) is None):
            hint = f"put it into the environment and write: -p {name}='$NAME'"
            raise BenchError(f"'{name}' is a secret in plain text", hint)
    return recipe


def _last_lines(path: Path, lines: int) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return list(deque(file, lines))


def _tail(path: Path, lines: int) -> str:
    return "".join(_last_lines(path, lines))


def _stopped(workspace: WorkspaceFolder, servers: Sequence[tuple[ServiceFolder, ServiceState]]) -> StoppedServers:
    killed = stop_long_lived([folder for folder, _ in servers])
    swept = sweep(every_folder(workspace))
    return StoppedServers(tuple(state.id for _, state in servers), tuple(killed), swept)


def find_server(workspace: WorkspaceFolder, server: str, over_too: bool = False) -> tuple[ServiceFolder, ServiceState]:
    """Return a server by its id or a unique beginning of it; ended ones only if none is running, or `over_too`."""
    states = running_states(every_folder(workspace))
    if not over_too:
        states = [(folder, state) for folder, state in states if state.phase not in OVER] or states
    matches = [(folder, state) for folder, state in states if state.id.startswith(server)]
    matches = [(folder, state) for folder, state in matches if state.id == server] or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BenchError(f"'{server}' could be {', '.join(state.id for _, state in matches)}", "give more of the id")
    hint = guess_hint(server, [state.id for _, state in states])
    raise NotFoundError(f"there is no server '{server}'", f"{hint}see: bench servers ps")


def described(folder: ServiceFolder, state: ServiceState) -> Server:
    """Return a long-lived server as its files describe it."""
    run_id, job = "", job_of(folder)
    with contextlib.suppress(OSError, ValueError):
        run_id = ServiceSpec.model_validate_json(folder.spec.read_bytes()).run_id
    return Server(
        id=state.id,
        recipe=state.recipe,
        version=state.version,
        phase="lost" if is_lost(state) else state.phase,
        message=state.message,
        endpoints=tuple(item.endpoint for item in state.replicas),
        metrics=tuple(item.metrics for item in state.replicas if item.metrics),
        pids=tuple(item.pid for item in state.replicas),
        job=state.job or (job.job_id if job else "") or str(pid_of(state.keeper) or ""),
        run_id=run_id,
        host=state.host,
        started=state.started,
        checked=state.checked,
        folder=str(folder.path),
    )
