"""A free-standing monitor: samples until it is told to stop, or its time or its process is over.

Twice a minute it writes what it took as a part, whole or not at all. At its end, or when somebody finds that it was
killed, the parts become the same files that a trial has.
"""

import json
import os
import shutil
import signal
import time
from math import inf
from pathlib import Path

from benchhouse.evidence.writing import write_text
from benchhouse.processes import tree
from benchhouse.processes.owner import identity, is_gone, pid_of
from benchhouse.schema.telemetry import Series, Source, StandingMonitor, TelemetrySummary
from benchhouse.worker.monitors import store
from benchhouse.worker.monitors.outward import open_gpus
from benchhouse.worker.monitors.procfs import node
from benchhouse.worker.monitors.sampler import Recording, Sampler, Track
from benchhouse.worker.monitors.tree import ProcessTree

PART_S = 30.0
_BORN_S = 30.0  # a monitor that has not said who it is after so long never will
_STOPS = (signal.SIGTERM, signal.SIGINT)


class MonitorFolder:
    """The files of one free-standing monitor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.owner, self.log = path / "monitor.json", path / "owner", path / "monitor.log"
        self.parts, self.telemetry = path / "parts", path / "telemetry"

    def read(self) -> StandingMonitor:
        return StandingMonitor.model_validate_json(self.spec.read_bytes())

    def state(self) -> str:
        """running; ended: its files are there; lost: it was killed, and only its parts are."""
        if (self.telemetry / store.SUMMARY).is_file():
            return "ended"
        try:
            return "lost" if is_gone(self.owner.read_text()) else "running"
        except OSError:
            return "lost" if time.time() - self.spec.stat().st_mtime > _BORN_S else "running"

    def has_exited(self) -> bool:
        """Whether its process is gone: it writes its files just before."""
        try:
            return is_gone(self.owner.read_text())
        except OSError:
            return True

    def pid(self) -> int | None:
        try:
            return pid_of(self.owner.read_text())
        except OSError:
            return None


def run(path: Path) -> int:
    """Be the monitor of this folder until it ends."""
    folder = MonitorFolder(path)
    spec = folder.read()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    folder.parts.mkdir(exist_ok=True)
    sources: list[Source] = [node()]
    if spec.pid is not None:
        sources.append(ProcessTree(f"pid:{spec.pid}", spec.pid, start=spec.pid_start))
    sampler = Sampler(sources, spec.interval_s)
    sampler.start()
    sampler.find(lambda: open_gpus(spec.interval_s))
    write_text(folder.owner, identity())
    until = time.monotonic() + (spec.for_s if spec.for_s is not None else inf)
    number = 0
    while _goes_on(spec, until):
        number += 1
        _write_part(folder, number, sampler.cut())
    _write_part(folder, number + 1, sampler.stop())
    finish(folder)
    return 0


def _goes_on(spec: StandingMonitor, until: float) -> bool:
    """Wait until the next part is due; False when it is over."""
    part_at = time.monotonic() + PART_S
    while (now := time.monotonic()) < part_at:
        if now >= until or (spec.pid is not None and not tree.alive(spec.pid, spec.pid_start)):
            return False
        pause = min(part_at - now, until - now, PART_S if spec.pid is None else max(0.5, spec.interval_s))
        if signal.sigtimedwait(_STOPS, max(0.001, pause)):
            return False
    return True


def _write_part(folder: MonitorFolder, number: int, cut: Recording) -> None:
    """A line of JSON that says what follows, then the rows as doubles. A full disk costs this part, not the monitor."""
    about = {
        "tracks": [
            {"scope": one.scope, "series": [item.model_dump() for item in one.series], "numbers": len(one.rows)}
            for one in cut.tracks
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
        temporary.rename(folder.parts / f"{number:06}.part")
    except OSError as error:
        temporary.unlink(missing_ok=True)
        print(f"part {number} could not be written: {error}", flush=True)


def finish(folder: MonitorFolder) -> TelemetrySummary | None:
    """Make the files of the parts; None where there is no part. Doing it twice does no harm."""
    parts = sorted(folder.parts.glob("*.part"))
    if not parts:
        return None
    spec = folder.read()
    tracks: dict[str, Track] = {}
    for path in parts:
        with path.open("rb") as file:
            about = json.loads(file.readline())
            for one in about["tracks"]:
                series = [Series.model_validate(item) for item in one["series"]]
                tracks.setdefault(one["scope"], Track(one["scope"], series)).rows.fromfile(file, one["numbers"])
    samples = max(track.samples for track in tracks.values())
    recording = Recording(
        spec.interval_s, list(tracks.values()), about["ticks_missed"], about["cpu_s"], samples, about["problems"]
    )
    last_s = max((track.column(0)[-1] for track in tracks.values() if track.samples), default=0.0)
    summary = store.write(folder.telemetry, recording, spec.started, last_s, [])
    shutil.rmtree(folder.parts, ignore_errors=True)
    return summary


def read_summary(folder: MonitorFolder) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((folder.telemetry / store.SUMMARY).read_bytes())
