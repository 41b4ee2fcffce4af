"""Servers that live until they are stopped: start one, list those that run, check, read and stop them."""

import contextlib
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchhouse.catalog.entries import plug
from benchhouse.catalog.recipes import find_recipe, parameter_faults
from benchhouse.documents.problems import guess_hint
from benchhouse.evidence.writing import now
from benchhouse.processes.owner import pid_of
from benchhouse.processes.services import is_lost, job_of
from benchhouse.runs.cleanup import sweep
from benchhouse.runs.keepers import Keep, running_states, settle, start_job, start_keeper, stop_keepers, wait_ready
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Assignment, Executor, Keepers
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.secrets import is_secret_key, reference
from benchhouse.schema.service import OVER, Addresses, ServiceFolder, ServiceSpec, ServiceState
from benchhouse.sites import places


@dataclass(frozen=True)
class Placement:
    """Where a server runs: as a process of this machine, or as a job of an executor, on any of its nodes."""

    executor: str | None = None
    """Such as `slurm`; None: this machine."""
    site: str | None = None
    """Site profile, by name or file; None: the one in use here."""
    time_s: float | None = None
    """Time limit of its batch job in seconds."""


@dataclass(frozen=True)
class ServerRequest:
    """What to start: a recipe with its parameters, and for how many servers and how long to wait."""

    recipe: str
    """Name or file of the recipe."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    replicas: int | None = None
    """None: as the recipe says."""
    timeout_s: float | None = None
    """Startup timeout in seconds; None: as the recipe says."""
    placement: Placement = Placement()


@dataclass(frozen=True)
class Server:
    """A server that was started by itself or is attached to a run, as its files describe it."""

    id: str
    recipe: str
    version: str
    phase: str
    """starting, ready, unhealthy, stopping, stopped, failed; lost: the process that kept it was killed."""
    message: str
    """Why it is over or unhealthy."""
    endpoints: tuple[str, ...]
    """One for each replica; secrets in them are blanked."""
    metrics: tuple[str, ...]
    """Addresses of the replicas' Prometheus metrics."""
    pids: tuple[int, ...]
    job: str
    """The batch job that keeps it, else the process."""
    run_id: str
    """The run that it is attached to; empty for one that was started by itself."""
    host: str
    started: str
    """Time of its start, UTC."""
    checked: str
    """When it last answered, UTC."""
    folder: str
    """Its specification, state and logs."""


@dataclass(frozen=True)
class StartedServer(Server):
    """A server that has just become ready."""

    start_s: float
    """Seconds until it was ready."""


@dataclass(frozen=True)
class CheckedServer(Server):
    """A server that was asked by its own probe."""

    healthy: bool
    """Whether every replica answered in time."""


@dataclass(frozen=True)
class StoppedServers:
    """What was ended."""

    stopped: tuple[str, ...]
    """Ids of the servers."""
    killed: tuple[int, ...]
    """Pids of the keepers that had to be killed."""
    swept_processes: int
    """Processes without an owner that were ended too."""


@dataclass(frozen=True)
class ServerOutput:
    """The last lines that a server wrote."""

    lines: tuple[str, ...]
    """With their line ends; of one replica after the other."""
    folder: Path
    """Where all of it is."""


def start(workspace: WorkspaceFolder, request: ServerRequest, keep: Keep, show: Callable[[str], None]) -> StartedServer:
    """Start a server, here (`keep`) or as a job of an executor, and wait until it is ready; it lives until stopped."""
    placement = request.placement
    profile = places.site(workspace, placement.site)
    keepers = _keepers(placement.executor, Assignment(site=profile)) if placement.executor else None
    if placement.time_s is not None and keepers is None:
        raise BenchError("only a batch job has a time limit", "give --executor slurm, or leave out --time")
    sweep(_every_folder(workspace))
    recipe = _checked_recipe(find_recipe(request.recipe, workspace.recipes).recipe, request.parameters)
    if request.timeout_s is not None:
        recipe = recipe.model_copy(update={"ready": recipe.ready.model_copy(update={"timeout": request.timeout_s})})
    server_id = f"{recipe.name}-{secrets.token_hex(2)}"
    folder = ServiceFolder(workspace.services / server_id)
    spec = ServiceSpec(
        id=server_id,
        recipe=recipe,
        parameters=dict(request.parameters),
        replicas=request.replicas or recipe.scale.replicas,
        images=places.images_if_known(profile),
        created=now(),
    )
    began = time.monotonic()
    try:
        if keepers:
            job = {"owner": "files", "reach": "network", "interface": profile.network.interface}
            spec = spec.model_copy(update=job | {"time": placement.time_s})
            start_job(folder, spec, keepers, (sys.executable,))
        else:
            start_keeper(folder, spec, keep)
        state = wait_ready({server_id: folder}, show, keepers)[server_id]
    except KeyboardInterrupt:
        _end([folder])
        raise
    return StartedServer(**vars(_described(folder, state)), start_s=time.monotonic() - began)


def _keepers(executor: str, assignment: Assignment) -> Keepers | None:
    """None where that executor's servers are processes of this machine."""
    chosen: Executor = plug("executors", executor)(assignment)
    keepers = chosen.keepers
    chosen.close()
    return keepers


