"""The servers of one trial: those that it starts, those attached to its run, and external ones."""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, BinaryIO

from benchhouse.evidence.writing import now, write_model
from benchhouse.processes.python_command import python_command
from benchhouse.processes.services import end_of
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.recipe import LOOPBACK, Recipe, Service
from benchhouse.schema.secrets import blanker
from benchhouse.schema.service import (
    OVER,
    SECRET,
    Addresses,
    LiveServices,
    Replica,
    ServiceFolder,
    ServiceSpec,
    TrialService,
    read_state,
)
from benchhouse.worker import nodes
from benchhouse.worker.server_logs import ServiceLogWriter
from benchhouse.worker.server_pods import PodsBehind
from benchhouse.worker.service_watch import ServiceWatch
from benchhouse.worker.services import Services, describe

_LOOK_S, _SLOWEST_LOOK_S = 0.02, 0.2
_STEP_S = 120.0  # for the batch system to start a step, in addition to the start timeout of the server
_SEEN_S = 3.0  # a file written on another node may become visible later than the end of its writer
_END_S = 30.0
_ECHO_S = 0.25


@dataclass
class RemoteServer:
    """One server of the trial on another node."""

    name: str
    node: str
    folder: ServiceFolder
    recipe: Recipe
    step: "subprocess.Popen[bytes]"
    log: BinaryIO  # into the trial's own logs
    server: Replica | None = None  # None until it is up
    read: int = 0  # bytes of the remote log that were already copied

    def echo(self) -> None:
        """Copy what the server has printed since the last call."""
        with contextlib.suppress(OSError), (self.folder.path / "logs" / f"{self.name}.log").open("rb") as file:
            file.seek(self.read)
            while block := file.read(1 << 16):
                self.read += len(block)
                self.log.write(block)
            self.log.flush()


class RemoteServices:
    """Starts, follows, and ends servers on other nodes."""

    def __init__(self, folder: Path, logs: ServiceLogWriter, cpus: int, interface: str | None, images: str) -> None:
        """`folder` must be visible to all nodes; everything created below it is removed again."""
        self._folder, self._logs, self._cpus, self._interface = folder, logs, cpus, interface
        self._images = images
        self._kept: list[RemoteServer] = []
        self._closed = threading.Event()
        self._echo = threading.Thread(target=self._listen, name="echo", daemon=True)

    def start_all(
        self, recipe: Recipe, name: str, parameters: Mapping[str, str], nodes: Sequence[str], first: int = 0
    ) -> list[Service]:
        """Start one replica on each of `nodes`, which may contain duplicates. Returns when all are up. `first` is the
        number of the first replica."""
        began = monotonic()
        mine = [self._begin(recipe, name, parameters, number, node) for number, node in enumerate(nodes, first)]
        if not self._echo.is_alive():
            self._echo.start()
        deadline = began + recipe.ready.timeout + _STEP_S
        return [self._wait(item, began, deadline) for item in mine]

    def server(self, name: str) -> Replica | None:
        """Return the process of a server on its node; None if no such server was started."""
        return next((item.server for item in self._kept if item.name == name), None)

    def died(self) -> str:
        """Return how the first server that ended on its own did so; empty while all run."""
        return next((self._last_words(item) for item in self._kept if item.step.poll() is not None), "")

    def close(self) -> str:
        """End all servers. Return how one had ended on its own, otherwise an empty text."""
        died = self.died()
        for item in self._kept:
            assert item.step.stdin is not None
            with contextlib.suppress(OSError):
                item.step.stdin.close()
        deadline = monotonic() + _END_S
        for item in self._kept:
            with contextlib.suppress(subprocess.TimeoutExpired):
                item.step.wait(max(0.0, deadline - monotonic()))
            item.step.kill()  # Slurm ends the step with it
            item.step.wait()
        self._closed.set()
        if self._echo.is_alive():
            self._echo.join()
        for item in self._kept:
            item.echo()
            item.log.close()
        self._kept.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        return died

    def _begin(self, recipe: Recipe, name: str, parameters: Mapping[str, str], number: int, node: str) -> RemoteServer:
        own = f"{name}-{number}" if number else name
        folder = ServiceFolder(self._folder / own)
        folder.path.mkdir(parents=True, mode=0o700)
        spec = ServiceSpec(
            images=self._images,
            id=own,
            recipe=recipe,
            parameters=dict(parameters),
            replica=number,
            owner="stdin",
            reach="network",
            interface=self._interface,
            created=now(),
        )
        write_model(folder.spec, spec, sync=False)
        keeper = [*python_command(), "-m", "benchhouse.worker", "--keep", str(folder.path)]
        command = [*nodes.command_on(node, self._cpus), *keeper]
        with folder.log.open("wb") as log:
            step = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        kept = RemoteServer(own, node, folder, recipe, step, os.fdopen(self._logs.open(own), "wb"))
        self._kept.append(kept)
        return kept

    def _wait(self, item: RemoteServer, began: float, deadline: float) -> Service:
        pause_s = _LOOK_S
        while (
            (state := read_state(item.folder)) is None
            or state.phase == "starting"
            or not item.folder.endpoints.exists()
        ):
            if item.step.poll() is not None or (state and state.phase in OVER):
                raise ExperimentFailed("server_died", self._last_words(item))
            if monotonic() > deadline:
                line = _last_line(item.folder.log)
                raise ExperimentFailed("server_not_ready", f"{item.name} was not up on {item.node} in time{line}")
            sleep(pause_s)
            pause_s = min(pause_s * 1.2, _SLOWEST_LOOK_S)
        (server,) = Addresses.model_validate_json(item.folder.endpoints.read_bytes()).servers
        item.server = state.replicas[0].model_copy(update={"node": item.node})
        there, name = item.server, item.recipe.name
        took_s = monotonic() - began
        return Service(
            name, item.name, server.endpoint, item.step.pid, item.folder.path, took_s, there.metrics, there.image
        )

    def _last_words(self, item: RemoteServer) -> str:
        """Return the message that its service supervisor wrote at the end, or otherwise how the supervisor ended."""
        deadline = monotonic() + _SEEN_S
        while True:
            state = read_state(item.folder)
            if state is not None and state.phase in OVER:
                return f"{item.name} on {item.node}: {state.message or state.phase}"
            if monotonic() > deadline:
                end = f"its keeper ended with {item.step.wait()}{_last_line(item.folder.log)}"
                return f"{item.name} on {item.node} is over: {end}"
            sleep(_LOOK_S)

    def _listen(self) -> None:
        while not self._closed.wait(_ECHO_S):
            for item in list(self._kept):
                item.echo()


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").strip().splitlines()
        return f" ({lines[-1]})" if lines else ""
    return ""


