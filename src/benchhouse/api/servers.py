"""Servers by themselves: which recipes there are, and instances that live until they are stopped."""

import contextlib
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchhouse.catalog.entries import plug
from benchhouse.catalog.recipes import FoundRecipe, find_recipe, list_recipes, load_recipe
from benchhouse.documents.problems import did_you_mean
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import now
from benchhouse.processes.owner import pid_of
from benchhouse.runs.cleanup import sweep
from benchhouse.runs.keepers import (
    is_lost,
    running_states,
    settle,
    start_job,
    start_keeper,
    stop_keepers,
    wait_ready,
)
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.image import find_pinned
from benchhouse.schema.layout import Workspace
from benchhouse.schema.protocols import Assignment, Executor, Keepers
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.secrets import is_secret_key, reference
from benchhouse.schema.service import OVER, Addresses, KeeperJob, ServiceFolder, ServiceSpec, ServiceState
from benchhouse.sites import places


def recipes(workspace: Workspace) -> list[dict[str, Any]]:
    """All recipes, with the version of the program where it is here."""
    from benchhouse.processes.programs import find_program, version_of

    good, broken = list_recipes(workspace.recipes)
    images = places.images_if_known(places.site(workspace))
    rows = []
    for found in good:
        recipe = found.recipe
        try:
            program: str | None = find_program(recipe)
        except ExperimentFailed:
            program = None
        version = version_of(recipe) if program else None
        if recipe.version_command and not version:  # an interpreter without the package is not the server
            program = None
        rows.append(
            {
                "recipe": recipe.name,
                "version": version,
                "program": program,
                "image": recipe.image or None,
                "pinned": bool(recipe.image and images and find_pinned(Path(images), recipe.image)),
                "install": recipe.install,
                "licence": recipe.licence,
                "parameters": recipe.parameters,
                "description": recipe.description,
                "origin": found.origin,
                "broken": None,
            }
        )
    return rows + [{"recipe": "", "broken": error.message} for error in broken]


def recipe_text(workspace: Workspace, name: str) -> str:
    """A recipe as a file, to be read, or copied into recipes/ and changed."""
    recipe = find_recipe(name, workspace.recipes).recipe
    return dump_yaml({"schema_version": 1, **recipe.model_dump(mode="json", exclude_defaults=True)})


def validate(path: Path) -> Recipe:
    return load_recipe(path)


def start(
    workspace: Workspace,
    name: str,
    parameters: Mapping[str, str],
    replicas: int | None,
    timeout_s: float | None,
    show: Callable[[str], None],
    executor: str | None = None,
    site: str | None = None,
    time_s: float | None = None,
) -> dict[str, Any]:
    """Start a server and wait until it is ready; it lives on until it is stopped.

    On an executor whose jobs outlive us it is a job, on whatever node, for at most `time_s` seconds.
    """
    from benchhouse.worker.keeper import keep

    profile = places.site(workspace, site)
    keepers = _keepers(executor, Assignment(site=profile)) if executor else None
    if time_s is not None and keepers is None:
        raise BenchError("--time is of a batch job", "give --executor slurm, or leave it out")
    sweep(_kept(workspace))
    recipe = _checked(find_recipe(name, workspace.recipes), parameters)
    if timeout_s is not None:
        recipe = recipe.model_copy(update={"ready": recipe.ready.model_copy(update={"timeout": timeout_s})})
    identifier = f"{recipe.name}-{secrets.token_hex(2)}"
    folder = ServiceFolder(workspace.services / identifier)
    spec = ServiceSpec(
        id=identifier,
        recipe=recipe,
        parameters=dict(parameters),
        replicas=replicas or recipe.scale.replicas,
        images=places.images_if_known(places.site(workspace)),
        created=now(),
    )
    began = time.monotonic()
    try:
        if keepers:
            network = {"owner": "files", "reach": "network", "interface": profile.network.interface, "time": time_s}
            start_job(folder, spec.model_copy(update=network), keepers, (sys.executable,))
        else:
            start_keeper(folder, spec, keep)
        state = wait_ready({identifier: folder}, show, keepers)[identifier]
    except KeyboardInterrupt:
        _end([folder])
        raise
    return _shown(folder, state) | {"start_s": time.monotonic() - began}


def _keepers(executor: str, assignment: Assignment) -> Keepers | None:
    """None where that executor's servers are processes of this machine."""
    found: Executor = plug("executors", executor)(assignment)
    keepers = found.keepers
    found.close()
    return keepers


def _end(folders: Sequence[ServiceFolder]) -> list[int]:
    """Ask all to end and wait until they have; pids of those that had to be killed."""
    jobs: dict[str, list[ServiceFolder]] = {}
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            job = KeeperJob.model_validate_json(folder.job.read_bytes())
            jobs.setdefault(job.executor, []).append(folder)
    for executor, mine in jobs.items():
        if keepers := _keepers(executor, Assignment()):
            keepers.stop(mine)
            settle(mine, "its job was ended", "stopped")
    return stop_keepers(folder for folder in folders if not folder.job.exists())


