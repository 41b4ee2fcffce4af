"""The run ledger: only files, so that status, resume, and stop work hours later, from another process or machine.

`run.json` is written once. `events.jsonl` only grows, one whole line at a time; a torn last line is ignored. Fields
that a newer version adds to an event are ignored, too; an event that only a newer version knows is counted (`events`).
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from benchhouse.evidence.folder import list_folder
from benchhouse.evidence.writing import now, write_model, write_text
from benchhouse.processes.durable import make_folders, put_in_place
from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.processes.owner_lock import OwnerLock
from benchhouse.schema.errors import BenchError, Exit, NotFoundError, unwritable
from benchhouse.schema.layout import RunFolder, WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.resources import Budget
from benchhouse.schema.trial import ExperimentRef


class ScheduledRun(Model):
    """The slot of a schedule that started a run."""

    schedule: str = Field(description="Name of the schedule.")
    due: str = Field(description="When the slot was due, UTC; of a run by hand, when it was asked for.")
    cadence: str = Field("", description="How people call it: nightly, weekly.")


class RunRecord(Model):
    """Contents of run.json: what was submitted."""

    schema_version: Literal[1] = 1
    run_id: str
    scenario: str
    scenario_file: str
    home: str = Field("", description="Folder that relative paths start from; empty: that of scenario_file.")
    created: str
    plan_digest: str
    points: int
    trials: int
    experiment: ExperimentRef
    executor: str
    runtime: str
    site: str | None = Field(None, description="The site that was named, by name or file; the workspace's own if none.")
    host: str
    command: list[str] = Field(description="The command line that submitted it.")
    conditions: dict[str, str] = Field(
        default_factory=dict, description="Digests of what the plan does not cover but a measurement depends on."
    )
    submitter: str = Field("", description="Who submitted it; empty: an earlier version did not write it down.")
    approval: str = Field("", description="Name of the approval by which it may go beyond its submitter's budget.")
    budget: Budget | None = Field(
        None, description="What it may use beside the scenario's own budget: of whoever started it without approval."
    )
    scheduled: ScheduledRun | None = Field(None, description="The slot of a schedule that made it, where one did.")

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the scenario start from."""
        return Path(self.home) if self.home else Path(self.scenario_file).parent


class RunEvent(Model):
    """One line of events.jsonl."""

    time: str
    event: Literal[
        "started", "submitted", "ended", "retry", "finished", "interrupted", "stopped", "resumed", "budget", "service"
    ]  # fmt: skip
    trial_id: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    reason: str = ""
    code: str = Field("", description="Of the failure, where there is one.")
    manifest: str | None = Field(None, description="sha256 of the sealed manifest.")
    duration_s: float | None = None
    cpu_s: float | None = None


class _EventRead(RunEvent):
    """A run event whose unknown fields, written by a newer version, are ignored."""

    model_config = ConfigDict(extra="ignore")


def new_run_id(newest: str = "") -> str:
    """Return a new run id that sorts by time, to the millisecond, and is unique without coordination.

    It sorts after `newest`, an id of an earlier run, even if the clock has been set back since then.
    """
    now = datetime.now(UTC)
    with contextlib.suppress(ValueError):
        latest = datetime.strptime(f"{newest[:19]}000", "%Y%m%d-%H%M%S-%f").replace(tzinfo=UTC)
        now = max(now, latest + timedelta(milliseconds=1))
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}{secrets.token_hex(2)}"


