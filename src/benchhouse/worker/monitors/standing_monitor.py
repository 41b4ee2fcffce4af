"""A free-standing monitor: samples until it is stopped, or until its time or its process ends.

Twice a minute it writes its samples as one part, atomically. At its end, or when another process finds that it was
killed, the parts are converted to the same files that a trial has.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from pydantic import ValidationError

from benchhouse.evidence.writing import now, write_model, write_text
from benchhouse.processes import tree
from benchhouse.processes.durable import put_in_place
from benchhouse.processes.process_identity import OWNER, identity, is_gone, pid_of
from benchhouse.processes.python_command import python_command
from benchhouse.processes.services import job_of
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.recipe import Ready, Recipe
from benchhouse.schema.service import OVER, ServiceFolder, read_state
from benchhouse.schema.telemetry import WHOLE, MonitorSettings, Series, SeriesSource, StandingMonitor, TelemetrySummary
from benchhouse.worker.monitors import store
from benchhouse.worker.monitors.machine import node
from benchhouse.worker.monitors.nvml import open_gpus
from benchhouse.worker.monitors.sampler import Recording, Sampler, Track
from benchhouse.worker.monitors.tree import ProcessTree

RECIPE = Recipe(
    name="monitor",
    description="A free-standing monitor of the node that it runs on.",
    program=("python3",),
    parameters={"files": None},
    ports={},
    command=("{python}", "-P", "-m", "benchhouse.worker", "--monitor", "{files}"),
    endpoint="{files}",
    ready=Ready(kind="log", pattern="^sampling "),
)
"""The recipe with which a batch job runs a monitor; `files` is the monitor's folder."""
PART_S = 30.0
_BORN_S = 30.0  # a monitor that has not written its identity after this time never will
_STOPS = (signal.SIGTERM, signal.SIGINT)
_START_S = 20.0
_HEADLINES = {
    "cpu_busy": ("avg", "cores"), "memory_used": ("max", "B"), "cpu": ("avg", "cores"), "rss": ("max", "B"),
    "gpu_busy": ("avg", "1"), "gpu_memory_used": ("max", "B"), "gpu_power": ("avg", "W"),
}  # fmt: skip


class MonitorFolder:
    """The files of one free-standing monitor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.owner, self.log = path / "monitor.json", path / "owner", path / "monitor.log"
        self.parts, self.telemetry = path / "parts", path / "telemetry"
        self.stop = path / "stop"  # requests a monitor in a job to end: a signal may not reach it in time, or at all

    def read(self) -> StandingMonitor:
        return StandingMonitor.model_validate_json(self.spec.read_bytes())

    def state(self) -> str:
        """running; ended: its files exist; lost: it was killed, and only its parts exist."""
        if (self.telemetry / store.SUMMARY).is_file():
            return "ended"
        if kept := self.kept():
            state = read_state(kept)
            return "lost" if state is None or state.phase in OVER else "running"
        if process := self.process():
            return "lost" if is_gone(process) else "running"
        return "lost" if time.time() - self.spec.stat().st_mtime > _BORN_S else "running"

    def kept(self) -> ServiceFolder | None:
        """Return the service folder of the monitor's batch job; None if the monitor is a process of this machine."""
        path = self.read().kept
        return ServiceFolder(Path(path)) if path else None

    def process(self) -> str:
        """Return the identity of its process; empty before that is written."""
        try:
            return self.owner.read_text()
        except OSError:
            return ""


def run(path: Path) -> int:
    """Run the monitor of this folder until it ends."""
    folder = MonitorFolder(path)
    spec = folder.read()
    if spec.kept:  # its job may have waited for hours
        spec = spec.model_copy(update={"started": now(), "host": os.uname().nodename})
        write_model(folder.spec, spec)
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    folder.parts.mkdir(exist_ok=True)
    sources: list[SeriesSource] = [node()]
    if spec.pid is not None:
        sources.append(ProcessTree(f"pid:{spec.pid}", spec.pid, start=spec.pid_start))
    sampler = Sampler(sources, spec.interval_s)
    sampler.start()
    sampler.find(open_gpus)
    write_text(folder.owner, identity())
    print(f"sampling every {spec.interval_s:g} s", flush=True)
    until = time.monotonic() + (spec.for_s if spec.for_s is not None else inf)
    number = 0
    while _wait_for_next(folder, spec, until):
        number += 1
        _write_part(folder, number, sampler.cut())
    _write_part(folder, number + 1, sampler.stop())
    finish(folder)
    return 0


