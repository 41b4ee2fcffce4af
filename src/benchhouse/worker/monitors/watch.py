"""The monitors of one trial, for its supervisor: begin after the fork, end before the experiment is reaped."""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from benchhouse.schema.secrets import resolve
from benchhouse.schema.service import LiveServices, Replica, ServiceFolder, read_state
from benchhouse.schema.telemetry import (
    STEADY,
    MonitorSettings,
    NodeSummary,
    Phase,
    SeriesSource,
    Stats,
    TelemetrySummary,
)
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker import batch
from benchhouse.worker.monitors import store
from benchhouse.worker.monitors.cgroup import Cgroup
from benchhouse.worker.monitors.machine import node
from benchhouse.worker.monitors.node_monitors import NodeMonitors
from benchhouse.worker.monitors.procfs import TICKS_PER_S, Joined, driver_is_here
from benchhouse.worker.monitors.rapl import unreadable_reason
from benchhouse.worker.monitors.sampler import Recording, Sampler
from benchhouse.worker.monitors.tagged_processes import OwnRanks, TrialProcesses
from benchhouse.worker.monitors.tree import TRIAL, ProcessTree

_AFTER_S = 0.25
_WRITE_EVERY_S = 1.0  # collectors read every few seconds
_HANGS_S = 0.2


