"""Start servers, monitors, and clients in order for the load of a scenario, and stop them in reverse order."""

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.api.clients import content_of, with_servers
from benchhouse.api.execution import PlaceKeywords, RunListener, Source, SubmittedRun, listener_of
from benchhouse.api.placement import Placement
from benchhouse.api.servers import StartedServer
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.service import mentioned

if TYPE_CHECKING:
    from benchhouse.api.run import Run
    from benchhouse.api.workspace import Workspace


@dataclass(frozen=True)
class OfferedLoad:
    """The load that is sent to a server that was started for it."""

    scenario: Source
    """The scenario addresses the server as `service:NAME`: the name of its service with this recipe, otherwise the
    recipe's."""
    clients: int = 1
    """Number of load clients, each a job if the server is one; 0: the load comes from the trials themselves."""


def start(
    workspace: "Workspace",
    what: str,
    parameters: Mapping[str, str],
    load: OfferedLoad | None,
    placement: Placement | None,
    progress: bool | RunListener,
) -> "SubmittedRun | StartedServer | Run":
    """Start a scenario in the background, or the server of a recipe, or that server with its load."""
    where = placement or Placement()
    if what.endswith((".yaml", ".yml")) and "scenario" in (load_yaml(Path(what)).data or {}):
        if parameters or load or where != Placement():
            raise BenchError(f"{what} is a scenario, which says itself what runs where", "give a recipe, or no options")
        return workspace.submit(what, progress=progress)
    if load is None:
        return workspace.servers.start(what, parameters, placement=where, progress=progress)
    return _run_with(workspace, what, parameters, load, where, progress)


def _run_with(
    workspace: "Workspace",
    recipe: str,
    parameters: Mapping[str, str],
    load: OfferedLoad,
    placement: Placement,
    progress: bool | RunListener,
) -> "Run":
    """Start the server of a recipe, a monitor of its node, and the clients; run the scenario; stop all in reverse
    order, whatever happens in between. Everything that can be wrong with the scenario is reported before anything is
    started."""
    note, settings = listener_of(progress).note, PlaceKeywords(site=placement.site)
    name, source = _with_recipe(load.scenario, recipe, parameters)
    workspace.plan(source, **settings)
    beside = replace(placement, resources={}, node=None)
    with ExitStack() as up:
        server = workspace.servers.start(recipe, parameters, placement=placement, progress=progress)
        up.callback(_down, note, f"server {server.id}", workspace.servers.stop, server.id)
        note(f"up: server {server.id}{f', job {server.job} on {server.host}' if placement.executor else ''}")
        monitor = workspace.monitors.start_for_server(server.id)
        up.callback(_down, note, f"monitor {monitor.monitor_id}", workspace.monitors.stop, monitor.monitor_id)
        note(f"up: monitor {monitor.monitor_id} of {monitor.host}")
        servers = {name: server.id}
        if not load.clients:
            return workspace.run(with_servers(source, servers), progress=progress, new=True, **settings)
        return workspace.clients.run(
            source, count=load.clients, servers=servers, placement=beside, progress=progress, **settings
        )


def _with_recipe(source: Source, recipe: str, parameters: Mapping[str, str]) -> tuple[str, Source]:
    """Return the scenario's name for the server, and the scenario as it would start that server itself."""
    data = content_of(source)
    services: dict[str, Any] = data.get("services") or {}
    names = [name for name, use in services.items() if isinstance(use, dict) and use.get("recipe") == recipe]
    if len(names) > 1:
        raise BenchError(f"several services have the recipe {recipe}: {', '.join(names)}", "leave one in the scenario")
    name = names[0] if names else recipe
    asked = {name for key in ("target", "targets", "workload", "axes") for name in mentioned(data.get(key))}
    if name not in asked:
        raise BenchError(
            f"nothing in the scenario asks for service:{name}, so its load would go elsewhere",
            f"name its address in the target: service:{name}",
        )
    use = {"recipe": recipe} | ({"parameters": dict(parameters)} if parameters else {})
    return name, data | {"services": services | {name: use}}


def _down(note: Any, what: str, stop: Any, item: str) -> None:
    with contextlib.suppress(BenchError):  # it has ended on its own, and the run reports that
        stop(item)
    note(f"down: {what}")