def _wait_for_next(folder: MonitorFolder, spec: StandingMonitor, until: float) -> bool:
    """Wait until the next part is due. Return False if the monitor must end."""
    part_at = time.monotonic() + PART_S
    while (at := time.monotonic()) < part_at:
        if at >= until or (spec.pid is not None and not tree.alive(spec.pid, spec.pid_start)):
            return False
        if spec.kept and folder.stop.exists():
            return False
        looks = spec.pid is not None or spec.kept
        pause = min(part_at - at, until - at, max(0.5, spec.interval_s) if looks else PART_S)
        if signal.sigtimedwait(_STOPS, max(0.001, pause)):
            return False
    return True


def _write_part(folder: MonitorFolder, number: int, cut: Recording) -> None:
    """Write a line of JSON that describes the part, then the rows as doubles. A full disk loses this part, not the
    monitor."""
    about = {
        "tracks": [
            {"scope": track.scope, "series": [item.model_dump() for item in track.series], "numbers": len(track.rows)}
            for track in cut.tracks
        ],
        "ticks_missed": cut.ticks_missed,
        "cpu_s": cut.cpu_s,
        "problems": cut.problems,
    }
    temporary = folder.parts / f".{number}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(json.dumps(about).encode() + b"\n")
            for track in cut.tracks:
                file.write(track.rows.tobytes())
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, folder.parts / f"{number:06}.part")
    except OSError as error:
        temporary.unlink(missing_ok=True)
        print(f"part {number} could not be written: {error}", flush=True)


def finish(folder: MonitorFolder) -> None:
    """Convert the parts, if there are any, to the final files. Idempotent."""
    parts = sorted(folder.parts.glob("*.part"))
    if not parts:
        return
    spec = folder.read()
    tracks: dict[str, Track] = {}
    for path in parts:
        with path.open("rb") as file:
            about = json.loads(file.readline())
            for part in about["tracks"]:
                series = [Series.model_validate(item) for item in part["series"]]
                tracks.setdefault(part["scope"], Track(part["scope"], series)).rows.fromfile(file, part["numbers"])
    samples = max(track.samples for track in tracks.values())
    recording = Recording(
        spec.interval_s, list(tracks.values()), about["ticks_missed"], about["cpu_s"], samples, about["problems"]
    )
    last_s = max((track.column(0)[-1] for track in tracks.values() if track.samples), default=0.0)
    store.write(folder.telemetry, recording, spec.started, last_s, [])
    shutil.rmtree(folder.parts, ignore_errors=True)


@dataclass(frozen=True)
class MonitorReading:
    """One value of a monitor that has ended, over its whole time."""

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
    """Its pid, while it runs as a process of this machine."""
    job: str
    """The id of its batch job; empty if it is not in one."""
    host: str
    """The node that it samples."""
    watches: str
    interval_s: float
    started: str
    """Time of its start, UTC."""
    for_s: float | None
    """Seconds after which it ends automatically."""
    duration_s: float | None
    """Seconds that it sampled, once it has ended."""
    folder: str
    """The folder of its samples."""
    seen: tuple[MonitorReading, ...]
    """The most important values; all others are in the files."""


def start(
    workspace: WorkspaceFolder, *, pid: int | None = None, interval_s: float = 1.0, for_s: float | None = None
) -> MonitorStatus:
    """Start a monitor of the node, its GPUs, and the process tree below `pid` if given. Returns once it samples."""
    folder = prepare(workspace, pid=pid, interval_s=interval_s, for_s=for_s)
    _start_process(folder)
    return status(folder)


