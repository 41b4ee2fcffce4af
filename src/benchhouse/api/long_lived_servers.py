"""Servers and load clients that run until they are stopped: started together, found by their folders, and stopped."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchhouse.api.placement import Placement, keepers_of
from benchhouse.processes.services import job_of
from benchhouse.runs.cleanup import sweep
from benchhouse.runs.server_images import refusal
from benchhouse.runs.service_control import settle, start_jobs, start_keeper, stop_keepers, wait_ready
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.service import ServiceFolder, ServiceSpec, ServiceState
from benchhouse.sites import places
from benchhouse.sites.image_lock import read_lock

_HINT = "give --executor slurm, or --nodes 1 there"


def start_long_lived(
    workspace: WorkspaceFolder, specs: Sequence[ServiceSpec], placement: Placement, note: Callable[[str], None]
) -> list[tuple[ServiceFolder, ServiceState]]:
    """Start all, and wait until all are ready. If one fails or the wait is interrupted, all are stopped again."""
    from benchhouse.worker.service_supervisor import keep

    profile = places.site(workspace, placement.site)
    keepers = placement.keepers(profile)
    sweep(every_folder(workspace))
    folders = {spec.id: ServiceFolder(workspace.services / spec.id) for spec in specs}
    more: dict[str, Any] = {"images": places.images_if_known(profile)}
    if keepers:
        more |= {"owner": "files", "reach": "network", "interface": profile.network.interface}
        more |= {"time": placement.time_s, "node": placement.node}
    placed, digests = [], read_lock(workspace.image_lock).digests
    for spec in specs:
        pinned = spec.recipe.with_pin(digests)
        if refused := refusal(pinned, spec.parameters, profile):
            raise refused
        recipe = pinned.model_copy(update={"resources": placement.asked(spec.recipe.resources)})
        if nodes := placement.resources.get("nodes"):
            recipe = recipe.model_copy(update={"scale": recipe.scale.model_copy(update={"nodes": nodes})})
        if fault := recipe.nodes_fault(spec.replicas):
            raise BenchError(fault, "leave out --nodes, give --replicas, or see: bench servers show RECIPE")
        if recipe.scale.nodes > 1 and keepers is None:
            raise BenchError(f"the recipe {recipe.name} needs {recipe.scale.nodes} nodes: here is one", _HINT)
        placed.append((folders[spec.id], spec.model_copy(update={"recipe": recipe} | more)))
    try:
        if keepers:
            start_jobs(placed, keepers, (sys.executable,))
        else:
            for folder, spec in placed:
                start_keeper(folder, spec, keep)
        states = wait_ready(folders, note, keepers)
    except BaseException:
        stop_long_lived(list(folders.values()))
        raise
    return [(folders[name], state) for name, state in states.items()]


def stop_long_lived(folders: Sequence[ServiceFolder]) -> list[int]:
    """Stop their jobs and processes. Return the pids of those that had to be killed."""
    jobs: dict[str, list[ServiceFolder]] = {}
    for folder in folders:
        if job := job_of(folder):
            jobs.setdefault(job.executor, []).append(folder)
    for executor, job_folders in jobs.items():
        if keepers := keepers_of(executor, Assignment()):
            keepers.stop(job_folders)
            settle(job_folders, "its job was ended", "stopped")
    return stop_keepers(folder for folder in folders if not folder.job.exists())


def every_folder(workspace: WorkspaceFolder) -> list[Path]:
    """Return the folders of all servers that were started on their own or belong to runs, whatever became of them."""
    return [*workspace.services.glob("*"), *workspace.runs.glob("*/services/*")]
