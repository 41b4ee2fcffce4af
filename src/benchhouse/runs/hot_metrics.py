"""Hot metrics of a run: every sealed trial goes into the run's Prometheus text file. Failures never end a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchhouse.evidence.folder import read_meta, read_metrics, read_spec
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.telemetry import MonitorSettings

if TYPE_CHECKING:
    from benchhouse.evidence.textfile import RunFile
    from benchhouse.runs.orchestrate import ProgressReport
    from benchhouse.runs.prepared_run import PreparedRun

Say = Callable[[str], None]


class MetricsTextFile:
    """The text file of one run, kept up to date during the run."""

    def __init__(self, file: "RunFile", monitors: MonitorSettings | Literal[False], say: Say) -> None:
        self._file, self._say = file, say
        places = {"textfile": str(file.folder), "labels": dict(file.given)}
        self.monitors = monitors and monitors.model_copy(update=places)  # workers write next to it during a trial
        self._noted: set[str] = set()
        self._counted: dict[str, int] = {}

    def sealed(self, folder: TrialFolder) -> None:
        """Add a sealed trial; its numbers are written with the next step of the run."""
        self._file.take(read_spec(folder), read_meta(folder), read_metrics(folder).benchhouse.measurements)

    def following(self, show: "Callable[[ProgressReport], None]") -> "Callable[[ProgressReport], None]":
        """Return a listener for the run's steps that writes the file when a trial has ended."""

        def step(progress: "ProgressReport") -> None:
            show(progress)
            if progress.outcomes != self._counted:
                self._counted = dict(progress.outcomes)
                self._file.count(progress.outcomes, progress.total)
                self._write()

        return step

    def _write(self) -> None:
        try:
            self._file.write()
        except OSError as error:
            self._note("unwritable", f"the text file is not kept up to date: {self._file.path}: {error.strerror}")
            return
        if self._file.dropped:
            self._note("dropped", f"hot metrics: {self._file.dropped} series over the budget are only in the evidence")
        if self._file.removed:
            self._note("removed", f"hot metrics: text files of older runs made room: {', '.join(self._file.removed)}")

    def _note(self, kind: str, message: str) -> None:
        """Report a message once per kind, and not once per trial."""
        if kind not in self._noted:
            self._noted.add(kind)
            self._say(f"note: {message}")


def check_labels(folder: Path | None, labels: Mapping[str, str]) -> None:
    """Check labels of the text file before anything is planned or run."""
    if labels and folder is None:
        raise BenchError("--label sets labels of the text file, and none is written", "give its folder: --textfile DIR")
    if labels:
        from benchhouse.schema.hot_metrics import labels_of_user

        labels_of_user(dict(labels))


def open_export(
    prepared: "PreparedRun", folder: Path | None, run_id: str, labels: Mapping[str, str], say: Say
) -> MetricsTextFile | None:
    """Return the file that `--textfile` or the scenario requests, or None. Raise if its folder can't be written."""
    monitors = prepared.plan.scenario.monitors
    if monitors and monitors.textfile:
        folder = folder or prepared.home / monitors.textfile
        labels = {str(name): value for name, value in monitors.labels.items()} | dict(labels)
    if folder is None:
        return None
    from benchhouse.evidence.textfile import RunFile
    from benchhouse.schema.hot_metrics import Allowance

    try:
        folder.mkdir(parents=True, exist_ok=True)
        contract = prepared.contract.terms.model_dump(mode="json", by_alias=True) if prepared.contract else {}
        file = RunFile(folder.absolute(), run_id, labels, allowance=Allowance.of(contract))
        file.write()
    except OSError as error:
        raise unwritable(folder, error) from error
    return MetricsTextFile(file, monitors, say)
