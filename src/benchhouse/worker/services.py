"""Starts servers from recipes, watches them, and ends them with everything that they started."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from benchhouse.processes.probes import ServerProbe
from benchhouse.processes.programs import find_program, locate
from benchhouse.schema.container import Bind, ContainerEntry, parse_bind
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.image import Image, find_pinned
from benchhouse.schema.recipe import LOOPBACK, Recipe, Service, fill
from benchhouse.schema.secrets import make_up, resolve
from benchhouse.schema.service import Replica
from benchhouse.worker.output import Capture
from benchhouse.worker.server_logs import ServiceLogWriter


@dataclass(frozen=True)
class RecipeContainer:
    """Converts the commands of a recipe into those that run in its image."""

    recipe: Recipe
    path: Path
    image: Image

    def places(self) -> dict[str, str]:
        """Return the places of programs: the image's own PATH finds them, unless the recipe gives their path in it."""
        named = next((Path(item.rpartition(":")[2]).name for item in self.recipe.program if "*" not in item), "")
        return {"program": self.recipe.image_program or named, "python": "python3"}

    def command(self, arguments: Sequence[str], places: dict[str, str], gpus: bool) -> list[str]:
        """Return the command that checks the image and then runs `arguments` in it, with the server's folder and binds
        visible."""
        folder = places["folder"]
        binds, variables = [Bind(folder, folder), *find_binds(self.recipe, places)], tuple(self.recipe.environment)
        entry = ContainerEntry(str(self.path), self.image, binds, workdir=folder, gpus=gpus, variables=variables)
        try:
            return ["bash", "-c", entry.script([fill(word, places) for word in arguments]), "enter"]
        except BenchError as error:
            raise ExperimentFailed("bad_recipe", error.message) from error


def find_binds(recipe: Recipe, places: dict[str, str]) -> list[Bind]:
    """Return the binds of the recipe. Raises ExperimentFailed if a source is missing."""
    try:
        binds = [parse_bind(fill(bind, places)) for bind in recipe.binds]
    except BenchError as error:
        raise ExperimentFailed("bad_bind", f"{recipe.name}: {error.message}") from error
    for bind in binds:
        if not Path(bind.source).exists():
            raise ExperimentFailed("no_such_bind", f"{recipe.name} needs {bind.source}, which is not there")
    return binds


def find_container(recipe: Recipe, images: str) -> RecipeContainer:
    """Return the recipe's pinned image. Raises ExperimentFailed with the command that pulls it."""
    image = recipe.pinned_image
    pinned = find_pinned(Path(images), image) if images else None
    lack = f"{recipe.name}: its program is not here, and"
    if pinned is None:
        where = f"its image is not in {images or 'any folder'}: bench images pull {image}"
        where += f"; or the program: {recipe.install}" if recipe.install else ""
        raise ExperimentFailed("no_such_program", f"{lack} {where}")
    if not (shutil.which("apptainer") or shutil.which("singularity")):
        raise ExperimentFailed("no_such_program", f"{lack} without apptainer on PATH its image can't be entered")
    return RecipeContainer(recipe, *pinned)


_GRACE_S = 10.0
_TAIL_LINES = 15
_NOBODY = 65534


@dataclass(frozen=True)
class RunningServer:
    """A running server, with what is needed to probe it and to end it."""

    recipe: Recipe
    process: "subprocess.Popen[bytes]"
    service: Service
    probe: ServerProbe


