"""Read the logs of a run: list them, select lines, return the newest, and follow new ones."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from benchhouse.documents.problems import guess_hint
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.components import EXPERIMENT, ORCHESTRATOR, SLURM, WORKER, is_plain
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.logs import LogLine
from benchhouse.schema.quantities import parse_seconds

JOURNAL = "trial.jsonl"
_BLOCK_BYTES = 64 << 10
_PAUSE_S = 0.2
_time = attrgetter("time")
_MOST_KNOWN = 50_000
_known: dict[tuple[str, int, int], tuple[str, int]] = {}
"""Run and attempt of each folder, by path, inode, and last change. Cached because a scenario may have thousands."""


@dataclass(frozen=True)
class Selection:
    """The lines to read; by default all."""

    components: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()  # prefixes of ids
    since: str = ""  # in the format of the logs, so that text compares as time
    until: str = ""

    def has_times(self) -> bool:
        return bool(self.since or self.until)

    def takes_component(self, name: str) -> bool:
        return not self.components or name in self.components

    def takes_trial(self, trial_id: str) -> bool:
        return not self.trials or trial_id.startswith(self.trials)

    def takes_time(self, stamp: str) -> bool:
        stamp = stamp.replace("+00:00", "Z")
        return self.since <= stamp and (not self.until or stamp < self.until)


@dataclass(frozen=True)
class LogFolder:
    """A journal and raw logs in one folder: of a server that is attached to the run, or of a trial."""

    path: Path

    def place(self) -> Path:
        return self.path / "logs"

    def names(self) -> list[str]:
        """Return the names of log files and the journal, without odd names and links that an experiment put there."""
        try:
            entries = list(os.scandir(self.place()))
        except OSError:
            return []
        plain = [entry.name for entry in entries if is_plain(entry.name) and entry.is_file(follow_symlinks=False)]
        return sorted(name for name in plain if name == JOURNAL or name.endswith(".log"))

    def open(self, name: str) -> BinaryIO | None:
        for _ in range(3):  # it may move between looking and opening
            with contextlib.suppress(OSError):
                return (self.place() / name).open("rb")
        return None


@dataclass(frozen=True)
class TrialLogs(LogFolder):
    """The logs of one attempt at a trial, wherever its folder is now."""

    home: WorkspaceFolder
    scenario: str
    trial_id: str
    attempt: int

    def folder(self) -> TrialFolder:
        """Return the folder: running, set aside, or final. In this order a folder that moves is not missed."""
        running = self.home.partial(self.scenario, self.trial_id, self.attempt)
        aside = self.home.superseded(self.scenario, self.trial_id, self.attempt)
        folders = (folder for folder in (running, aside) if folder.path.is_dir())
        return next(folders, TrialFolder(self.path))

    def place(self) -> Path:
        return self.folder().logs


@dataclass
class RunLogs:
    """The logs of a run's trials, looked up repeatedly while the run is under way."""

    workspace: WorkspaceFolder
    run_id: str
    scenario: str = ""

    def __post_init__(self) -> None:
        self.scenario = Ledger(self.workspace.run(self.run_id)).record.scenario

    def trials(self, selection: Selection) -> list[TrialLogs]:
        """Return the sealed, set-aside, and running trials, by id and attempt."""
        results = self.workspace.results / self.scenario
        attempts = {
            (entry.name.partition(".")[0], attempt)
            for folder in (results / ".partial", results)
            for entry in _folders(folder)
            if selection.takes_trial(entry.name) and (attempt := self._attempt(entry))
        }
        home, trial = (self.workspace, self.scenario), self.workspace.trial
        return [TrialLogs(trial(self.scenario, name).path, *home, name, number) for name, number in sorted(attempts)]

    def folders(self, selection: Selection) -> list[LogFolder]:
        """Return trial folders and attached servers. Servers belong to no trial: selecting trials excludes them."""
        services = _folders(self.workspace.run(self.run_id).services) if not selection.trials else []
        attached = [LogFolder(Path(path)) for path in sorted(entry.path for entry in services)]
        return [*self.trials(selection), *attached]

    def _attempt(self, entry: "os.DirEntry[str]") -> int:
        """Return the attempt in the folder, or 0 if it is another run's. A name may get another folder."""
        try:
            seen = entry.stat(follow_symlinks=False)
            key = entry.path, seen.st_ino, seen.st_ctime_ns
            if key not in _known:
                spec = json.loads(TrialFolder(Path(entry.path)).spec.read_bytes())
                if len(_known) >= _MOST_KNOWN:
                    _known.clear()
                _known[key] = spec["run_id"], int(spec["attempt"])
            run_id, attempt = _known[key]
        except (OSError, ValueError, KeyError, TypeError):
            return 0  # is being written or moved
        return attempt if run_id == self.run_id else 0

    def is_running(self) -> bool:
        return Ledger(self.workspace.run(self.run_id)).owner() is not None

    def check(self, selection: Selection) -> list[LogFolder]:
        """Return the selected folders. Raise BenchError for a trial or a component that does not exist."""
        every = self.trials(Selection()) if selection.trials else []
        for beginning in selection.trials:
            if not any(trial.trial_id.startswith(beginning) for trial in every):
                hint = f"see: bench status {self.run_id}"
                raise BenchError(f"run {self.run_id} has no logs of a trial '{beginning}'", hint)
        folders = self.folders(selection)
        ours, names = {WORKER, ORCHESTRATOR, SLURM}, (name for folder in folders for name in folder.names())
        known = ours.union(map(component_of, names)) - {""}
        for component in selection.components:
            if component not in known:
                hint = f"{guess_hint(component, sorted(known))}there are: {', '.join(sorted(known))}"
                raise NotFoundError(f"no component '{component}' has written a log", hint)
        return folders