def _checked(found: FoundRecipe, parameters: Mapping[str, str]) -> Recipe:
    recipe = found.recipe
    known = ", ".join(recipe.parameters) or "none"
    for name in parameters:
        if name not in (*recipe.parameters, "program"):
            guess = did_you_mean(name, recipe.parameters)
            hint = f"did you mean '{guess}'? " if guess else ""
            raise BenchError(f"the recipe {recipe.name} has no parameter '{name}'", f"{hint}it has: {known}")
        if is_secret_key(name) and reference(parameters[name]) is None:
            raise BenchError(
                f"'{name}' is a secret in plain text", f"put it into the environment and write: -p {name}='$NAME'"
            )
    for name, default in recipe.parameters.items():
        if default is None and name not in parameters:
            raise BenchError(f"the recipe {recipe.name} needs the parameter '{name}'", f"give it: -p {name}=...")
    if recipe.scale.nodes > 1:
        raise BenchError(f"the recipe {recipe.name} needs {recipe.scale.nodes} nodes: here is one")
    return recipe


def instances(workspace: Workspace) -> list[dict[str, Any]]:
    """Servers that were started by themselves, and those attached to runs; what is over is left out."""
    found = running_states(_kept(workspace))
    return [_shown(folder, state) for folder, state in found if state.phase not in OVER]


def check(workspace: Workspace, token: str, timeout_s: float) -> dict[str, Any]:
    """Ask a server now, by its own probe, until it answers or the time is over. `healthy` says which."""
    from benchhouse.processes.probes import Probe

    folder, state = _find(workspace, token)
    shown = _shown(folder, state)
    if shown["phase"] in (*OVER, "lost"):
        return shown | {"healthy": False}
    spec = ServiceSpec.model_validate_json(folder.spec.read_bytes())
    ready = spec.recipe.ready.model_copy(update={"timeout": timeout_s, "in_a_row": 1})
    try:
        servers = Addresses.model_validate_json(folder.endpoints.read_bytes()).servers
    except OSError:  # it is starting, or on its way out
        servers = []
    healthy = bool(servers)
    for server in servers:
        probe = Probe(
            ready, server.endpoint, server.places, partial(_tail, folder.path / "logs" / f"{server.name}.log")
        )
        healthy = healthy and probe.wait(lambda: None)
    return shown | {"healthy": healthy}


def _tail(path: Path, lines: int) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, lines))


def logs(workspace: Workspace, token: str) -> Path:
    """The folder of a server's logs."""
    return _find(workspace, token, over_too=True)[0].path / "logs"


def stop(workspace: Workspace, token: str) -> dict[str, Any]:
    folder, state = _find(workspace, token)
    if state.phase in OVER:
        raise BenchError(f"{state.id} is over: {state.message or state.phase}", "see: bench servers ps")
    killed = _end([folder])
    swept = sweep(_kept(workspace))
    return {"id": state.id, "killed": bool(killed), "swept_processes": swept}


def stop_all(workspace: Workspace) -> list[str]:
    """Stop every server that was started by itself."""
    running = [(folder, state) for folder, state in running_states(_own(workspace)) if state.phase not in OVER]
    _end([folder for folder, _ in running])
    sweep(_kept(workspace))
    return [state.id for _, state in running]


def _find(workspace: Workspace, token: str, over_too: bool = False) -> tuple[ServiceFolder, ServiceState]:
    found = running_states(_kept(workspace))
    if not over_too:
        found = [item for item in found if item[1].phase not in OVER] or found
    matches = [item for item in found if item[1].id == token] or [
        item for item in found if item[1].id.startswith(token)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BenchError(f"'{token}' could be {', '.join(state.id for _, state in matches)}", "give more of the id")
    guess = did_you_mean(token, [state.id for _, state in found])
    hint = f"did you mean '{guess}'? " if guess else ""
    raise BenchError(f"there is no server '{token}'", f"{hint}see: bench servers ps", Exit.BAD_INPUT)


def _own(workspace: Workspace) -> list[Path]:
    return list(workspace.services.iterdir()) if workspace.services.is_dir() else []


def _kept(workspace: Workspace) -> list[Path]:
    """Those that were started by themselves, and those of runs."""
    return [*_own(workspace), *workspace.runs.glob("*/services/*")]


def _job(folder: ServiceFolder) -> str:
    """Of a keeper that waits to begin."""
    with contextlib.suppress(OSError, ValueError):
        return KeeperJob.model_validate_json(folder.job.read_bytes()).job_id
    return ""


def _shown(folder: ServiceFolder, state: ServiceState) -> dict[str, Any]:
    run_id = ""
    with contextlib.suppress(OSError, ValueError):
        run_id = ServiceSpec.model_validate_json(folder.spec.read_bytes()).run_id
    return {
        "id": state.id,
        "recipe": state.recipe,
        "version": state.version,
        "phase": "lost" if is_lost(state) else state.phase,
        "message": state.message,
        "endpoints": [item.endpoint for item in state.replicas],
        "metrics": [item.metrics for item in state.replicas if item.metrics],
        "pids": [item.pid for item in state.replicas],
        "job": state.job or _job(folder) or str(pid_of(state.keeper) or ""),
        "run_id": run_id,
        "host": state.host,
        "started": state.started,
        "checked": state.checked,
        "folder": str(folder.path),
    }