class Services:
    """Starts servers, each in its own session and folder, and ends them all, the last one first."""

    def __init__(
        self, folder: Path, logs: ServiceLogWriter, secret: str = "", images: str = "", host: str = LOOPBACK
    ) -> None:
        """`images` is the folder of pinned images, `host` is the address on which servers listen."""
        self._folder, self._logs, self._images, self._host = folder, logs, images, host
        self._secret = secret or make_up()
        self.running: list[RunningServer] = []

    def start(self, recipe: Recipe, name: str = "", parameters: Mapping[str, str] | None = None) -> Service:
        """Start one server and wait until it is up. Raises ExperimentFailed, with the end of its log."""
        return self.start_all(recipe, name, parameters or {}, 1)[0]

    def start_all(
        self,
        recipe: Recipe,
        name: str,
        parameters: Mapping[str, str],
        replicas: int,
        first: int = 0,
        meanwhile: Callable[[RunningServer], None] = lambda item: None,
    ) -> list[Service]:
        """Start several servers of one recipe at once, and wait until all are up; `first` is the number of the first
        one. `meanwhile` is called with each started server, because it may need something else to be started before it
        can come up."""
        chosen = _chosen(recipe, parameters)
        began = monotonic()
        begun: list[RunningServer] = []
        try:
            for replica in range(first, first + replicas):
                begun.append(self._begin(recipe, self._free_name(name or recipe.name, begun), chosen, replica))
                meanwhile(begun[-1])
            up = []
            for item in begun:
                if not item.probe.wait(item.process.poll):
                    raise self._not_up(item)
                up.append(replace(item, service=replace(item.service, start_s=monotonic() - began)))
        except BaseException:
            _end_all(begun)
            raise
        self.running += up
        return [item.service for item in up]

    def close(self) -> str:
        """End all servers. Return how the first one that ended unexpectedly did so, otherwise an empty text."""
        died = self.died()
        _end_all(self.running)
        self.running.clear()
        return died

    def died(self) -> str:
        """Return how the first server that ended on its own did so; empty while all run."""
        for item in self.running:
            if (code := item.process.poll()) is not None:
                return f"{item.service.name} ended {_how(code)} during the trial:\n{self.tail(item.service)}"
        return ""

    def tail(self, service: Service, lines: int = _TAIL_LINES) -> str:
        return self._logs.tail(service.name, lines)

    def _free_name(self, name: str, begun: Sequence[RunningServer]) -> str:
        taken = {item.service.name for item in (*self.running, *begun)}
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(1)))
        return next(each for each in names if each not in taken)

    def _begin(self, recipe: Recipe, name: str, chosen: dict[str, str], replica: int) -> RunningServer:
        folder = self._folder / name
        folder.mkdir(parents=True)
        try:
            places = {"folder": str(folder), "python": sys.executable, "threads": str(len(os.sched_getaffinity(0)))}
            places |= {"secret": self._secret, "replica": str(replica), "host": self._host}
            places |= {name: fill(resolve(value, os.environ, name), places) for name, value in chosen.items()}
            places |= {port: str(number) for port, number in _ports(recipe, replica, self._host).items()}
            container: RecipeContainer | None = None
            if (
                recipe.pinned_image and "program" not in chosen and not locate(recipe.program)
            ):  # a program on this machine has priority
                container = find_container(recipe, self._images)
                places |= container.places()
            else:
                places["program"] = find_program(recipe, chosen.get("program"))
                _check_binds(recipe, places)
            for path, text in recipe.files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(fill(text, places), encoding="utf-8")
            environment = resolve(recipe.environment, os.environ)
            environment = os.environ | {key: fill(value, places) for key, value in environment.items()}
            began = monotonic()
            try:
                log = self._logs.open(name)
            except ValueError as error:
                raise ExperimentFailed("bad_recipe_name", str(error)) from error
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            how |= {"env": environment, "cwd": folder}
            try:
                for line in recipe.prepare:
                    self._prepare(name, _command(recipe, line, places, container), recipe.ready.timeout, how)
                command = _command(recipe, recipe.command, places, container)
                process = subprocess.Popen(command, start_new_session=True, **how)
            finally:
                os.close(log)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        endpoint = fill(recipe.endpoint, places)
        metrics, image = fill(recipe.metrics, places), container.image.sha256 if container else ""
        service = Service(recipe.name, name, endpoint, process.pid, folder, monotonic() - began, metrics, image)
        ask = _command(recipe, recipe.ready.command, places, container) if container and recipe.ready.command else None
        probe = ServerProbe(recipe.ready, endpoint, places, lambda lines: self.tail(service, lines), ask)
        return RunningServer(recipe, process, service, probe)

    def _prepare(self, name: str, command: list[str], limit_s: float, how: dict[str, Any]) -> None:
        try:
            code = subprocess.run(command, check=False, timeout=limit_s, **how).returncode
        except subprocess.TimeoutExpired:
            message = f"{name} was not prepared within {limit_s:g} s ({command[-1]})"
            raise ExperimentFailed("server_not_ready", message) from None
        if code:
            tail = self._logs.tail(name, _TAIL_LINES)
            raise ExperimentFailed("server_died", f"{name} could not be prepared ({command[-1]}):\n{tail}")

    def _not_up(self, item: RunningServer) -> ExperimentFailed:
        name, tail = item.service.name, self.tail(item.service)
        if (code := item.process.poll()) is not None:
            return ExperimentFailed("server_died", f"{name} ended {_how(code)} before it was ready:\n{tail}")
        flaps = f"; {item.probe.flaps}" if item.probe.flaps else ""
        not_up = f"{name} was not up within {item.recipe.ready.timeout:g} s ({item.probe.question}){flaps}"
        return ExperimentFailed("server_not_ready", f"{not_up}:\n{tail}")


