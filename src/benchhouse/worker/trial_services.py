"""The servers of one trial: those that it starts itself, those that were attached to its run, and those outside."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from benchhouse.evidence.writing import write_model
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.recipe import Recipe, Service
from benchhouse.schema.secrets import REDACTED
from benchhouse.schema.service import (
    SECRET,
    Addresses,
    LiveServices,
    Replica,
    ServiceFolder,
    TrialService,
    ended,
    read_state,
)
from benchhouse.worker.services import Services
from benchhouse.worker.watching import Watch
from benchhouse.worker.words import Logs


class TrialServices:
    """Starts, finds and watches; `close` ends what was started here."""

    def __init__(
        self, folder: Path, trial: TrialFolder, logs: Logs, give_up: Callable[[str], None], images: str = ""
    ) -> None:
        self._trial = trial
        self._secret = os.environ.get(SECRET, "")
        self._services = Services(folder, logs, self._secret, images)
        self._watch = Watch(give_up)
        self._live: dict[str, Replica] = {}

    def start(self, recipe: Recipe) -> Service:
        started = self._services.start(recipe)
        self._follow([started])
        return started

    def begin(self, wanted: Mapping[str, TrialService]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """The endpoints of all services of a scenario, and what is worth keeping of them as evidence."""
        endpoints: dict[str, list[str]] = {}
        facts: dict[str, Any] = {}
        for name, use in wanted.items():
            if use.use.endpoint is not None:
                endpoints[name], facts[name] = [use.use.endpoint], {"mode": "external"}
            elif use.folder is not None:
                endpoints[name], facts[name] = self._attached(name, ServiceFolder(Path(use.folder)))
            else:
                assert use.recipe is not None
                began = monotonic()
                started = self._services.start_all(use.recipe, name, use.parameters, use.replicas)
                self._follow(started)
                endpoints[name] = [item.endpoint for item in started]
                facts[name] = {"mode": "embedded", "recipe": use.recipe.name, "start_s": monotonic() - began}
                facts[name] |= {"image": started[0].image} if started[0].image else {}
        return endpoints, facts

    def close(self) -> str:
        self._watch.close()
        died = self._services.close()
        self._trial.services.unlink(missing_ok=True)
        return died

    def _follow(self, started: list[Service]) -> None:
        for item in started:
            self._watch.process(item.pid, self._services.died)
            self._live[item.name] = Replica(
                endpoint=self._blank(item.endpoint),
                pid=item.pid,
                metrics=self._blank(item.metrics),
                start_s=item.start_s,
            )
        write_model(self._trial.services, LiveServices(services=self._live), sync=False)

    def _attached(self, name: str, folder: ServiceFolder) -> tuple[list[str], dict[str, Any]]:
        state = read_state(folder)
        if said := ended(name, folder) if state else f"{name} was never started":
            raise ExperimentFailed("server_died", said, retryable=False)
        assert state is not None
        self._watch.folder(name, folder)
        facts = {"mode": "attached", "recipe": state.recipe, "version": state.version, "started": state.started}
        if state.phase == "unhealthy":
            facts["unhealthy"] = state.message
        return Addresses.model_validate_json(folder.endpoints.read_bytes()).endpoints, facts

    def _blank(self, text: str) -> str:
        return text.replace(self._secret, REDACTED) if self._secret else text
