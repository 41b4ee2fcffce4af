"""Servers of one trial: started from recipes by the experiment that needs them, ended with it."""

import contextlib
import glob
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from urllib.error import HTTPError
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, build_opener

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Ready, Recipe, Service, fill

_GRACE_S = 10.0
_TAIL_LINES = 15
_NOBODY = 65534


class Services:
    """Starts servers, each in a session and a folder of its own, and ends them all, the last one first."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self._running: list[tuple[Recipe, subprocess.Popen[bytes], Service]] = []

    def start(self, recipe: Recipe) -> Service:
        """Start it and wait until it is up. Raises ExperimentFailed, with the end of its log."""
        number = len(self._running)
        name = recipe.name if not number else f"{recipe.name}-{number}"
        folder = self._folder / name
        folder.mkdir(parents=True)
        places = {"folder": str(folder), "python": sys.executable, "threads": str(len(os.sched_getaffinity(0)))}
        places |= dict(zip(recipe.ports, map(str, _free_ports(len(recipe.ports))), strict=True))
        places["program"] = find_program(recipe)
        for path, text in recipe.files.items():
            (folder / path).write_text(fill(text, places), encoding="utf-8")
        log = self._logs / f"{name}.log"
        environment = os.environ | {key: fill(value, places) for key, value in recipe.environment.items()}
        began = monotonic()
        with log.open("wb") as words:
            for line in recipe.prepare:
                self._prepare(recipe, _command(recipe, line, places), environment, folder, log)
                words.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                _command(recipe, recipe.command, places),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
                cwd=folder,
            )
        try:
            _wait(recipe, process, log, places)
        except BaseException:
            _end(process, recipe)
            raise
        service = Service(
            recipe.name, fill(recipe.endpoint, places), process.pid, folder, log, start_s=monotonic() - began
        )
        self._running.append((recipe, process, service))
        return service

    def _prepare(
        self, recipe: Recipe, command: list[str], environment: dict[str, str], folder: Path, log: Path
    ) -> None:
        with log.open("ab") as words:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                check=False,
                timeout=recipe.ready.timeout,
            )
        if done.returncode:
            raise ExperimentFailed(
                "server_died", f"{recipe.name} could not be prepared ({command[-1]}):\n{_tail(log)}", retryable=False
            )

    def close(self) -> str:
        """End all; what is to be said of one that had ended by itself, else nothing."""
        died = ""
        for recipe, process, service in reversed(self._running):
            if (code := process.poll()) is not None and not died:
                died = f"{recipe.name} ended with {code} during the trial:\n{_tail(service.log)}"
            _end(process, recipe)
            shutil.rmtree(service.folder, ignore_errors=True)
        self._running.clear()
        return died


def find_program(recipe: Recipe) -> str:
    """The first of the recipe's programs that is here. Raises ExperimentFailed, saying how to get it."""
    for place in recipe.program:
        package, colon, inside = place.partition(":")
        if colon and not place.startswith("/"):
            spec = find_spec(package)
            roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
            found = [str(root / inside) for root in roots if os.access(root / inside, os.X_OK)]
        elif "*" in place:
            found = sorted((path for path in glob.glob(place) if os.access(path, os.X_OK)), reverse=True)  # noqa: PTH207
        else:
            here = shutil.which(place) or shutil.which(place, path=str(Path(sys.executable).parent))
            found = [here] if here else []
        if found:
            return found[0]
    raise ExperimentFailed(
        "no_such_program",
        f"{recipe.name}: {recipe.program[0]!r} is not a program here{f'; {recipe.install}' if recipe.install else ''}",
        retryable=False,
    )


def _command(recipe: Recipe, words: Sequence[str], places: dict[str, str]) -> list[str]:
    command = [fill(word, places) for word in words]
    if recipe.refuses_root and os.geteuid() == 0:  # nobody inside, and outside the user who owns the folder
        if not shutil.which("unshare"):
            raise ExperimentFailed(
                "refuses_root",
                f"{recipe.name} does not run as root, and there is no `unshare` to make it somebody else: "
                "run bench as an ordinary user",
                retryable=False,
            )
        command = ["unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--", *command]
    return command


def _wait(recipe: Recipe, process: "subprocess.Popen[bytes]", log: Path, places: dict[str, str]) -> None:
    ready = recipe.ready
    deadline = monotonic() + ready.timeout
    pause = 0.005
    while True:
        if (code := process.poll()) is not None:
            raise ExperimentFailed(
                "server_died", f"{recipe.name} ended with {code} before it was ready:\n{_tail(log)}", retryable=False
            )
        if _is_up(ready, places):
            return
        if monotonic() > deadline:
            asked = fill(ready.url or " ".join(ready.command) or "its port", places)
            raise ExperimentFailed(
                "server_not_ready",
                f"{recipe.name} was not up within {ready.timeout:g} s ({asked}):\n{_tail(log)}",
                retryable=False,
            )
        sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _is_up(ready: Ready, places: dict[str, str]) -> bool:
    if ready.kind == "command":
        command = [fill(word, places) for word in ready.command]
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    if ready.kind == "tcp":
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(places["port"])), timeout=1):
            return True
        return False
    handlers: list[BaseHandler] = [ProxyHandler({})]
    if not ready.verify_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        handlers.append(HTTPSHandler(context=context))
    try:
        with build_opener(*handlers).open(fill(ready.url, places), timeout=2) as answer:
            return int(answer.status) == 200
    except HTTPError as error:
        error.close()
    except (OSError, ValueError):
        pass
    return False


def _end(process: "subprocess.Popen[bytes]", recipe: Recipe) -> None:
    """End the whole session of a server: by request, then by force."""
    for number in (signal.Signals[f"SIG{recipe.stop_signal}"], signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """All different: each is held until the last one is known."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, _TAIL_LINES)).rstrip()
