"""Supervises one service beyond a trial: `python -m benchhouse.worker --keep FOLDER`, or a fork of the caller.

Input: `service.json`. Output: `state.json`, rewritten at each change; `endpoints.json`, readable only by its user; and
the logs. It ends when it is stopped (SIGTERM, SIGINT, the file `stop`), when its owner is gone, or when one of its
servers has ended on its own.
"""

import contextlib
import os
import select
import shutil
import signal
import threading
import traceback
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any

from benchhouse.evidence.writing import now, write_model, write_text
from benchhouse.processes import tree
from benchhouse.processes.owned_names import make_scratch, sweep_scratch
from benchhouse.processes.process_identity import OWNER, identity, is_gone
from benchhouse.processes.programs import version_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import LOOPBACK
from benchhouse.schema.secrets import blanker, make_up, secret_values
from benchhouse.schema.service import SECRET, Address, Addresses, Phase, ServiceFolder, ServiceSpec, ServiceState
from benchhouse.worker import nodes
from benchhouse.worker.output import Capture
from benchhouse.worker.services import Services, describe
from benchhouse.worker.span import Span

NAME = "bench-keeper"  # of the process
KEPT = "benchhouse-service"  # prefix of the scratch folders of these services
_OWNER_S = 0.5
_HEALTH_S = 5.0
_SILENT_S = 30.0  # without a heartbeat of the owner
_STOPS = (signal.SIGTERM, signal.SIGINT)


class _Stopped(BaseException):
    """The supervisor received SIGTERM or SIGINT."""