class TrialServices:
    """Starts, finds, and watches the servers of a trial; `close` ends what was started here."""

    def __init__(
        self,
        folder: Path,
        trial: TrialFolder,
        logs: ServiceLogWriter,
        give_up: Callable[[str], None],
        images: str = "",
        cpus: int = 1,
        interface: str | None = None,
    ) -> None:
        """On several nodes, servers listen where the others can reach them: on `interface` if it is given."""
        self._trial = trial
        secret = os.environ.get(SECRET, "")
        self._blank = blanker([secret] if secret else [])
        self.nodes = nodes.names()
        host = nodes.address(interface, nodes.others()) if len(self.nodes) > 1 else LOOPBACK
        self._services = Services(folder, logs, secret, images, host)
        self._elsewhere = RemoteServices(trial.elsewhere, logs, cpus, interface, images)
        self.exposed: list[str] = []  # servers that anyone in the network can use
        self.pods = PodsBehind()
        self._watch = ServiceWatch(give_up)
        self._live: dict[str, Replica] = {}

    def start(self, recipe: Recipe) -> Service:
        started = self._services.start(recipe)
        self._follow([started], self._services.died)
        if len(self.nodes) > 1:
            self._note_exposed(started.name, recipe)
        return started

    def begin(self, wanted: Mapping[str, TrialService]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return the endpoints of all services of a scenario, and facts about them for the evidence."""
        endpoints: dict[str, list[str]] = {}
        facts: dict[str, Any] = {}
        for name, use in wanted.items():
            if use.pods is not None:
                endpoints[name], facts[name] = self.pods.begin(name, Path(use.pods))
            elif use.use.endpoint is not None:
                endpoints[name], facts[name] = [use.use.endpoint], {"mode": "external"}
            elif use.folders:
                answers = [self._attached(name, folder, use) for folder in use.folders]
                endpoints[name], facts[name] = [url for urls, _ in answers for url in urls], answers[0][1]
                if use.recipe and any(folder.job.exists() for folder in use.folders):
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
                facts[name] |= use.recipe.image_facts(started[0].image)
                if len(self.nodes) > 1:
                    facts[name] |= {"nodes": where, "listens": "network", "password": use.recipe.guarded}
                    self._note_exposed(name, use.recipe)
        return endpoints, facts

    def _note_exposed(self, name: str, recipe: Recipe) -> None:
        if recipe.reachable and not recipe.guarded:
            self.exposed.append(name)

    def _on_others(self, name: str, use: TrialService) -> tuple[list[Service], list[str]]:
        """Start replicas on the nodes that the scenario names, in turn."""
        assert use.recipe is not None
        others = self.nodes[1:] if use.use.node == "others" else self.nodes[int(use.use.node or 0) :][:1]
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
            self._live[item.name] = self._elsewhere.server(item.name) or describe(item, self._blank)
        write_model(self._trial.services, LiveServices(services=self._live), sync=False)

    def _attached(self, name: str, folder: ServiceFolder, use: TrialService) -> tuple[list[str], dict[str, Any]]:
        state = read_state(folder)
        if reason := end_of(name, folder) if state else f"{name} was never started":
            raise ExperimentFailed("server_died", reason)
        assert state is not None
        if state.phase == "starting":
            reason = state.message or "it is still starting"
            raise ExperimentFailed("server_not_ready", f"{name} was not up in time: {reason}")
        if not (use.recipe and use.recipe.expendable):
            self._watch.folder(folder.path.name if use.others else name, folder)
        facts = {"mode": "attached", "recipe": state.recipe, "version": state.version, "started": state.started}
        if use.recipe and state.replicas:
            facts |= use.recipe.image_facts(state.replicas[0].image)
        if state.phase == "unhealthy":
            facts["unhealthy"] = state.message
        return Addresses.model_validate_json(folder.endpoints.read_bytes()).endpoints, facts
