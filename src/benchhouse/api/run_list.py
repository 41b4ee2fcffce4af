"""Runs page by page, newest first: `ws.run_page(state="running")`."""

import time
from dataclasses import dataclass, field
from typing import TypedDict

from benchhouse.runs import pulled_runs
from benchhouse.runs.ledger import list_runs
from benchhouse.runs.logs import moment
from benchhouse.runs.status import RunStatus, State, status
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

_MOST_READ = 500  # runs that are examined for one page, however few of them match
_MOST_KEPT = 4096
_Stamp = tuple[int, int]
_finished: dict[str, tuple[_Stamp, RunStatus]] = {}  # by the path of the run's events


class RunFilters(TypedDict, total=False):
    """Which runs to return."""

    scenario: str | None
    """Only runs of this scenario."""
    state: State | None
    """running, waiting, to be collected, finished, interrupted, or pulled (made elsewhere)."""
    since: str | None
    """Started since then: `2026-11-15T10:00` (UTC, or with a zone), or `2h` for two hours ago."""


@dataclass(frozen=True)
class RunPage:
    """Some runs, newest first, and where the next page begins."""

    runs: list[RunStatus]
    cursor: str | None
    """Value of `after` for the next page, which may be empty; None if there is no next page. It stays valid when runs
    are added or removed."""
    unreadable: list[str] = field(default_factory=list)
    """Problems of runs on this page whose files can't be read."""


def run_page(folder: WorkspaceFolder, filters: RunFilters, after: str | None, limit: int) -> RunPage:
    """Return runs that were made or pulled here. At most 500 are examined per page, so it may be shorter than
    `limit`."""
    since = moment(filters.get("since"), time.time())
    if limit < 1:
        raise BenchError("limit: at least 1", "the number of runs of a page")
    made_here = set(list_runs(folder))
    elsewhere = {entry.run_id: entry for entry in pulled_runs.entries(folder, made_here)}
    known = sorted({*made_here, *elsewhere}, reverse=True)
    earlier = [run_id for run_id in known if after is None or run_id < after]
    pulled_runs.statuses(folder, [elsewhere[run_id] for run_id in earlier[:_MOST_READ] if run_id in elsewhere])
    runs, unreadable = list[RunStatus](), list[str]()
    for count, run_id in enumerate(earlier, 1):
        try:
            run = (
                pulled_runs.statuses(folder, [elsewhere[run_id]])[0] if run_id in elsewhere else _status(folder, run_id)
            )
        except BenchError as error:
            unreadable.append(error.message)
            continue
        if since and run.created.replace("+00:00", "Z") < since:
            if run_id in elsewhere:  # clocks and names may differ there
                continue
            break
        if filters.get("scenario") in (None, run.scenario) and filters.get("state") in (None, run.state):
            runs.append(run)
        if (len(runs) == limit or count == _MOST_READ) and count < len(earlier):
            return RunPage(runs, run_id, unreadable)
    return RunPage(runs, None, unreadable)


def _status(folder: WorkspaceFolder, run_id: str) -> RunStatus:
    """Return the status of a run. Most runs of a page are finished; theirs is cached until the ledger grows."""
    events = folder.run(run_id).events
    try:
        found = events.stat()
    except OSError:
        return status(folder, run_id)
    stamp, key = (found.st_mtime_ns, found.st_size), str(events)
    kept = _finished.get(key)
    if kept and kept[0] == stamp:
        return kept[1]
    run = status(folder, run_id)
    if run.state == "finished":
        if len(_finished) >= _MOST_KEPT:
            _finished.clear()
        _finished[key] = stamp, run
    return run