class Outward:
    """Sources and files outside the node's counters: GPUs, Prometheus, and the text file. `begin` after the sampler
    starts, `end` before it stops."""

    def __init__(self, monitors: MonitorSettings, spec: TrialSpec, sampler: Sampler) -> None:
        self.problems: list[str] = []
        self._monitors, self._spec, self._sampler = monitors, spec, sampler
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._gpu_model = ""

    def begin(self) -> None:
        """Start the thread, if it has anything to do."""
        gpus = "gpu" in self._monitors.sources and driver_is_here()
        if gpus or self._monitors.prometheus or self._monitors.textfile:
            self._thread = threading.Thread(target=self._run, args=(gpus,), name="benchhouse-outward", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """End the thread. One that hangs in a driver is left behind; the sampler closes what it adds later."""
        self._over.set()
        if self._thread:
            self._thread.join(_HANGS_S)

    def _run(self, gpus: bool) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread handles signals
        if self._over.wait(min(_AFTER_S, self._monitors.interval)):
            return
        if gpus:
            from benchhouse.worker.monitors.nvml import open_gpus

            self._add(open_gpus())
        for scrape in self._monitors.prometheus:
            from benchhouse.worker.monitors.prometheus import PrometheusEndpoint

            url = resolve(scrape.url, os.environ)
            self._add([PrometheusEndpoint(url, scrape.name, scrape.series, scrape.labels, scrape.exporter)])
        if self._monitors.textfile:
            labels = {str(name): value for name, value in self._monitors.labels.items()}
            self._keep_file(Path(self._monitors.textfile), labels)

    def _add(self, sources: Iterable[SeriesSource]) -> None:
        for source in sources:
            self._gpu_model = self._gpu_model or getattr(source, "model", "")
            if self._over.is_set():
                source.close()
            else:
                self._sampler.add(source)

    def _keep_file(self, folder: Path, labels: Mapping[str, str]) -> None:
        from benchhouse.evidence.textfile import LiveFile

        file = LiveFile(folder, self._spec, labels, self._gpu_model)
        try:
            while True:
                file.write(self._sampler.latest(_WRITE_EVERY_S + self._monitors.interval))
                if self._over.wait(max(_WRITE_EVERY_S, self._monitors.interval)):
                    break
        except OSError as error:
            self.problems.append(f"text file: {file.path}: {error.strerror}; it is not kept up to date")
        finally:
            file.close()
        if file.dropped:
            self.problems.append(f"text file: {file.dropped} sampled series are over its budget of {file.budget}")


SHORTEST_S = 10 / TICKS_PER_S  # over less than ten of the kernel's ticks, a rate may be off by a tenth or more
_FIRST_S = 0.5 / TICKS_PER_S
_APART_S = 0.1  # clock difference of two nodes above which their logs can't be read side by side
_SHARE_ALONE = 0.8  # of the first interval: then a thread is started, in time for the first tick


class TrialMonitor:
    """The monitors of one trial. No failure here ends a trial; `trouble` describes it."""

    def __init__(
        self, monitors: MonitorSettings | None, started: str, zero_s: float, others: NodeMonitors | None = None
    ) -> None:
        """`others` samples the other nodes of the trial."""
        self.trouble = self.clocks = ""  # what is missing, and which nodes have a different time of day
        self._others = others or NodeMonitors(None, "")
        self._monitors, self._started, self._zero_s = monitors, started, zero_s
        self._sampler: Sampler | None = None
        self._outward: Outward | None = None
        self._recording: Recording | None = None
        self._duration_s = 0.0
        self._services: set[str] = set()  # services that are already watched
        self._looked = 0
        self._thread_at_s = math.inf
        self._first: Callable[[], None] | None = None  # takes the first sample; None afterwards

    def begin(self, cgroups: Mapping[str, Path], spec: TrialSpec | None = None) -> None:
        """Take the first sample soon: half a tick of the kernel's clock after the trial began, so that a shorter trial
        takes none. `cgroups` is the location of the trial's cage. Without `spec`, no outside sources are read."""
        if self._monitors is not None:
            self._first = partial(self._begin, self._monitors, cgroups, spec)
            self._take_first_sample()

    def _take_first_sample(self) -> None:
        if self._first is None or time.monotonic() < self._zero_s + _FIRST_S:
            return
        first, self._first = self._first, None
        try:
            first()
        except (OSError, RuntimeError) as error:  # no descriptor, no thread left
            self.trouble, self._sampler = f"nothing was sampled: {error}", None

    def _begin(self, monitors: MonitorSettings, cgroups: Mapping[str, Path], spec: TrialSpec | None) -> None:
        sampler = Sampler([node()] if "node" in monitors.sources else [], monitors.interval, self._zero_s)
        sampler.begin()
        if "trial" in monitors.sources:
            # Processes that srun starts on this node are not below this one, and the clients of our own steps are not
            # the trial's.
            steps = self._others.pids
            finder = TrialProcesses(spec.trial_id, sampler.add, apart=True) if spec and steps else None
            ranks = None if finder else OwnRanks(sampler.add)
            below = ProcessTree(TRIAL, os.getpid(), below=True, finder=finder, without=steps, told=ranks)
            sampler.add(Joined(TRIAL, [below, Cgroup(cgroups)]))
        self._sampler = sampler
        self._thread_at_s = self._zero_s + monitors.interval * _SHARE_ALONE
        if spec is not None:
            placed = batch.placed(spec.executor, "") if "node" in monitors.sources else {}
            if "job_created" in placed:
                from benchhouse.worker.monitors.waits import PlaceWaits

                sampler.add(PlaceWaits(placed))
            if "services" in monitors.sources:
                self._add_attached(spec)
            self._outward = Outward(monitors, spec, self._sampler)
            self._outward.begin()

    @property
    def due_s(self) -> float:
        """Seconds until `look` must be called even without other events."""
        return max(0.0, (self._zero_s + _FIRST_S if self._first else self._thread_at_s) - time.monotonic())

    def look(self, started: Path) -> None:
        """Continue sampling in a thread when it is time, and check whether the trial has started a service since the
        last call; `started` is its services.json."""
        self._take_first_sample()
        self._others.look()
        if self._sampler and time.monotonic() >= self._thread_at_s:
            self._thread_at_s = math.inf
            try:
                self._sampler.go_on()
            except (OSError, RuntimeError) as error:  # no descriptor, no thread left
                self._sampler.problems.append(f"only the first and the last sample were taken: {error}")
        if self._monitors is None or "services" not in self._monitors.sources:
            return
        with contextlib.suppress(OSError, ValueError):
            changed = started.stat().st_mtime_ns
            if changed != self._looked:
                self._looked = changed
                for name, server in LiveServices.model_validate_json(started.read_bytes()).services.items():
                    self._add_service(name, server)

    def _add_attached(self, spec: TrialSpec) -> None:
        for name, service in spec.services.items():
            state = read_state(ServiceFolder(Path(service.folder))) if service.folder else None
            if state is not None and state.host == os.uname().nodename:
                for number, server in enumerate(state.replicas):
                    self._add_service(f"{name}-{number}" if number else name, server)

    def _add_service(self, name: str, server: Replica) -> None:
        """Watch a service's process tree, and its own metrics if it exports any."""
        if name in self._services:
            return
        self._services.add(name)
        if server.node:
            self._others.watch(server.node, f"service:{name}", server.pid)
        elif self._sampler:
            self._sampler.add(ProcessTree(f"service:{name}", server.pid))
        if self._sampler and server.metrics:
            from benchhouse.worker.monitors.prometheus import PrometheusEndpoint

            self._sampler.add(PrometheusEndpoint(server.metrics, f"{name}-metrics"))

    def end(self) -> None:
        """Take the last sample. Also safe to call if nothing was started, or twice."""
        if self._sampler:
            self._duration_s = time.monotonic() - self._zero_s
            if self._outward:
                self._outward.end()
                self._sampler.problems += self._outward.problems
            self._recording = self._sampler.stop()
            self._sampler = None

    def write(self, folder: Path, phases: Iterable[tuple[str, int, int]]) -> TelemetrySummary | None:
        """Write the telemetry folder; `phases` are names with begin and end in ns of the monotonic clock.

        Return None for a trial that was too short; its resource use is in its meta.json.
        """
        if self._recording is None:
            return None
        recording, self._recording.nodes = self._recording, self._others.summaries()
        recording.node = self._others.own
        recording.tracks += self._others.tracks(self._zero_s)
        recording.problems += [f"{node.name}: {node.problem}" for node in recording.nodes if node.problem]
        self.trouble = "; ".join(recording.problems)
        self.clocks = ", ".join(filter(None, map(_clock_words, recording.nodes)))
        if self._duration_s < SHORTEST_S:
            return None
        in_s = [(name, begin / 1e9 - self._zero_s, end / 1e9 - self._zero_s) for name, begin, end in phases]
        given = [Phase(name=name, begin_s=begin_s, end_s=end_s) for name, begin_s, end_s in in_s]
        try:
            return store.write(folder, recording, self._started, self._duration_s, given)
        except OSError as error:
            self.trouble = f"{folder.name} could not be written: {error.strerror or error}"
            return None

    def missing_energy_reason(self) -> str:
        """Return why the energy of the trial is unknown."""
        if self._monitors is None:
            return "nothing was sampled (monitors: false)"
        processors = unreadable_reason() if "node" in self._monitors.sources else "sources has no node"
        return f"no GPU told what it draws; {processors or 'processors were read for too short a time'}"


def _clock_words(node: NodeSummary) -> str:
    """Describe the clock of a node; empty if it agrees with ours."""
    ahead_s, off_s = node.clock_ahead_s or 0.0, node.clock_uncertainty_s or 0.0
    if abs(ahead_s) - off_s <= _APART_S:
        return ""
    return f"{node.name} is {abs(ahead_s):,.3f} s {'ahead' if ahead_s > 0 else 'behind'} (within {off_s * 1000:.1f} ms)"


def steady_resources(summary: TelemetrySummary | None) -> dict[str, float]:
    """Return the resources in metrics.json that were sampled in the steady phase: cores that the trial used, its peak
    memory, the mean GPU utilization, and the memory of all GPUs."""
    if summary is None:
        return {}
    gpus = [scope for scope in summary.scopes if scope.startswith("gpu")]
    cpu, rss = _steady(summary, [TRIAL], "cpu"), _steady(summary, [TRIAL], "rss")
    busy, held = _steady(summary, gpus, "gpu_busy"), _steady(summary, gpus, "gpu_memory_used")
    resources = {"cpu_util": cpu[0].avg} if cpu else {}
    resources |= {"ram_mb": (rss[0].max or 0.0) / 1e6} if rss else {}
    resources |= {"gpu_util": sum(gpu.avg for gpu in busy) / len(busy)} if busy else {}
    return resources | ({"gpu_mem_mb": sum(gpu.max or 0.0 for gpu in held) / 1e6} if held else {})


def _steady(summary: TelemetrySummary, scopes: Iterable[str], series: str) -> list[Stats]:
    by_scope = [summary.stats(scope, series, STEADY) for scope in scopes]
    return [stats for stats in by_scope if stats and stats.n]