class Ledger:
    """The files of one run, and the lock of the process that works on it."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._events: int | None = None
        self._lock = OwnerLock(folder.lock)

    @classmethod
    def create(cls, workspace: WorkspaceFolder, record: RunRecord, texts: Mapping[str, str]) -> "Ledger":
        """Create the run folder with everything that resuming needs, whole or not at all.

        `texts` maps attributes of `RunFolder` to file contents. Raise BenchError if the folder can't be written.
        """
        folder = workspace.run(record.run_id)
        made = RunFolder(workspace.runs / temporary_name(record.run_id))
        try:
            sweep_temporaries(workspace.runs)
            make_folders(workspace.runs)
            made.worker_logs.mkdir(parents=True)
            for name, text in texts.items():
                write_text(getattr(made, name), text)
            write_model(made.record, record)
            put_in_place(made.path, folder.path)
        except OSError as error:
            shutil.rmtree(made.path, ignore_errors=True)
            raise unwritable(folder.path, error) from error
        return cls(folder)

    @property
    def record(self) -> RunRecord:
        try:
            return RunRecord.model_validate_json(self.folder.record.read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError(
                f"run {self.folder.run_id} was not made in this workspace: its ledger is not here",
                "what was pulled of it is read by: bench report, bench compare, bench query",
            ) from error
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "as a whole"
            raise BenchError(
                f"{self.folder.record} can't be read by this version ({where}: {error.errors()[0]['msg']})",
                "use the version that wrote it; if the file is damaged, read its trials by: bench warehouse rebuild",
            ) from error

    def hold_to(self, budget: Budget | None) -> None:
        """Set the budget that every session of the run is held to, in addition to its scenario's own."""
        try:
            write_model(self.folder.record, self.record.model_copy(update={"budget": budget}))
        except OSError as error:
            raise self.unwritable(self.folder.record, error) from error

    def approved(self, name: str, text: str, budget: Budget) -> None:
        """Record the approval by which the run continues, with its `text`, and hold the run to `budget`."""
        try:
            write_text(self.folder.approval, text)
            write_model(self.folder.record, self.record.model_copy(update={"approval": name, "budget": budget}))
        except OSError as error:
            raise self.unwritable(self.folder.record, error) from error

    def own(self) -> None:
        """Become the run's only orchestrator, or raise BenchError with the current one. The process holds the lock."""
        try:
            taken = self._lock.take()
        except OSError as error:
            raise self.unwritable(self.folder.lock, error) from error
        if not taken:
            raise self.busy(self._lock.owner())

    def busy(self, owner: int | None) -> BenchError:
        run_id = self.folder.run_id
        return BenchError(
            f"run {run_id} is being worked on by process {owner or 'unknown'}",
            f"watch it: bench status {run_id} --watch; end it: bench stop {run_id}",
        )

    def unwritable(self, path: Path, error: OSError) -> BenchError:
        hint = f"make room or make it writable; finished trials are kept: bench run --resume {self.folder.run_id}"
        return BenchError(f"can't write {path}: {error.strerror}", hint, Exit.TRIAL_FAILED)

    def release(self) -> None:
        self._lock.release()
        if self._events is not None:
            os.close(self._events)
        self._events = None

    def owner(self) -> int | None:
        """Return the process id of the live orchestrator, 0 if it has not written it yet, or None if there is none."""
        return self._lock.owner()

    def goes_on(self) -> bool:
        """Return whether jobs of this run may be under way without an orchestrator."""
        return self.folder.jobs.is_dir() and self.last_event() not in ("finished", "stopped")

    def last_event(self) -> str:
        """Return the last event that concerns the run as a whole; empty before the first."""
        return next(reversed([event.event for event in self.events() if event.event not in ("ended", "retry")]), "")

    def tell(self, event: str, **fields: Any) -> None:
        """Append one line with one write, so that lines never mix. A line that did not fit is ended, not continued."""
        item = RunEvent.model_validate({"time": now(), "event": event, **fields})
        line = item.model_dump_json(exclude_none=True).encode() + b"\n"
        try:
            if self._events is None:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._events = os.open(self.folder.events, flags, 0o644)
                size = os.fstat(self._events).st_size
                if size and os.pread(self._events, 1, size - 1) != b"\n":
                    os.write(self._events, b"\n")
            if os.write(self._events, line) < len(line):
                os.close(self._events)
                self._events = None
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self.unwritable(self.folder.events, error) from error

    def events(self, unread: list[str] | None = None) -> Iterator[RunEvent]:
        """Yield the events in order. Whole lines that are not events of this version (a newer one's) go to `unread`."""
        try:
            file = self.folder.events.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                try:
                    yield _EventRead.model_validate_json(line)
                except ValueError:
                    if unread is not None and not _is_torn(line):
                        unread.append(line)


def _is_torn(line: str) -> bool:
    """Return whether a line was cut off by a kill during the write; its trial's folder still has the facts."""
    try:
        return not isinstance(from_json(line), dict)
    except ValueError:
        return True


def list_runs(workspace: WorkspaceFolder) -> list[str]:
    """Return the ids of all runs of a workspace, oldest first."""
    record = RunFolder(workspace.runs).record.name
    return sorted(path.name for path in list_folder(workspace.runs) if os.path.isfile(f"{path}/{record}"))  # noqa: PTH113