def _end(folders: Sequence[ServiceFolder]) -> list[int]:
    jobs: dict[str, list[ServiceFolder]] = {}
    for folder in folders:
        if job := job_of(folder):
            jobs.setdefault(job.executor, []).append(folder)
    for executor, job_folders in jobs.items():
        if keepers := _keepers(executor, Assignment()):
            keepers.stop(job_folders)
            settle(job_folders, "its job was ended", "stopped")
    return stop_keepers(folder for folder in folders if not folder.job.exists())


def _checked_recipe(recipe: Recipe, parameters: Mapping[str, str]) -> Recipe:
    """The recipe, if it can be started with these parameters."""
    for name, message in parameter_faults(recipe, parameters):
        hint = f"{guess_hint(name, recipe.parameters)}it has: {', '.join(recipe.parameters) or 'none'}"
        raise BenchError(message, hint if name in parameters else f"give it: -p {name}=...")
    for name, value in parameters.items():
        if is_secret_key(name) and reference(value) is None:
            hint = f"put it into the environment and write: -p {name}='$NAME'"
            raise BenchError(f"'{name}' is a secret in plain text", hint)
    if recipe.scale.nodes > 1:
        raise BenchError(f"the recipe {recipe.name} needs {recipe.scale.nodes} nodes, and a server by itself has one")
    return recipe


def running(workspace: WorkspaceFolder) -> list[Server]:
    """Servers that were started by themselves, and those attached to runs; what is over is left out."""
    states = running_states(_every_folder(workspace))
    return [_described(folder, state) for folder, state in states if state.phase not in OVER]


def check(workspace: WorkspaceFolder, server: str, timeout_s: float) -> CheckedServer:
    """Probe a server, by its id or the beginning of it, until it answers or the time is over."""
    from benchhouse.processes.probes import Probe

    folder, state = _find(workspace, server)
    described = _described(folder, state)
    if described.phase in (*OVER, "lost"):
        return CheckedServer(**vars(described), healthy=False)
    spec = ServiceSpec.model_validate_json(folder.spec.read_bytes())
    ready = spec.recipe.ready.model_copy(update={"timeout": timeout_s, "in_a_row": 1})
    try:
        addresses = Addresses.model_validate_json(folder.endpoints.read_bytes()).servers
    except OSError:  # it is starting, or on its way out
        addresses = []
    healthy = bool(addresses)
    for address in addresses:
        tail = partial(_tail, folder.path / "logs" / f"{address.name}.log")
        healthy = healthy and Probe(ready, address.endpoint, address.places, tail).wait(lambda: None)
    return CheckedServer(**vars(described), healthy=healthy)


def _last_lines(path: Path, lines: int) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return list(deque(file, lines))


def _tail(path: Path, lines: int) -> str:
    return "".join(_last_lines(path, lines))


def output(workspace: WorkspaceFolder, server: str, lines: int) -> ServerOutput:
    """The last lines of each replica; also of a server that is over."""
    folder = _find(workspace, server, over_too=True)[0].path / "logs"
    texts = [line for path in sorted(folder.glob("*.log")) for line in _last_lines(path, lines)]
    return ServerOutput(tuple(texts), folder)


def stop(workspace: WorkspaceFolder, server: str) -> StoppedServers:
    """End one server and wait until it has ended."""
    folder, state = _find(workspace, server)
    if state.phase in OVER:
        raise BenchError(f"{state.id} is over: {state.message or state.phase}", "see: bench servers ps")
    return _stopped(workspace, [(folder, state)])


def stop_all(workspace: WorkspaceFolder) -> StoppedServers:
    """End every server that was started by itself; those of runs go on."""
    states = running_states(_own_folders(workspace))
    return _stopped(workspace, [(folder, state) for folder, state in states if state.phase not in OVER])


def _stopped(workspace: WorkspaceFolder, servers: Sequence[tuple[ServiceFolder, ServiceState]]) -> StoppedServers:
    killed = _end([folder for folder, _ in servers])
    swept = sweep(_every_folder(workspace))
    return StoppedServers(tuple(state.id for _, state in servers), tuple(killed), swept)


def _find(workspace: WorkspaceFolder, server: str, over_too: bool = False) -> tuple[ServiceFolder, ServiceState]:
    states = running_states(_every_folder(workspace))
    if not over_too:
        states = [(folder, state) for folder, state in states if state.phase not in OVER] or states
    matches = [(folder, state) for folder, state in states if state.id.startswith(server)]
    matches = [(folder, state) for folder, state in matches if state.id == server] or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BenchError(f"'{server}' could be {', '.join(state.id for _, state in matches)}", "give more of the id")
    hint = guess_hint(server, [state.id for _, state in states])
    raise BenchError(f"there is no server '{server}'", f"{hint}see: bench servers ps")


def _own_folders(workspace: WorkspaceFolder) -> list[Path]:
    return list(workspace.services.iterdir()) if workspace.services.is_dir() else []


def _every_folder(workspace: WorkspaceFolder) -> list[Path]:
    return [*_own_folders(workspace), *workspace.runs.glob("*/services/*")]


def _described(folder: ServiceFolder, state: ServiceState) -> Server:
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