def prepare(
    workspace: WorkspaceFolder, *, interval_s: float, for_s: float | None, pid: int | None = None, kept: str = ""
) -> MonitorFolder:
    """Write the specification of a monitor without starting it; with `kept`, the batch job of that name will run it."""
    list_monitors(workspace)
    try:
        MonitorSettings.model_validate({"interval": interval_s})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise BenchError(f"the interval of {interval_s:g} s: {reason}", "at least 0.1 s, such as 1s") from error
    pid_start = tree.start_time(pid) if pid is not None else None
    if pid is not None and pid_start is None:
        raise BenchError(f"there is no process {pid}", "see: ps -e")
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    spec = StandingMonitor(
        monitor_id=name, started=now(), host=os.uname().nodename, interval_s=interval_s, pid=pid, pid_start=pid_start,
        for_s=for_s, kept=str((workspace.services / kept).absolute()) if kept else "",
    )  # fmt: skip
    folder = MonitorFolder(workspace.monitors / name)
    folder.path.mkdir(parents=True)
    write_model(folder.spec, spec)
    return folder


def _start_process(folder: MonitorFolder) -> None:
    """Start the process of the monitor. Returns once it samples."""
    environment = {key: value for key, value in os.environ.items() if key != OWNER}
    with folder.log.open("wb") as log:
        process = subprocess.Popen(
            [*python_command(), "-m", "benchhouse.worker", "--monitor", str(folder.path)],
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
    """Return all monitors of the workspace, newest first. This makes the samples of killed monitors readable."""
    monitors = []
    for path in sorted(workspace.monitors.glob("*/monitor.json"), reverse=True):
        folder = MonitorFolder(path.parent)
        if folder.state() == "lost":
            with contextlib.suppress(OSError):  # a full disk: the parts stay, and the next call tries again
                finish(folder)
        monitors.append(status(folder))
    return monitors


def stop(workspace: WorkspaceFolder, monitor: str, wait_s: float = 30.0) -> MonitorStatus:
    """End a monitor and return what it measured; one that has ended is only described. A monitor in a batch job is
    requested to end, and the caller must end that job afterwards."""
    folder = find(workspace, monitor)
    deadline = time.monotonic() + wait_s
    signalled = False
    # Its process ends after its files are written.
    kept = folder.kept() is not None
    if kept:
        folder.stop.touch()
    while folder.state() == "running" or (not kept and (process := folder.process()) and not is_gone(process)):
        if not kept and not signalled and (pid := pid_of(folder.process())):
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
    return status(folder)


def find(workspace: WorkspaceFolder, monitor: str) -> MonitorFolder:
    """Return the monitor with this id or unique id prefix; `@last` is the last running one, or the last of all."""
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


def status(folder: MonitorFolder) -> MonitorStatus:
    """Return the status of a monitor from its files."""
    spec, state, summary = folder.read(), folder.state(), None
    kept = folder.kept()
    job = job_of(kept) if kept else None
    if state == "ended":
        try:
            summary = TelemetrySummary.model_validate_json((folder.telemetry / store.SUMMARY).read_bytes())
        except (OSError, ValueError):
            state = "damaged"  # a damaged summary must not hide the other monitors
    process = [f"process {spec.pid}"] if spec.pid is not None else []
    # GPUs are listed from the samples, because a driver takes time to open.
    gpus = [scope for scope in summary.scopes if scope.startswith("gpu")] if summary else []
    return MonitorStatus(
        monitor_id=spec.monitor_id,
        state=state,
        process=pid_of(folder.process()) if state == "running" and kept is None else None,
        job=job.job_id if job else "",
        host=spec.host,
        watches=", ".join(["node", *gpus, *process]),
        interval_s=spec.interval_s,
        started=spec.started,
        for_s=spec.for_s,
        duration_s=summary.duration_s if summary else None,
        folder=str(folder.telemetry if summary else folder.path),
        seen=_readings(summary) if summary else (),
    )


def _readings(summary: TelemetrySummary) -> tuple[MonitorReading, ...]:
    readings = []
    for scope in summary.scopes:
        for series, (stat, unit) in _HEADLINES.items():
            stats = summary.stats(scope, series, WHOLE)
            if stats is not None and (value := getattr(stats, stat)) is not None:
                readings.append(MonitorReading(scope, series, stat, value, unit))
    return tuple(readings)
