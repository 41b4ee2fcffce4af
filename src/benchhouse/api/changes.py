"""Recent changes, and what needs a person: `ws.changes(since="1d")`."""

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchhouse.api.run_list import run_page
from benchhouse.automation import alarms
from benchhouse.automation.alarms import AlarmState
from benchhouse.results import history
from benchhouse.results.history import Watched
from benchhouse.results.metric_history import list_cases
from benchhouse.results.numbers import percent
from benchhouse.runs.logs import moment
from benchhouse.runs.status import RunStatus
from benchhouse.schema.alarms import Notice
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import FILE_NAME
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.summaries import Summaries

if TYPE_CHECKING:
    from benchhouse.results.metric_history import HistoryCase

_MOST_RUNS = 200
_MOST_CASES = 30  # limit of the histories that are checked, those with the most runs first


@dataclass(frozen=True)
class MovedLevel:
    """A level that changed, or a baseline that newer runs break."""

    case: str
    metric: str
    sentence: str
    run_id: str
    """The first run of the new level."""
    time: str
    """When that run started, UTC."""


@dataclass(frozen=True)
class Changes:
    """Changes since a point in time, and what needs a person."""

    since: str
    """The point in time, UTC."""
    runs: list[RunStatus]
    """Runs that started since then, newest first."""
    levels: list[MovedLevel]
    """Change points of histories whose new level began since then."""
    broken: list[MovedLevel]
    """Accepted baselines that later runs break, whenever that began."""
    alarms: list[AlarmState]
    """Alarms that are firing now."""
    notices: list[Notice]
    """Alarms that fired or ended since then, oldest first."""
    notes: list[str]
    """Checks that could not be made, and other limits of this answer."""

    @property
    def failed(self) -> list[RunStatus]:
        """Runs with failed trials, and runs that ended before all trials did."""
        return [run for run in self.runs if run.failures or run.stopped or run.state == "interrupted"]

    @property
    def invalid(self) -> list[RunStatus]:
        """Runs with invalid trials."""
        return [run for run in self.runs if run.invalid]

    @property
    def unmuted(self) -> list[AlarmState]:
        """Firing alarms that are not muted."""
        return [alarm for alarm in self.alarms if not alarm.muted]

    @property
    def needs_a_person(self) -> int:
        """The number of things that need a person."""
        return len(self.failed) + len(self.invalid) + len(self.broken) + len(self.unmuted)


def changes(workspace: WorkspaceFolder, since: str) -> Changes:
    """Return what changed since `since`: a time (`2026-11-15T10:00`, UTC or with a zone), or `1d` for a day ago."""
    begun = moment(since, time.time())
    page = run_page(workspace, {"since": since}, None, _MOST_RUNS)
    notes = list(page.unreadable)
    if page.cursor:
        notes.append(f"only the newest {_MOST_RUNS} runs are looked at")
    standing: list[AlarmState] = []
    try:
        if workspace.alarms.exists():
            standing = [item for item in alarms.standings(workspace) if item.state == "firing"]
    except BenchError as error:
        notes.append(f"alarms: {error.message}")
    told = [item for item in alarms.recorded(workspace) if item.action in ("fired", "cleared")]
    levels, broken = list[MovedLevel](), list[MovedLevel]()
    if (workspace.warehouse / FILE_NAME).exists():
        with (
            Warehouse.open(workspace) as warehouse,
            contextlib.suppress(BenchError),
            Summaries.of(warehouse) as all_runs,
        ):
            cases = sorted(list_cases(all_runs), key=lambda case: case.runs, reverse=True)
            if len(cases) > _MOST_CASES:
                notes.append(f"of {len(cases)} histories, the {_MOST_CASES} longest are looked at")
            for case in cases[:_MOST_CASES]:
                with contextlib.suppress(BenchError):  # a history without a metric that can be followed
                    watched = history.watch_briefly(all_runs, case)
                    levels += _levels(case, watched, {run.run_id for run in page.runs})
                    broken += _broken(case, watched)
    notices = [item for item in told if item.time.replace("+00:00", "Z") >= (begun or "")]
    return Changes(begun, page.runs, levels, broken, standing, notices, notes)


def _levels(case: "HistoryCase", watched: Watched, new: set[str]) -> list[MovedLevel]:
    series = watched.history
    started = {run.run_id: run.started for run in series.runs}
    return [
        MovedLevel(
            case.label,
            series.name,
            f"{percent(change.change)}: {change.verdict}",
            change.run_after,
            started[change.run_after],
        )
        for change in series.changes
        if change.run_after in new
    ]


def _broken(case: "HistoryCase", watched: Watched) -> list[MovedLevel]:
    alarm, series = watched.alarm, watched.history
    if alarm is None or not alarm.worse:
        return []
    first = watched.later[alarm.since]
    sentence = f"{percent(alarm.change)} against the accepted level"
    return [MovedLevel(case.label, series.name, sentence, first.run_id, first.started)]
