"""`ws.clients`: load clients on nodes of their own, and runs whose load comes from them."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from benchhouse.api.execution import PlaceKeywords, RunListener, ScenarioText, Source, listener_of
from benchhouse.api.long_lived_servers import start_long_lived, stop_long_lived
from benchhouse.api.placement import Placement
from benchhouse.api.servers import Server, StoppedServers, described
from benchhouse.api.verb_group import VerbGroup
from benchhouse.documents.yaml_reader import load_yaml, parse_yaml
from benchhouse.evidence.writing import now
from benchhouse.load.clients import RECIPE
from benchhouse.runs.cleanup import sweep
from benchhouse.runs.service_control import running_states
from benchhouse.schema.errors import BenchError
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.service import OVER, ServiceSpec

if TYPE_CHECKING:
    from benchhouse.api.run import Run

SERVICE = "clients"
"""The name of the scenario's service that consists of its load clients."""


class Clients(VerbGroup):
    """Load clients. Each lends its node to one load at a time."""

    def start(
        self,
        count: int = 1,
        *,
        placement: Placement = Placement(),  # noqa: B008 - frozen
        progress: bool | RunListener = False,
    ) -> list[Server]:
        """Start clients, one job each if the placement uses jobs, and wait until all are ready. They run until `stop`.

        A scenario uses them by `services: {clients: {server: [ID, ...]}}` and `workload: {nodes: service:clients}`.
        """
        group = f"{RECIPE.name}-{secrets.token_hex(2)}"
        specs = [ServiceSpec(id=f"{group}-{number}", recipe=RECIPE, created=now()) for number in range(count)]
        return [
            described(*item) for item in start_long_lived(self._folder, specs, placement, listener_of(progress).note)
        ]

    def run(
        self,
        scenario: Source,
        *,
        count: int = 2,
        servers: Mapping[str, str] | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
        progress: bool | RunListener = False,
        **where: Unpack[PlaceKeywords],
    ) -> "Run":
        """Run a scenario whose load comes from `count` clients, which start simultaneously and are stopped after the
        run.

        `servers` maps services of the scenario to the ids of servers that were started before. `placement` is the
        placement of the clients; the trials, which merge the clients' measurements, run where the scenario specifies.
        """
        source = with_servers(scenario, servers or {})
        self._workspace.plan(_with_load_on(source, "others"), **where)  # mistakes are reported before anything starts
        ids = [client.id for client in self.start(count, placement=placement, progress=progress)]
        note = listener_of(progress).note
        note(f"up: load clients {', '.join(ids)}")
        try:
            placed = _with_load_on(with_servers(source, {SERVICE: ids}), f"service:{SERVICE}")
            return self._workspace.run(placed, progress=progress, new=True, **where)
        finally:
            self.stop(ids[0].rpartition("-")[0])
            note(f"down: load clients {', '.join(ids)}")

    def running(self) -> list[Server]:
        """Return the clients that are waiting for work or working."""
        states = running_states(list(self._folder.services.glob(f"{RECIPE.name}-*")))
        return [described(folder, state) for folder, state in states if state.phase not in OVER]

    def stop(self, client: str = "") -> StoppedServers:
        """Stop the clients whose id is, or starts with, `client`; by default all of them."""
        states = running_states(list(self._folder.services.glob(f"{RECIPE.name}-*")))
        chosen = [item for item in states if item[1].id.startswith(client) and item[1].phase not in OVER]
        if client and not chosen:
            raise BenchError(f"there is no load client '{client}'", "see: bench clients list")
        killed = stop_long_lived([folder for folder, _ in chosen])
        swept = sweep([folder.path for folder, _ in chosen])
        return StoppedServers(tuple(state.id for _, state in chosen), tuple(killed), swept)


def with_servers(source: Source, servers: Mapping[str, str | list[str]]) -> Source:
    """Return the scenario with services bound to servers that were started before; unchanged if `servers` is empty."""
    if not servers:
        return source
    data = content_of(source)
    named = {name: {"server": server} for name, server in servers.items()}
    return data | {"services": data.get("services", {}) | named}


def _with_load_on(source: Source, nodes: str) -> Source:
    data = content_of(source)
    workload = data.get("workload", {})
    if "nodes" in workload:
        raise BenchError("the scenario says itself where its load comes from: workload.nodes", "leave it out there")
    return data | {"workload": workload | {"nodes": nodes}}


def content_of(source: Source) -> dict[str, Any]:
    """Return the scenario as a mapping. Relative paths keep their meaning."""
    if isinstance(source, Scenario):
        return source.model_dump(mode="json", exclude_unset=True, by_alias=True)
    if isinstance(source, ScenarioText):
        return dict(parse_yaml(source.text, source.name).data or {})
    if not isinstance(source, str | os.PathLike):
        return dict(source)
    path = Path(source)
    data: dict[str, Any] = dict(load_yaml(path).data or {})
    return data | {"folder": str(path.absolute().parent / data.get("folder", ""))}
