"""The files of an evaluation: the request, the plan, and each run, recorded before it starts."""

from functools import cached_property
from typing import Literal

from pydantic import Field, ValidationError

from benchhouse.evidence import journals
from benchhouse.evidence.folder import list_folder
from benchhouse.evidence.writing import now, write_model
from benchhouse.nexus.evaluation import EvaluationPlan, EvaluationStep
from benchhouse.processes.owner_lock import OwnerLock
from benchhouse.runs.executor_choice import Where
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.errors import BenchError, NotFoundError, unwritable
from benchhouse.schema.layout import EvaluationFolder, WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.resources import Budget

State = Literal["begun", "complete", "incomplete", "refused", "not run"]


class PlannedRun(Model):
    """One run of an evaluation, with everything needed to start it."""

    benchmark: str = Field(description="`package/name`, or `package/model/name`.")
    file: str = Field(description="Its scenario file, or the label of one.")
    home: str = Field(description="Folder that relative paths start from.")
    scenario: str = Field(description="Text of the scenario, without the points that are reused.")
    plan_digest: str = Field(description="Of its plan.")


class Used(Model):
    """The part of the evaluation's budget that a run used."""

    trials: int = 0
    wall: float = 0
    cpu: float = 0
    cost: float = 0
    node_hours: float = 0
    gpu_hours: float = 0


class RunLine(Model):
    """A line of runs.jsonl: the state of one of the runs. The newest line of each run counts."""

    time: str = Field(description="When, UTC.")
    number: int = Field(description="Which of the planned runs, from 0.")
    state: State = Field(description="begun: it is to be begun under this id, or it goes on.")
    run_id: str = Field("", description="Its id; empty where it never began.")
    outcomes: dict[str, int] = Field(default_factory=dict, description="How its trials ended.")
    why: str = Field("", description="Why it is not complete.")
    next: str = Field("", description="What to do about it.")
    used: Used = Field(default_factory=Used, description="What it used in all.")


class EvaluationRecord(Model):
    """Contents of evaluation.json: the request and the plan. It never changes."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    evaluation_id: str = Field(description="Its id.")
    created: str = Field(description="When, UTC.")
    submitter: str = Field(description="Who asked for it.")
    asked: str = Field(description="What was asked for, as options of `bench evaluate`.")
    executor: str | None = Field(None, description="Where jobs go, whatever the scenarios say.")
    runtime: str | None = Field(None, description="What jobs run inside, whatever the scenarios say.")
    site: str | None = Field(None, description="The site that was named.")
    budget: Budget | None = Field(None, description="What all runs together may use.")
    plan: EvaluationPlan = Field(description="What is run and what is reused.")
    runs: list[PlannedRun] = Field(description="The runs, in their order.")

    @property
    def where(self) -> Where:
        return Where(self.executor, self.runtime, self.site)


class EvaluationLedger:
    """The files of one evaluation, and the lock of the process that works on it."""

    def __init__(self, folder: EvaluationFolder) -> None:
        self.folder = folder
        self._lock = OwnerLock(folder.lock)

    @classmethod
    def create(cls, workspace: WorkspaceFolder, record: EvaluationRecord) -> "EvaluationLedger":
        ledger = cls(workspace.evaluation(record.evaluation_id))
        try:
            ledger.folder.path.mkdir(parents=True, exist_ok=True)
            write_model(ledger.folder.record, record)
        except OSError as error:
            raise unwritable(ledger.folder.path, error, "bench evaluate") from error
        return ledger

    @cached_property
    def record(self) -> EvaluationRecord:
        path = self.folder.record
        try:
            return EvaluationRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError(
                f"there is no evaluation {self.folder.evaluation_id}", "see: bench evaluations"
            ) from error
        except ValidationError as error:
            raise BenchError(f"{path} can't be read by this version", "use the version that wrote it") from error

    @property
    def exists(self) -> bool:
        return self.folder.record.is_file()

    @property
    def begun(self) -> bool:
        """Whether a process has ever worked on it."""
        return self.folder.lock.exists()

    def owner(self) -> int | None:
        """Return the process id of its owner, 0 if the owner has not written it yet, or None if there is none."""
        return self._lock.owner()

    def own(self) -> None:
        """Become its only owner, or raise BenchError with the current one."""
        try:
            taken = self._lock.take()
        except OSError as error:
            raise unwritable(self.folder.lock, error, self.carry_on) from error
        if not taken:
            name, owner = self.folder.evaluation_id, self._lock.owner() or "unknown"
            raise BenchError(
                f"evaluation {name} is being worked on by process {owner}", f"look: bench evaluations {name}"
            )

    def release(self) -> None:
        self._lock.release()

    @property
    def carry_on(self) -> str:
        """The command that resumes it."""
        return f"bench evaluate --resume {self.folder.evaluation_id}"

    def lines(self) -> dict[int, RunLine]:
        """Return the newest line of each run, by its number."""
        return {line.number: line for line in journals.read(self.folder.journal, RunLine)[0]}

    def write(self, line: RunLine) -> RunLine:
        journals.append(self.folder.journal, line, self.carry_on)
        return line

    def begin(self, number: int, before: RunLine | None) -> RunLine:
        """Record the run's id before the run exists, so that a run killed in between is found again."""
        run_id, used = (before.run_id, before.used) if before else ("", Used())
        return self.write(RunLine(time=now(), number=number, state="begun", run_id=run_id or new_run_id(), used=used))


def planned_run(step: EvaluationStep) -> PlannedRun:
    """Return what the ledger stores of a step."""
    prepared = step.prepared
    return PlannedRun(
        benchmark=step.benchmark.benchmark,
        file=str(step.path),
        home=str(prepared.home.absolute()),
        scenario=prepared.file.text,
        plan_digest=prepared.plan.digest,
    )


def list_evaluations(workspace: WorkspaceFolder) -> list[str]:
    """Return the ids of all evaluations, oldest first."""
    return sorted(path.name for path in list_folder(workspace.evaluations) if EvaluationFolder(path).record.is_file())


def find_evaluation(workspace: WorkspaceFolder, name: str) -> EvaluationLedger:
    """Return the evaluation with this id or prefix, or the newest for `@last`. Raise BenchError if not exactly one."""
    known = list_evaluations(workspace)
    matches = known[-1:] if name == "@last" else [item for item in known if name and item.startswith(name)]
    if name in matches:
        matches = [name]
    if len(matches) > 1:
        raise BenchError(f"'{name}' could be {', '.join(matches[:4])}", "give more of the id")
    if not matches:
        raise NotFoundError(f"no evaluation '{name[:100]}'", "see: bench evaluations")
    return EvaluationLedger(workspace.evaluation(matches[0]))
