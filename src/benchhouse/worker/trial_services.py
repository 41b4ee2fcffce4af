"""The servers of one trial: those that it starts itself, those that were attached to its run, and those outside."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from benchhouse.evidence.writing import write_model
from benchhouse.processes.services import end_of
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.recipe import LOOPBACK, Recipe, Service
from benchhouse.schema.secrets import REDACTED
from benchhouse.schema.service import SECRET, Addresses, LiveServices, Replica, ServiceFolder, TrialService, read_state
from benchhouse.worker import nodes
from benchhouse.worker.remote_services import RemoteServices
from benchhouse.worker.server_logs import Logs
from benchhouse.worker.service_watch import Watch
from benchhouse.worker.services import Services, describe


class TrialServices:
    """Starts, finds and watches; `close` ends what was started here."""

    def __init__(
        self,
        folder: Path,
        trial: TrialFolder,
        logs: Logs,
        give_up: Callable[[str], None],
        images: str = "",
        cpus: int = 1,
        interface: str | None = None,
    ) -> None:
        """On several nodes, servers listen where the others reach them: on `interface`, where it is given."""
        self._trial = trial
        self._secret = os.environ.get(SECRET, "")
        self.nodes = nodes.names()
        host = nodes.address(interface, nodes.others()) if len(self.nodes) > 1 else LOOPBACK
        self._services = Services(folder, logs, self._secret, images, host)
        self._elsewhere = RemoteServices(trial.elsewhere, logs, cpus, interface, images)
        self.exposed: list[str] = []  # servers that anybody in the network may use
        self._watch = Watch(give_up)
        self._live: dict[str, Replica] = {}

    def start(self, recipe: Recipe) -> Service:
        started = self._services.start(recipe)
        self._follow([started], self._services.died)
        if len(self.nodes) > 1:
            self._note_exposed(started.name, recipe)
        return started

    def begin(self, wanted: Mapping[str, TrialService]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """The endpoints of all services of a scenario, and what is worth keeping of them as evidence."""
        endpoints: dict[str, list[str]] = {}
        facts: dict[str, Any] = {}
        for name, use in wanted.items():
            if use.use.endpoint is not None:
                endpoints[name], facts[name] = [use.use.endpoint], {"mode": "external"}
            elif use.folder is not None:
                folder = ServiceFolder(Path(use.folder))
                endpoints[name], facts[name] = self._attached(name, folder)
                if folder.job.exists() and use.recipe:
                    self._note_exposed(name, use.recipe)
            else:
                assert use.recipe is not None
                began = monotonic()
                if use.use.node:
                    started, where = self._on_others(name, use)
                else:
                    started = self._services.start_all(use.recipe, name, use.parameters, use.replicas)
                    self._follow(started, self._services.died)
                    where = self.nodes[:1]
                endpoints[name] = [item.endpoint for item in started]
                facts[name] = {"mode": "embedded", "recipe": use.recipe.name, "start_s": monotonic() - began}
                facts[name] |= {"image": started[0].image} if started[0].image else {}
                if len(self.nodes) > 1:
                    facts[name] |= {"nodes": where, "listens": "network", "password": use.recipe.guarded}
                    self._note_exposed(name, use.recipe)
        return endpoints, facts

    def _note_exposed(self, name: str, recipe: Recipe) -> None:
        if recipe.reachable and not recipe.guarded:
            self.exposed.append(name)

    def _on_others(self, name: str, use: TrialService) -> tuple[list[Service], list[str]]:
        """Replicas on the nodes that the scenario names, in turn."""
        assert use.recipe is not None
        others = self.nodes[1:] if use.use.node == "others" else self.nodes[int(use.use.node) :][:1]
        if not others:
            raise ExperimentFailed(
                "too_few_nodes",
                f"{name} should run on node {use.use.node}, but this trial has {len(self.nodes)}: "
                "give it more, resources: {nodes: N}",
            )
        where = [others[number % len(others)] for number in range(use.replicas)]
        started = self._elsewhere.start_all(use.recipe, name, use.parameters, where)
        self._follow(started, self._elsewhere.died)
        return started, where

    def close(self) -> str:
        self._watch.close()
        died = self._elsewhere.close()
        died = self._services.close() or died
        self._trial.services.unlink(missing_ok=True)
        return died

    def _follow(self, started: list[Service], died: Callable[[], str]) -> None:
        for item in started:
            self._watch.process(item.pid, died)
            self._live[item.name] = describe(item, self._blank)
        write_model(self._trial.services, LiveServices(services=self._live), sync=False)

    def _attached(self, name: str, folder: ServiceFolder) -> tuple[list[str], dict[str, Any]]:
        state = read_state(folder)
        if reason := end_of(name, folder) if state else f"{name} was never started":
            raise ExperimentFailed("server_died", reason)
        assert state is not None
        if state.phase == "starting":
            reason = state.message or "it is still starting"
            raise ExperimentFailed("server_not_ready", f"{name} was not up in time: {reason}")
        self._watch.folder(name, folder)
        facts = {"mode": "attached", "recipe": state.recipe, "version": state.version, "started": state.started}
        if state.phase == "unhealthy":
            facts["unhealthy"] = state.message
        return Addresses.model_validate_json(folder.endpoints.read_bytes()).endpoints, facts

    def _blank(self, text: str) -> str:
        return text.replace(self._secret, REDACTED) if self._secret else text
