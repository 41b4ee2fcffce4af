"""Hot metrics of recent runs as one page that Prometheus scrapes: what `--textfile` writes, for all of these runs."""

import contextlib
import threading
from collections.abc import Iterable
from datetime import datetime

from benchhouse.api.run_list import run_page
from benchhouse.evidence.folder import read_meta, read_metrics, read_spec
from benchhouse.evidence.textfile import RunSeries, TextfileSample, render, within
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.status import RunStatus
from benchhouse.schema.errors import BenchError
from benchhouse.schema.hot_metrics import SERIES_BUDGET, Allowance
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trial import TrialSpec

DAYS = 30
"""For how many days results are hot."""
_MOST_RUNS = 100
OVER_BUDGET = "benchhouse_scrape_series_dropped"


class HotMetrics:
    """Remembers what it read of each run, so that a scrape reads only new trials. Threads wait for each other."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self._workspace = workspace
        self._kept: dict[str, _Known] = {}
        self._turn = threading.Lock()

    def page(self, beside: Iterable[TextfileSample] = ()) -> str:
        """Return text format 0.0.4: the samples of `beside`, and the newest runs of the last 30 days that fit the
        budget."""
        with self._turn:
            found = run_page(self._workspace, {"since": f"{DAYS}d"}, None, _MOST_RUNS).runs
            self._kept = {run.run_id: self._kept.get(run.run_id) or _Known(run.run_id) for run in found}
            samples = list(beside)
            room = SERIES_BUDGET - len(samples) - 1
            newest_first = [sample for run in found for sample in self._kept[run.run_id].samples(self._workspace, run)]
            kept, dropped = within(newest_first, room)
            text = f"Series of runs of the last {DAYS} days that are over the budget of {SERIES_BUDGET}."
            return render([*samples, *kept, TextfileSample(OVER_BUDGET, dropped, (), text)])


class _Known:
    """The metrics that were read of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._series: RunSeries | None = None
        self._read: set[tuple[str, str]] = set()

    def samples(self, workspace: WorkspaceFolder, run: RunStatus) -> list[TextfileSample]:
        with contextlib.suppress(BenchError, OSError):  # `bench status` reports a ledger that can't be read
            for event in Ledger(workspace.run(run.run_id)).events():
                if event.event != "ended" or not event.trial_id or not event.manifest:
                    continue
                if (event.trial_id, event.manifest) not in self._read:
                    self._read.add((event.trial_id, event.manifest))
                    with contextlib.suppress(OSError, ValueError):  # pruned: its values are in the tables
                        self._take(workspace, run.scenario, event.trial_id, event.time)
        if self._series is None:  # the first trial shows which labels the contract drops
            return []
        self._series.count(run.outcomes, run.trials)
        return self._series.samples()

    def _take(self, workspace: WorkspaceFolder, scenario: str, trial_id: str, ended: str) -> None:
        folder = workspace.trial(scenario, trial_id)
        spec = read_spec(folder)
        if self._series is None:
            self._series = RunSeries(self._run_id, _given(spec), Allowance.of(spec.contract))
        measurements = read_metrics(folder).benchhouse.measurements
        self._series.take(spec, read_meta(folder), measurements, datetime.fromisoformat(ended).timestamp())


def _given(spec: TrialSpec) -> dict[str, str]:
    """Return the labels that the user set for the text file of the run."""
    return {str(name): value for name, value in spec.monitors.labels.items()} if spec.monitors else {}