def component_of(name: str) -> str:
    """Return the component that writes a log file; empty for the journal."""
    stem = name.removesuffix(".log")
    return "" if name == JOURNAL else EXPERIMENT if stem in ("stdout", "stderr") else stem


def select(
    components: Iterable[str] = (), trials: Iterable[str] = (), since: str | None = None, until: str | None = None
) -> Selection:
    """Return a selection; `since` and `until` are `10m` (ago) or a time, UTC without a zone. Raise BenchError."""
    now_s = time.time()
    begin, end = moment(since, now_s), moment(until, now_s)
    if begin and end and begin >= end:
        raise BenchError(f"--since {begin} is not before --until {end}", "swap --since and --until")
    return Selection(tuple(components), tuple(trials), begin, end)


def moment(text: str | None, now_s: float) -> str:
    """Return a time in the format of the logs, for comparison; empty for None."""
    if not text:
        return ""
    try:
        when = datetime.fromtimestamp(now_s - parse_seconds(text), UTC)
    except (ValueError, OverflowError):
        try:
            given = datetime.fromisoformat(text.strip())
            when = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        except (ValueError, OverflowError):
            raise BenchError(
                f"'{text}' is not a time", "write 90s, 10m or 2h (ago), or 2026-11-15T10:00 (UTC), or ...T10:00+01:00"
            ) from None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tail(workspace: WorkspaceFolder, run_id: str, selection: Selection, n: int) -> list[LogLine]:
    """Return the newest lines of all trials and components, in the order of their times."""
    return _newest(RunLogs(workspace, run_id).check(selection), selection, n)[0]


def follow(workspace: WorkspaceFolder, run_id: str, selection: Selection, n: int) -> Iterator[list[LogLine]]:
    """Yield the newest lines, then new ones until the run has ended. Lines that arrive together are in order."""
    logs = RunLogs(workspace, run_id)
    running = logs.is_running()
    newest, read_to = _newest(logs.folders(selection), selection, n)
    yield newest
    while running:
        time.sleep(_PAUSE_S)
        running = logs.is_running()  # checked first: what is written before the end is read below
        came: list[LogLine] = []
        for folder in logs.folders(selection):
            lines, read_to[folder] = _new_lines(folder, selection, read_to.get(folder, 0))
            came += lines
        if came:
            yield sorted(came, key=_time)


def _newest(folders: Iterable[LogFolder], selection: Selection, n: int) -> tuple[list[LogLine], dict[LogFolder, int]]:
    """Return the last `n` lines of these folders, and how far each was read."""
    read_to: dict[LogFolder, int] = {}
    newest: list[LogLine] = []
    for folder in folders:
        lines, read_to[folder] = _last_lines(folder, selection, n)
        newest += lines
    return sorted(newest, key=_time)[-n:] if n else [], read_to


def selected_lines(data: bytes, selection: Selection) -> list[LogLine]:
    """Return the selected lines of a journal, without lines that a kill or a full disk cut off."""
    lines = []
    for text in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            lines.append(LogLine.model_validate_json(text))
    return [line for line in lines if selection.takes_component(line.component) and selection.takes_time(line.time)]


def _last_lines(folder: LogFolder, selection: Selection, n: int) -> tuple[list[LogLine], int]:
    """Return the last `n` selected lines, read from the end, and where the last whole line ends."""
    file = folder.open(JOURNAL)
    if file is None:
        return [], 0
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _BLOCK_BYTES))
        data = file.read(_BLOCK_BYTES)
        at = end = size - len(data) + data.rfind(b"\n") + 1  # the last line may still be incomplete
        lines: list[LogLine] = []
        rest = b""
        while at and len(lines) < n:
            begin = max(0, at - _BLOCK_BYTES)
            file.seek(begin)
            data = file.read(at - begin) + rest
            cut = data.find(b"\n") + 1 if begin else 0
            rest, lines, at = data[:cut], selected_lines(data[cut:], selection) + lines, begin
    return lines[-n:] if n else [], end


def _new_lines(folder: LogFolder, selection: Selection, begin: int) -> tuple[list[LogLine], int]:
    file = folder.open(JOURNAL)
    if file is None:
        return [], begin
    with file:
        file.seek(begin)
        data = file.read()
    end = data.rfind(b"\n") + 1
    return selected_lines(data[:end], selection), begin + end


def _folders(path: Path) -> list["os.DirEntry[str]"]:
    try:
        return [entry for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."]
    except OSError:
        return []