class ServiceSupervisor:
    def __init__(self, path: Path) -> None:
        self.folder = ServiceFolder(path)
        self.spec = ServiceSpec.model_validate_json(self.folder.spec.read_bytes())
        of_trial = self.spec.owner == "stdin"
        self.secret = (os.environ.get(SECRET) if of_trial else None) or make_up()
        secrets = secret_values(self.spec.model_dump(mode="json"), os.environ)
        self._blank = blanker([self.secret, *secrets])
        self.reason = ""  # why it ends, if it was not requested to
        self.scratch = make_scratch(f"{KEPT}-{self.spec.id}")
        self.logs = Capture.begin(path, "", redact=self._blank, streams=())
        network = self.spec.reach == "network"
        host = nodes.address(self.spec.interface, nodes.others()) if network else LOOPBACK
        self.services = Services(self.scratch, self.logs, self.secret, self.spec.images, host)
        self.span = Span(path / "nodes", self.spec, self.logs, self.secret)
        self.state = ServiceState(
            id=self.spec.id,
            recipe=self.spec.recipe.name,
            phase="starting",
            keeper=identity(),
            host=os.uname().nodename,
            job=os.environ.get("SLURM_JOB_ID"),
            since=now(),
            started=now(),
        )

    def run(self) -> int:
        """Run the service. Return 0 if it was stopped, 1 if it failed."""
        with contextlib.closing(self.logs), self.logs.pumping():
            return self._run()

    def _run(self) -> int:
        try:
            if self.spec.owner:
                threading.Thread(target=self._follow_owner, daemon=True).start()
            self._enter("starting")
            self._start()
            raise self._ended()
        except _Stopped:
            self._ignore_signals()
            self._enter("stopping", self.reason)
            return 0
        except (ExperimentFailed, BenchError) as failure:
            self._ignore_signals()
            self._enter("failed", failure.message)
            return 1
        except BaseException as error:
            self._ignore_signals()
            self._enter("failed", f"the keeper failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._ignore_signals()
            self.span.close()
            self.services.close()
            tree.kill_descendants(grace_s=0.5)
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.folder.endpoints.unlink(missing_ok=True)
            if self.state.phase == "stopping":
                self._enter("stopped", self.state.message)

    def _follow_owner(self) -> None:
        """Stop the service when its owner ends, which can be at any time, also while the servers are starting."""
        if self.spec.owner == "stdin":
            while not self.folder.stop.exists():
                if select.select([0], [], [], _OWNER_S)[0] and not os.read(0, 4096):
                    break
        elif self.spec.owner == "files":
            self._wait_for_stop()
        else:
            while not is_gone(self.spec.owner):
                sleep(_OWNER_S)
            self.reason = "whoever it was started for has ended"
        os.kill(os.getpid(), signal.SIGTERM)

    def _wait_for_stop(self) -> None:
        """Wait until the stop file has existed for the seconds written in it, since it may be removed again; or until
        the owner has given no heartbeat for a while."""
        since: float | None = None
        beat, heard = b"", monotonic()
        while True:
            if (latest := self._beat()) != beat or not self.spec.alive:
                beat, heard = latest, monotonic()
            elif monotonic() - heard > _SILENT_S:
                self.reason = f"whoever it was started for has not been heard of for {_SILENT_S:g} s"
                return
            try:
                grace_s = float(self.folder.stop.read_text() or 0)
            except (OSError, ValueError):
                since = None
            else:
                since = monotonic() if since is None else since
                if monotonic() - since >= grace_s:
                    return
            sleep(_OWNER_S)

    def _beat(self) -> bytes:
        try:
            return Path(self.spec.alive).read_bytes() if self.spec.alive else b""
        except OSError:
            return b""

    def _start(self) -> None:
        spec = self.spec
        if spec.recipe.scale.nodes > 1:
            started = self.span.start(self.services)
        else:
            started = self.services.start_all(spec.recipe, spec.id, spec.parameters, spec.replicas, spec.replica)
        replicas = [describe(service, self._blank) for service in started]
        servers = [
            Address(name=item.service.name, endpoint=item.service.endpoint, places=item.probe.places)
            for item in self.services.running
        ]
        servers += self.span.addresses()
        descriptor = os.open(self.folder.endpoints, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(Addresses(servers=servers).model_dump_json())
        self._enter("ready", replicas=replicas, checked=now())
        self._write(version=version_of(spec.recipe, spec.parameters.get("program")))

    def _ended(self) -> ExperimentFailed:
        """Wait until a server has ended on its own, while checking their health at intervals. Return the failure."""
        poll = select.poll()
        with contextlib.ExitStack() as held:
            for handle in (*(os.pidfd_open(item.process.pid) for item in self.services.running), *self.span.handles()):
                held.callback(os.close, handle)
                poll.register(handle, select.POLLIN)
            while not poll.poll(_HEALTH_S * 1000):
                self._check()
        died = self.services.died() or self.span.died()
        return ExperimentFailed("server_died", died.replace(" during the trial", ""))

    def _check(self) -> None:
        silent = [item.service.name for item in self.services.running if not item.probe.answers()]
        checked = {} if silent else {"checked": now()}
        phase: Phase = "unhealthy" if silent else "ready"
        if phase != self.state.phase:
            message = f"{', '.join(silent)} does not answer ({self.spec.recipe.ready.kind})" if silent else ""
            self._enter(phase, message, **checked)
        else:
            self._write(**checked)

    def _enter(self, phase: Phase, message: str = "", **changes: Any) -> None:
        self._write(phase=phase, message=self._blank(message), since=now(), **changes)

    def _write(self, **changes: Any) -> None:
        self.state = self.state.model_copy(update=changes)
        with contextlib.suppress(OSError):  # a full disk must not prevent the end of a server
            write_model(self.folder.state, self.state, sync=False)

    def _ignore_signals(self) -> None:
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)


def keep(path: Path) -> int:
    """Supervise the service of this folder until it is over. Return the exit code of the process."""
    tree.become_subreaper()
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    with contextlib.suppress(PermissionError):
        os.setsid()
    os.environ[OWNER] = identity()  # identifies everything that is started below, in case this process is killed
    try:
        for number in _STOPS:
            signal.signal(number, _stop)
        if os.environ.get("SLURM_JOB_ID") or nodes.are_slots():  # no orchestrator cleans up on this node
            sweep_scratch(KEPT)
        code = ServiceSupervisor(path).run()
    except _Stopped:
        code = 0
    except BaseException:  # noqa: BLE001 - whoever started it reads it there
        code = 1
        write_text(ServiceFolder(path).log, traceback.format_exc())
    return code


def _stop(signum: int, frame: FrameType | None) -> None:
    raise _Stopped
