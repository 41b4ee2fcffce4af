"""Free-standing monitors: start, list and stop them; those that were killed are found and their samples kept."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from benchhouse.evidence.writing import now, write_model
from benchhouse.processes import tree
from benchhouse.processes.owner import OWNER
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import Workspace
from benchhouse.schema.lists import shortened
from benchhouse.schema.quantities import parse_seconds
from benchhouse.schema.telemetry import WHOLE, Monitors, StandingMonitor, TelemetrySummary
from benchhouse.worker.monitors.standing import MonitorFolder, finish, read_summary

_ASKED_FOR = {
    "cpu_busy": ("avg", "cores"), "memory_used": ("max", "B"), "cpu": ("avg", "cores"), "rss": ("max", "B"),
    "gpu_busy": ("avg", "1"), "gpu_memory_used": ("max", "B"), "gpu_power": ("avg", "W"),
}  # fmt: skip


def start(workspace: Workspace, *, pid: int | None, interval: str, for_: str | None) -> dict[str, Any]:
    """Start a monitor of the node, its GPUs, and the process tree below `pid` if given; returns once it samples."""
    list_monitors(workspace)
    try:
        interval_s = Monitors.model_validate({"interval": interval}).interval
        for_s = None if for_ is None else float(parse_seconds(for_))
    except ValidationError as error:
        raise BenchError(f"--interval {interval}: {error.errors()[0]['msg']}", "at least 0.1s, such as 1s") from error
    except ValueError as error:
        raise BenchError(f"--for {for_}: {error}") from error
    born = tree.start_time(pid) if pid is not None else None
    if pid is not None and born is None:
        raise BenchError(f"there is no process {pid}", "see: ps -e")
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    spec = StandingMonitor(
        monitor_id=name, started=now(), host=os.uname().nodename, interval_s=interval_s, pid=pid, pid_start=born,
        for_s=for_s,
    )  # fmt: skip
    folder = MonitorFolder(workspace.monitors / name)
    folder.path.mkdir(parents=True)
    write_model(folder.spec, spec)
    environment = {key: value for key, value in os.environ.items() if key != OWNER}
    with folder.log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchhouse.worker", "--monitor", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            env=environment,
        )
    deadline = time.monotonic() + 20
    while not folder.owner.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(folder.log.read_text(errors="replace").strip().splitlines()[-3:])
            raise BenchError(f"the monitor did not start: {tail}", f"see {folder.log}")
        time.sleep(0.01)
    return _told(folder)


def list_monitors(workspace: Workspace) -> list[dict[str, Any]]:
    """All monitors of the workspace, the last first; the samples of one that was killed are made readable here."""
    found = []
    for path in sorted(workspace.monitors.glob("*/monitor.json"), reverse=True):
        folder = MonitorFolder(path.parent)
        if folder.state() == "lost":
            with contextlib.suppress(OSError):  # a full disk: the parts stay, and the next look tries again
                finish(folder)
        found.append(_told(folder))
    return found


def stop(workspace: Workspace, token: str, wait_s: float = 30.0) -> dict[str, Any]:
    """End a monitor and say what it saw; one that has ended is only told of."""
    folder = _find(workspace, token)
    deadline = time.monotonic() + wait_s
    told = False
    while folder.state() == "running" or not folder.has_exited():
        if not told and (pid := folder.pid()):
            tree.send(pid, None, signal.SIGTERM)
            told = True
        if time.monotonic() > deadline:
            raise BenchError(f"monitor {folder.path.name} did not end within {wait_s:g} s", f"see {folder.log}")
        time.sleep(0.02)
    if folder.state() == "lost":
        try:
            finish(folder)
        except OSError as error:
            raise unwritable(folder.telemetry, error, f"bench monitors stop {folder.path.name}") from error
    return _told(folder)


def _find(workspace: Workspace, token: str) -> MonitorFolder:
    """By `@last`, its id, or a unique beginning of it."""
    names = sorted(path.parent.name for path in workspace.monitors.glob("*/monitor.json"))
    if token == "@last":  # noqa: S105 - no password
        running = [name for name in names if MonitorFolder(workspace.monitors / name).state() == "running"]
        matches = (running or names)[-1:]
    else:
        matches = [name for name in names if name.startswith(token)]
    if len(matches) == 1:
        return MonitorFolder(workspace.monitors / matches[0])
    if matches:
        raise BenchError(f"'{token}' could be {shortened(matches)}", "give more of the id")
    raise BenchError(f"no monitor '{token}'" if names else "there is no monitor here yet", "see: bench monitors ps")


def _told(folder: MonitorFolder) -> dict[str, Any]:
    spec, state, summary = folder.read(), folder.state(), None
    if state == "ended":
        try:
            summary = read_summary(folder)
        except (OSError, ValueError):
            state = "damaged"  # one spoilt summary hides no other monitor
    return {
        "monitor_id": spec.monitor_id,
        "state": state,
        "process": folder.pid() if state == "running" else None,
        "watches": ", ".join(["node", *_gpus(summary), *([f"process {spec.pid}"] if spec.pid is not None else [])]),
        "interval_s": spec.interval_s,
        "started": spec.started,
        "for_s": spec.for_s,
        "duration_s": summary.duration_s if summary else None,
        "folder": str(folder.telemetry if summary else folder.path),
        "seen": _seen(summary) if summary else [],
    }


def _gpus(summary: TelemetrySummary | None) -> list[str]:
    """Known from what was seen: a driver takes its time to open."""
    return [scope for scope in summary.scopes if scope.startswith("gpu")] if summary else []


def _seen(summary: TelemetrySummary) -> list[dict[str, Any]]:
    """The first figures that anybody asks for."""
    found = []
    for scope in summary.scopes:
        for series, (stat, unit) in _ASKED_FOR.items():
            stats = summary.stats(scope, series, WHOLE)
            if stats is not None and (value := getattr(stats, stat)) is not None:
                found.append({"scope": scope, "series": series, "stat": stat, "value": value, "unit": unit})
    return found
