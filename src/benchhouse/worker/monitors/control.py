"""Start, list and stop free-standing monitors; those that were killed are found, and their samples kept."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from benchhouse.evidence.writing import now, write_model
from benchhouse.processes import tree
from benchhouse.processes.owner import OWNER
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.telemetry import WHOLE, Monitors, StandingMonitor, TelemetrySummary
from benchhouse.worker.monitors.standing import MonitorFolder, finish, read_summary

_START_S = 20.0
_HEADLINES = {
    "cpu_busy": ("avg", "cores"), "memory_used": ("max", "B"), "cpu": ("avg", "cores"), "rss": ("max", "B"),
    "gpu_busy": ("avg", "1"), "gpu_memory_used": ("max", "B"), "gpu_power": ("avg", "W"),
}  # fmt: skip


@dataclass(frozen=True)
class MonitorReading:
    """One figure of a monitor that has ended, over its whole time."""

    scope: str
    """node, gpu0, or pid:4711."""
    series: str
    stat: str
    value: float
    unit: str


@dataclass(frozen=True)
class MonitorStatus:
    """A free-standing monitor, and what it measured once it has ended."""

    monitor_id: str
    state: str
    """running; ended; lost: it was killed and left no sample; damaged: its summary can't be read."""
    process: int | None
    """Its pid, while it runs."""
    watches: str
    interval_s: float
    started: str
    """Time of its start, UTC."""
    for_s: float | None
    """Seconds after which it ends by itself."""
    duration_s: float | None
    """Seconds that it sampled, once it has ended."""
    folder: str
    """Where its samples are."""
    seen: tuple[MonitorReading, ...]
    """The figures that are asked for first; all others are in the files."""


def start(
    workspace: WorkspaceFolder, *, pid: int | None = None, interval_s: float = 1.0, for_s: float | None = None
) -> MonitorStatus:
    """Start a monitor of the node, its GPUs, and the process tree below `pid` if given; returns once it samples."""
    list_monitors(workspace)
    try:
        Monitors.model_validate({"interval": interval_s})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise BenchError(f"the interval of {interval_s:g} s: {reason}", "at least 0.1 s, such as 1s") from error
    pid_start = tree.start_time(pid) if pid is not None else None
    if pid is not None and pid_start is None:
        raise BenchError(f"there is no process {pid}", "see: ps -e")
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    spec = StandingMonitor(
        monitor_id=name, started=now(), host=os.uname().nodename, interval_s=interval_s, pid=pid, pid_start=pid_start,
        for_s=for_s,
    )  # fmt: skip
    folder = MonitorFolder(workspace.monitors / name)
    folder.path.mkdir(parents=True)
    write_model(folder.spec, spec)
    _start_process(folder)
    return _status(folder)


def _start_process(folder: MonitorFolder) -> None:
    """Returns when it samples."""
    environment = {key: value for key, value in os.environ.items() if key != OWNER}
    with folder.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchhouse.worker", "--monitor", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment,
        )
    deadline = time.monotonic() + _START_S
    while not folder.owner.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(folder.log.read_text(errors="replace").strip().splitlines()[-3:])
            raise BenchError(f"the monitor did not start: {tail}", f"see {folder.log}")
        time.sleep(0.01)


def list_monitors(workspace: WorkspaceFolder) -> list[MonitorStatus]:
    """All monitors of the workspace, the last first; the samples of one that was killed are made readable here."""
    monitors = []
    for path in sorted(workspace.monitors.glob("*/monitor.json"), reverse=True):
        folder = MonitorFolder(path.parent)
        if folder.state() == "lost":
            with contextlib.suppress(OSError):  # a full disk: the parts stay, and the next look tries again
                finish(folder)
        monitors.append(_status(folder))
    return monitors


def stop(workspace: WorkspaceFolder, monitor: str, wait_s: float = 30.0) -> MonitorStatus:
    """End a monitor and return what it measured; one that has ended is only described."""
    folder = _find(workspace, monitor)
    deadline = time.monotonic() + wait_s
    signalled = False
    while folder.state() == "running" or not folder.has_exited():
        if not signalled and (pid := folder.pid()):
            tree.send(pid, None, signal.SIGTERM)
            signalled = True
        if time.monotonic() > deadline:
            raise BenchError(f"monitor {folder.path.name} did not end within {wait_s:g} s", f"see {folder.log}")
        time.sleep(0.02)
    if folder.state() == "lost":
        try:
            finish(folder)
        except OSError as error:
            raise unwritable(folder.telemetry, error, f"bench monitors stop {folder.path.name}") from error
    return _status(folder)


def _find(workspace: WorkspaceFolder, monitor: str) -> MonitorFolder:
    """By `@last` (of those that run, where some do), its id, or a unique beginning of it."""
    names = sorted(path.parent.name for path in workspace.monitors.glob("*/monitor.json"))
    if monitor == "@last":
        running = [name for name in names if MonitorFolder(workspace.monitors / name).state() == "running"]
        matches = (running or names)[-1:]
    else:
        matches = [name for name in names if name.startswith(monitor)]
    if len(matches) == 1:
        return MonitorFolder(workspace.monitors / matches[0])
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        raise BenchError(f"'{monitor}' could be {', '.join(matches[:5])}{more}", "give more of the id")
    raise BenchError(
        f"no monitor '{monitor}'" if names else "there is no monitor in this workspace yet", "see: bench monitors ps"
    )


def _status(folder: MonitorFolder) -> MonitorStatus:
    spec, state, summary = folder.read(), folder.state(), None
    if state == "ended":
        try:
            summary = read_summary(folder)
        except (OSError, ValueError):
            state = "damaged"  # one damaged summary hides no other monitor
    process = [f"process {spec.pid}"] if spec.pid is not None else []
    return MonitorStatus(
        monitor_id=spec.monitor_id,
        state=state,
        process=folder.pid() if state == "running" else None,
        watches=", ".join(["node", *_gpus(summary), *process]),
        interval_s=spec.interval_s,
        started=spec.started,
        for_s=spec.for_s,
        duration_s=summary.duration_s if summary else None,
        folder=str(folder.telemetry if summary else folder.path),
        seen=_readings(summary) if summary else (),
    )


def _gpus(summary: TelemetrySummary | None) -> list[str]:
    """Known from what was sampled: a driver takes its time to open."""
    return [scope for scope in summary.scopes if scope.startswith("gpu")] if summary else []


def _readings(summary: TelemetrySummary) -> tuple[MonitorReading, ...]:
    readings = []
    for scope in summary.scopes:
        for series, (stat, unit) in _HEADLINES.items():
            stats = summary.stats(scope, series, WHOLE)
            if stats is not None and (value := getattr(stats, stat)) is not None:
                readings.append(MonitorReading(scope, series, stat, value, unit))
    return tuple(readings)
