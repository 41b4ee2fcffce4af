"""What a trial's monitors have to do with the world outside /proc: GPUs, endpoints, the text file that others read.

All of it may take its time (a driver 80 ms to open, an endpoint seconds), so it has a thread of its own, and begins a
moment after the trial: one that is over by then has paid nothing for it.
"""

import os
import signal
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchhouse.schema.telemetry import Monitors, Source
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker.monitors.sampler import Sampler

_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # there as soon as a driver is; the second inside Windows
_AFTER_S = 0.25
_WRITE_EVERY_S = 1.0  # collectors read every few seconds
_HANGS_S = 0.2


class Outward:
    """`begin` it beside a running sampler, `end` it before that is stopped."""

    def __init__(self, monitors: Monitors, spec: TrialSpec, sampler: Sampler) -> None:
        self.problems: list[str] = []
        self._monitors, self._spec, self._sampler = monitors, spec, sampler
        self._over = threading.Event()
        self._adding = threading.Lock()
        self._thread: threading.Thread | None = None
        self._gpu_model = ""

    def begin(self) -> None:
        """Nothing is started where there is nothing to do."""
        gpus = "gpu" in self._monitors.sources and driver_is_here()
        if gpus or self._monitors.prometheus or self._monitors.textfile:
            self._thread = threading.Thread(target=self._run, args=(gpus,), name="benchhouse-outward", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """From here on nothing is added. A thread that hangs in a driver is left behind."""
        with self._adding:
            self._over.set()
        if self._thread:
            self._thread.join(_HANGS_S)

    def _run(self, gpus: bool) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are the main thread's
        if self._over.wait(min(_AFTER_S, self._monitors.interval)):
            return
        if gpus:
            from benchhouse.worker.monitors.nvml import open_gpus

            self._add(open_gpus())
        for scrape in self._monitors.prometheus:
            from benchhouse.worker.monitors.prometheus import Endpoint

            self._add([Endpoint(scrape.url, scrape.name, scrape.series, scrape.labels)])
        if self._monitors.textfile:
            labels = {str(name): value for name, value in self._monitors.labels.items()}
            self._keep_file(Path(self._monitors.textfile), labels)

    def _add(self, sources: Iterable[Source]) -> None:
        for source in sources:
            self._gpu_model = self._gpu_model or getattr(source, "model", "")
            with self._adding:
                if not self._over.is_set():
                    self._sampler.add(source)
                    continue
            source.close()

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


def driver_is_here() -> bool:
    """A look that costs microseconds, so that a machine without a GPU pays for nothing else."""
    return any(map(os.path.exists, _DRIVERS))
