"""Control services that outlive a trial: write their folders, start their keepers, and follow their states."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchhouse.evidence.writing import now, write_model
from benchhouse.processes.forking import Forked, can_fork, fork
from benchhouse.processes.process_identity import OWNER, identity, is_gone, pid_of
from benchhouse.processes.services import end_of, is_lost
from benchhouse.processes.tree import send
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import ServiceLauncher
from benchhouse.schema.service import OVER, Phase, ServiceFolder, ServiceSpec, ServiceState, TrialService, read_state

_LOOK_S = 0.01
_SLOWEST_LOOK_S = 0.03
_END_S = 30.0
_JOB_S = 2.0  # between queries to a batch system


Keep = Callable[[Path], int]
"""Keeps the service of a folder until the service has ended."""


def _write_request(folder: ServiceFolder, spec: ServiceSpec) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    for path in (folder.state, folder.endpoints, folder.log, folder.job, folder.stop):
        path.unlink(missing_ok=True)
    write_model(folder.spec, spec, sync=False)


def start_jobs(
    items: Sequence[tuple[ServiceFolder, ServiceSpec]], keepers: ServiceLauncher, python: Sequence[str]
) -> None:
    """Start the services as jobs of a batch system, on any nodes; their keepers then follow their files."""
    for folder, spec in items:
        _write_request(folder, spec)
        waiting = {"phase": "starting", "message": "its job has not begun", "keeper": "", "since": now()}
        state = ServiceState.model_validate(waiting | {"id": spec.id, "recipe": spec.recipe.name, "started": now()})
        write_model(folder.state, state, sync=False)
    try:
        keepers.start(items, python)
    except BaseException as error:
        settle([folder for folder, _ in items], f"its job could not be submitted: {error}")
        raise


def start_keeper(folder: ServiceFolder, spec: ServiceSpec, keep: Keep | None) -> int:
    """Write the request and start the process that keeps the service. Return its pid at once."""
    _write_request(folder, spec)
    # Not marked as the orchestrator's: the sweep of its first worker would end it. It follows its owner on its own.
    if keep is not None and can_fork():
        process: Forked | subprocess.Popen[bytes] = fork(partial(keep, folder.path.absolute()), folder.log, [OWNER])
    else:  # a new interpreter, which takes 0.2 s more
        command = [sys.executable, "-m", "benchhouse.worker", "--keep", str(folder.path.absolute())]
        environ = {key: value for key, value in os.environ.items() if key != OWNER}
        with folder.log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environ
            )
    _keepers[str(folder.path)] = process
    return process.pid


_keepers: dict[str, "Forked | subprocess.Popen[bytes]"] = {}  # started by this process, which reaps them


def wait_ready(
    folders: Mapping[str, ServiceFolder], show: Callable[[str], None], keepers: ServiceLauncher | None = None
) -> dict[str, ServiceState]:
    """Wait until all are ready and return their states. If one fails, stop all and raise BenchError with its output."""
    pause, shown, polled = _LOOK_S, f"starting {', '.join(folders)}", time.monotonic()
    if folders:
        show(shown)
    while True:
        states = {name: read_state(folder) for name, folder in folders.items()}
        for name, folder in folders.items():
            if message := end_of(name, folder) or _keeper_died(name, folder):
                stop_keepers(folders.values())
                raise _not_started(name, folder, message)
        waiting = [name for name, state in states.items() if state is None or state.phase == "starting"]
        if not waiting:
            return {name: state for name, state in states.items() if state is not None}
        if keepers and time.monotonic() - polled > _JOB_S:
            polled = time.monotonic()
            for name in waiting:
                if (message := keepers.gone(folders[name])) and not end_of(name, folders[name]):
                    settle(folders.values(), message)
        if (text := f"starting {', '.join(waiting)}") != shown:
            show(text)
            shown = text
        time.sleep(pause)
        pause = min(pause * 1.2, _SLOWEST_LOOK_S)


def _not_started(name: str, folder: ServiceFolder, message: str) -> BenchError:
    """Return the error for a failed start, with the server's output indented and the place of its logs, if any."""
    message = message.replace(f"{name} is over: ", f"{name} could not be started: ", 1).replace("\n", "\n    ")
    logs = folder.path / "logs"
    has_logs = any(log.stat().st_size for log in logs.glob("*.log"))
    return BenchError(message, f"its logs: {logs}" if has_logs else "", Exit.TRIAL_FAILED)


