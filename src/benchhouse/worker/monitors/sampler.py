"""The sampler: a thread that reads its sources at due times that do not drift, and records its own cost.

It survives a source that fails: its series are NaN from then on, and the problem is recorded once. Slow sources have
their own threads, so that the others stay on time.
"""

import signal
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan, nan

from benchhouse.schema.telemetry import NodeSummary, Series, SeriesSource
from benchhouse.worker.monitors.procfs import refresh

_HANGS_S = 0.5  # how long the end of a trial waits for the last reading of a slow source


@dataclass
class Track:
    """One source and all its samples: rows of the time in seconds and one value per series."""

    scope: str
    series: Sequence[Series]
    rows: "array[float]" = field(default_factory=lambda: array("d"))
    node: str = ""  # the other node of the trial that it belongs to

    @property
    def width(self) -> int:
        return 1 + len(self.series)

    @property
    def samples(self) -> int:
        return len(self.rows) // self.width

    def column(self, at: int) -> "array[float]":
        """Return the times (0), or the values of series `at` - 1."""
        return self.rows[at : self.samples * self.width : self.width]


@dataclass
class Recording:
    """What a sampler recorded, and what that cost."""

    interval_s: float
    tracks: list[Track]
    ticks_missed: int
    cpu_s: float
    samples: int
    problems: list[str]
    node: str = ""  # where it ran, for a trial on several nodes
    nodes: list[NodeSummary] = field(default_factory=list)  # the other nodes


class Sampler:
    """Use: `start`, `add` while it runs, `stop`. Times are seconds since `zero_s` on the monotonic clock."""

    def __init__(self, sources: Iterable[SeriesSource], interval_s: float, zero_s: float | None = None) -> None:
        self.interval_s = interval_s
        self.zero_s = time.monotonic() if zero_s is None else zero_s
        self._loops = [_Loop(self)]
        self._names: set[str] = set()
        self._first = list(sources)
        self.problems: list[str] = []
        self._cpu_s = 0.0
        self._lock = threading.RLock()  # sources are added by several threads, and by sources while they are read
        self._stopped = False

    def start(self) -> None:
        """Take the first sample and continue in a thread. Fork before this call, not after."""
        self.begin()
        self.go_on()

    def begin(self) -> None:
        """Take the first sample. Without `go_on` only one more is taken, the last."""
        for source in self._first:
            self.add(source)

    def go_on(self) -> None:
        """Take further samples in a thread. Call this before the end of the first interval, otherwise samples count as
        missed. A shorter trial avoids the cost of a thread."""
        self._loops[0].start()

    def find(self, make: Callable[[], Iterable[SeriesSource]]) -> None:
        """Add the sources that `make` returns, whenever it does: opening a device or connection can take long."""

        def look() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                for source in make():
                    self.add(source)
            except Exception as error:  # noqa: BLE001 - a driver may raise anything, and the trial goes on
                self.problems.append(f"{type(error).__name__}: {error}")

        threading.Thread(target=look, name="benchhouse-monitor", daemon=True).start()

    def add(self, source: SeriesSource) -> str:
        """Sample one more source from now on. Return its scope, with a number if the name is already used."""
        with self._lock:
            if self._stopped:
                source.close()
                return ""
            scope, number = source.name, 1
            while scope in self._names:
                number += 1
                scope = f"{source.name}-{number}"
            self._names.add(scope)
            item = _Item(source, Track(scope, source.series))
            if getattr(source, "slow", False):
                loop = _Loop(self)
                loop.items = (item,)
                self._loops.append(loop)
                loop.start(at_once=True)
            else:
                began = time.thread_time()
                self.take(item)
                self._cpu_s += time.thread_time() - began
                loop = self._loops[0]
                loop.items = (*loop.items, item)  # one assignment: the thread sees the old or the new
            return scope

    def stop(self) -> Recording:
        """Take the last sample and end. A slow source that hangs is left behind, and recorded as a problem."""
        with self._lock:
            self._stopped = True
        fast, *slow = self._loops
        for loop in self._loops:
            loop.over.set()
        fast.join()
        began = time.thread_time()
        refresh(item.source for item in fast.items if item.track.samples > 1)  # keeps a short trial cheap
        for item in fast.items:
            self.take(item)
        self._cpu_s += time.thread_time() - began
        until = time.monotonic() + _HANGS_S
        for loop in slow:
            if loop.join(max(0.0, until - time.monotonic())):
                loop.items[0].source.close()
            else:
                self.problems.append(f"{loop.items[0].track.scope}: did not answer in time at the end")
        for item in fast.items:
            item.source.close()
        items = self._items()
        of_sources = [line for item in items for line in getattr(item.source, "problems", ())]
        return self._recording([item.track for item in items], [*self.problems, *of_sources])

    def cut(self) -> Recording:
        """Return the samples since the last cut and remove them from memory, while sampling continues."""
        tracks = []
        for item in self._items():
            rows = item.track.rows
            whole = len(rows) // item.track.width * item.track.width
            tracks.append(Track(item.track.scope, item.track.series, rows[:whole]))
            del rows[:whole]  # what was added in the meantime stays
        return self._recording(tracks, list(self.problems))

    def _items(self) -> "list[_Item]":
        return [item for loop in self._loops for item in loop.items]

    def _recording(self, tracks: list[Track], problems: list[str]) -> Recording:
        missed, cpu_s = sum(loop.missed for loop in self._loops), sum(loop.cpu_s for loop in self._loops)
        samples = max((track.samples for track in tracks), default=0)
        return Recording(self.interval_s, tracks, missed, self._cpu_s + cpu_s, samples, problems)

    def latest(self, within_s: float) -> list[tuple[str, Series, float]]:
        """Return scope, series, and newest value of everything that was read in the last `within_s` seconds."""
        since = time.monotonic() - self.zero_s - within_s
        values = []
        for track in [item.track for item in self._items()]:
            count = track.samples  # another thread may be adding a row: only whole ones count
            for at, series in enumerate(track.series, start=1):
                for row in range((count - 1) * track.width, -1, -track.width):
                    if track.rows[row] < since:
                        break
                    if not isnan(value := track.rows[row + at]):
                        values.append((track.scope, series, value))
                        break
        return values

    def take(self, item: "_Item") -> None:
        """Read one source. Its exceptions are recorded as problems: nothing here may end a trial."""
        now = time.monotonic() - self.zero_s
        width = len(item.track.series)
        try:
            values = item.source.sample()
            if len(values) != width:
                raise ValueError(f"{len(values)} values for {width} series")
        except Exception as error:  # noqa: BLE001 - a stranger's source may raise anything
            values = [nan] * width
            if not item.failed:
                item.failed = True
                self.problems.append(f"{item.track.scope}: {type(error).__name__}: {error}")
        item.track.rows.extend((now, *values))