@contextlib.contextmanager
def single_server(
    recipe: Recipe, folder: Path, parameters: Mapping[str, str] | None = None, images: str = ""
) -> Iterator[Service]:
    """Start a server without a trial, for benchmarks and tests of its clients; its log is in `folder/logs`."""
    logs = Capture.begin(folder, "", streams=())
    services = Services(folder / "services", logs, images=images)
    with contextlib.closing(logs), logs.pumping(), contextlib.closing(services):
        yield services.start(recipe, parameters=parameters)


def describe(service: Service, blank: Callable[[str], str]) -> Replica:
    """Describe a server for files that others read: `blank` removes the secret."""
    endpoint, metrics = blank(service.endpoint), blank(service.metrics)
    return Replica(endpoint=endpoint, pid=service.pid, metrics=metrics, image=service.image, start_s=service.start_s)


def _end_all(begun: Sequence[RunningServer]) -> None:
    for item in reversed(begun):
        end(item.process, item.recipe)
        shutil.rmtree(item.service.folder, ignore_errors=True)


def _how(code: int) -> str:
    if code >= 0:
        return f"with {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def _chosen(recipe: Recipe, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the recipe's parameters as chosen. Raises ExperimentFailed for an unknown or missing parameter."""
    unknown = sorted(parameters.keys() - recipe.parameters.keys() - {"program"})
    chosen = {name: value for name, value in {**recipe.parameters, **parameters}.items() if value is not None}
    missing = sorted(recipe.parameters.keys() - chosen.keys())
    if unknown or missing:
        what = f"has no parameter {unknown[0]!r}" if unknown else f"needs the parameter {missing[0]!r}"
        has = ", ".join(recipe.parameters) or "none"
        raise ExperimentFailed("bad_parameters", f"{recipe.name} {what}; it has: {has}")
    return chosen


def _check_binds(recipe: Recipe, places: dict[str, str]) -> None:
    """Check the binds of a program without a container: sources must exist, and destinations must be the same paths."""
    for bind in find_binds(recipe, places):
        if Path(bind.source) != Path(bind.destination):
            raise ExperimentFailed(
                "no_container",
                f"{recipe.name} wants {bind.source} as {bind.destination}, which only a container can show it: as a "
                "program, give both the same path",
            )


def _command(
    recipe: Recipe, arguments: Sequence[str], places: dict[str, str], container: RecipeContainer | None
) -> list[str]:
    if container is None:
        command = [fill(word, places) for word in arguments]
    else:
        command = container.command(arguments, places, gpus=bool(recipe.resources and recipe.resources.gpus))
    if recipe.refuses_root and os.geteuid() == 0:  # user `nobody` inside; outside, the user who owns the folder
        if not shutil.which("unshare"):
            raise ExperimentFailed(
                "refuses_root",
                f"{recipe.name} does not run as root, and there is no `unshare` to make it somebody else: "
                "run bench as an ordinary user",
            )
        command = ["unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--", *command]
    return command


def end(process: "subprocess.Popen[bytes]", recipe: Recipe) -> None:
    """End the whole session of a server: first with its stop signal, then with SIGKILL."""
    for number in (signal.Signals[f"SIG{recipe.stop_signal}"], signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ports(recipe: Recipe, replica: int, host: str) -> dict[str, int]:
    """Return free ports for those that are 0 in the recipe; otherwise the given one plus the number of the replica.

    All are different: each is held until the last one is known.
    """
    with contextlib.ExitStack() as held:
        ports = {}
        for name, number in recipe.ports.items():
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
            wanted = number + replica if number else 0
            try:
                probe.bind((host, wanted))
            except OSError as error:
                raise ExperimentFailed(
                    "port_taken",
                    f"{recipe.name} wants port {wanted} ({name}), and something else has it ({error.strerror}): "
                    "0 takes any that is free",
                ) from error
            ports[name] = int(probe.getsockname()[1])
        return ports