def _keeper_died(name: str, folder: ServiceFolder) -> str:
    """Return the message for a keeper that ended before it wrote a state; empty otherwise."""
    process = _keepers.get(str(folder.path))
    if process is None or process.poll() is None or read_state(folder) is not None:
        return ""
    output = folder.log.read_text(errors="replace").strip()
    return f"{name} could not be started: {output.splitlines()[-1] if output else f'exit {process.returncode}'}"


def stop_keepers(folders: Iterable[ServiceFolder]) -> list[int]:
    """Stop all keepers and wait until they have ended. Return the pids of those that had to be killed."""
    running: dict[int, str] = {}
    for folder in folders:
        state = read_state(folder)
        process = _keepers.get(str(folder.path))
        pid = pid_of(state.keeper) if state else None
        if state and state.host == os.uname().nodename and pid and not is_gone(state.keeper):
            running[pid] = state.keeper
        elif state is None and process is not None and process.poll() is None:
            running[process.pid] = ""
    for pid in running:
        send(pid, None, signal.SIGTERM)
    deadline, killed = time.monotonic() + _END_S, []
    while running:
        running = {pid: keeper for pid, keeper in running.items() if not _is_over(pid, keeper)}
        if running and time.monotonic() > deadline:
            for pid in running:
                send(pid, None, signal.SIGKILL)
                killed.append(pid)
            deadline += _END_S
        time.sleep(_LOOK_S if running else 0)
    return killed


def _is_over(pid: int, keeper: str) -> bool:
    for process in _keepers.values():
        if process.pid == pid:
            return process.poll() is not None
    return is_gone(keeper)


@dataclass(frozen=True)
class Jobs:
    """The launcher, interpreter, and network interface to start services as jobs of a batch system."""

    keepers: ServiceLauncher
    python: tuple[str, ...]
    interface: str | None