@dataclass
class _Item:
    source: SeriesSource
    track: Track
    failed: bool = False


class _Loop:
    """One thread and the sources that it reads."""

    def __init__(self, sampler: Sampler) -> None:
        self.items: tuple[_Item, ...] = ()
        self.missed = 0
        self._sampler = sampler
        self._thread: threading.Thread | None = None
        self._used_s = 0.0
        self.over = threading.Event()

    def start(self, *, at_once: bool = False) -> None:
        thread = threading.Thread(target=self._run, args=(at_once,), name="benchhouse-monitor", daemon=True)
        thread.start()
        self._thread = thread

    @property
    def cpu_s(self) -> float:
        """CPU time that its thread has used so far."""
        thread = self._thread
        if thread is None or thread.ident is None or not thread.is_alive():
            return self._used_s
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def join(self, limit_s: float | None = None) -> bool:
        """Wait for the thread. Return whether it has ended; only then is it certain that nothing is read anymore."""
        if self._thread is None:
            return True
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self, at_once: bool) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread handles signals
        take, interval_s = self._sampler.take, self._sampler.interval_s
        due = self._sampler.zero_s + interval_s
        waits = not at_once
        while True:
            late = time.monotonic() - due
            if late > interval_s:
                skipped = int(late / interval_s)
                self.missed += skipped
                due += skipped * interval_s
                late -= skipped * interval_s
            if self.over.wait(max(0.0, -late) if waits else 0):
                break
            for item in self.items:
                take(item)
            due += interval_s if waits else 0.0
            waits = True
        if at_once and waits:  # slow sources only; `stop` takes the last sample of the others
            for item in self.items:
                take(item)
        self._used_s = time.thread_time()