class Attached:
    """The services of one run that live from before its first trial until after its last."""

    def __init__(self, run: RunFolder, services: Mapping[str, TrialService], images: str, jobs: Jobs | None) -> None:
        self._services, self._jobs = services, jobs
        self._run_id, self._images = run.run_id, images
        names = [name for name, service in services.items() if service.use.mode == "attached"]
        self._folders = {name: ServiceFolder(run.services / name) for name in names}
        self._others = [
            (name, folder) for name, service in services.items() if service.use.server for folder in service.folders
        ]

    @property
    def ours(self) -> bool:
        """Whether they are child processes of this one, which end with it."""
        return self._jobs is None

    @property
    def _ends_with_us(self) -> bool:
        """Whether they are jobs that end when this process does."""
        return self._jobs is not None and bool(self._jobs.keepers.alive)

    def start(self, show: Callable[[str], None], keep: Callable[[], Keep] | None) -> None:
        """Start the services. Jobs that outlive this process start with the first trial (`ensure`); the others are
        waited for, so that no trial occupies a place of the cluster for nothing.

        `keep` is called only if needed, because importing takes time. Raise BenchError if a server that was started
        before is over.
        """
        placed = [name for name in self._folders if self._services[name].is_placed]
        if placed and not self._ends_with_us:
            message = f"{placed[0]} is attached, and where it runs can't be chosen here (node)"
            raise BenchError(message, "leave node out, or run on kubernetes")
        for name, folder in self._others:
            if message := end_of(name, folder):
                hint = "start another: bench servers start; then name its id"
                raise BenchError(f"{message} (server {folder.path.name})", hint)
            if self._jobs:
                self._jobs.keepers.follow(folder)
        if self._jobs and not self._ends_with_us:
            return
        if self._jobs:
            items = [(folder, self._spec(name)) for name, folder in self._folders.items()]
            for item in items:
                start_jobs([item], self._jobs.keepers, self._jobs.python)
            wait_ready(self._folders, show, self._jobs.keepers)
            return
        for name, folder in self._folders.items():
            start_keeper(folder, self._spec(name, owner=identity()), keep() if keep else None)
        wait_ready(self._folders, show)

    def ensure(self) -> None:
        """Submit jobs that outlive this process and neither wait nor run. Trials wait until they are up."""
        for name, folder in self._folders.items() if self._jobs and not self._ends_with_us else ():
            assert self._jobs is not None
            state = read_state(folder)
            if state is not None and state.phase not in OVER and not self._jobs.keepers.gone(folder):
                continue
            start_jobs([(folder, self._spec(name))], self._jobs.keepers, self._jobs.python)

    def scripts(self) -> list[str]:
        """Return the scripts of their jobs, exactly as they would be submitted."""
        jobs = self._jobs
        if jobs is None:
            return []
        return [jobs.keepers.render(folder, self._spec(name), jobs.python) for name, folder in self._folders.items()]

    def _spec(self, name: str, **more: Any) -> ServiceSpec:
        service = self._services[name]
        assert service.recipe is not None
        if self._jobs:
            more = {"owner": "files", "reach": "network", "interface": self._jobs.interface} | more
            more["alive"] = self._jobs.keepers.alive
        return ServiceSpec(
            id=name,
            recipe=service.recipe,
            parameters=service.parameters,
            replicas=service.replicas,
            run_id=self._run_id,
            images=self._images,
            time=service.use.time,
            created=now(),
            **more,
        )

    def for_trials(self) -> dict[str, TrialService]:
        """Return all services of the run in the form that trials need."""
        folders = {name: str(folder.path.absolute()) for name, folder in self._folders.items()}
        attached = {name: self._services[name].model_copy(update={"folder": path}) for name, path in folders.items()}
        return {name: attached.get(name, service) for name, service in self._services.items()}

    def over(self) -> str:
        """Return the message for the first service that has ended; empty while all run."""
        for name, folder in self._folders.items():
            if self._jobs and self._ends_with_us and (gone := self._jobs.keepers.gone(folder)):
                settle([folder], gone)  # its keeper could not write it
            state = read_state(folder)
            reaped = self._jobs is not None and not self._ends_with_us
            stopped = reaped and state is not None and state.phase == "stopped"
            if not stopped and (message := end_of(name, folder)):
                return message
        return next((message for name, folder in self._others if (message := end_of(name, folder))), "")

    def close(self) -> None:
        """Stop them. If they are jobs, their executor stops them, and this only writes missing final states."""
        if self._jobs:
            settle(self._folders.values(), "its job was ended", "stopped")
        else:
            stop_keepers(self._folders.values())


def attached_folders(ledger: Ledger) -> list[Path]:
    """Return the folders of the servers that are, or were, attached to the run."""
    return sorted(ledger.folder.services.glob("*"))


def running_states(folders: Collection[Path]) -> list[tuple[ServiceFolder, ServiceState]]:
    """Return every service that has a state, which may no longer be true (`is_lost`)."""
    services = map(ServiceFolder, sorted(folders))
    return [(folder, state) for folder in services if (state := read_state(folder)) is not None]


def bury(folders: Collection[Path]) -> None:
    """Mark services as over if their keeper was killed. Call this only when none of their processes runs any more."""
    for folder, state in running_states(folders):
        if is_lost(state):
            _mark_over(folder, state, "its keeper was killed")


def settle(folders: Iterable[ServiceFolder], message: str, phase: Phase = "failed") -> None:
    """Mark services as over if their jobs have ended and could not write that themselves."""
    for folder in folders:
        state = read_state(folder)
        if state is not None and state.phase not in OVER:
            _mark_over(folder, state, message, phase)


def _mark_over(folder: ServiceFolder, state: ServiceState, message: str, phase: Phase = "failed") -> None:
    folder.endpoints.unlink(missing_ok=True)
    over = {"phase": phase, "message": message, "since": now()}
    write_model(folder.state, state.model_copy(update=over), sync=False)
