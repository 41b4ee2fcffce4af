"""Carry a run to its end: feed jobs, follow them, retry what the infrastructure broke, keep everything that is done."""

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.evidence.folder import read_meta, sealed_outcome, write_model
from benchhouse.evidence.verify import manifest_digest
from benchhouse.plan import Plan, PlannedTrial
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.schema.protocols import Executor, Job
from benchhouse.schema.trial import Attempt, TrialSpec, trial_id

_POLL_S = 0.5


@dataclass(frozen=True)
class Progress:
    """One step of a run, for whoever shows it."""

    done: int
    total: int
    running: int
    outcomes: dict[str, int]
    last: str = ""


@dataclass
class Active:
    """A trial on its way: handed to the executor, or waiting to be tried again."""

    planned: PlannedTrial
    trial_id: str
    attempt: int = 1
    previous: list[Attempt] = field(default_factory=list)
    not_before: float = 0.0
    started: float = 0.0


@dataclass
class Spent:
    """What the run has used so far, against its budget."""

    started: float
    trials: int = 0
    cpu_s: float = 0.0
    node_s: float = 0.0


class Orchestrator:
    """Owns one run from submit to its last sealed folder. All state that matters is on disk."""

    def __init__(
        self,
        workspace: Workspace,
        plan: Plan,
        ledger: Ledger,
        executor: Executor,
        python: tuple[str, ...],
        frame: dict[str, Any],
        effective: Callable[[TrialSpec], str],
        show: Callable[[Progress], None],
        rerun_failed: bool = False,
    ) -> None:
        self.workspace, self.plan, self.ledger, self.executor = workspace, plan, ledger, executor
        self.python, self.frame, self.effective, self.show = python, frame, effective, show
        self.rerun_failed = rerun_failed
        self.active: dict[str, Active] = {}
        self.waiting: deque[Active] = deque()
        self.outcomes: dict[str, int] = {}
        self.done = 0
        self.spent = Spent(time.monotonic())
        self.recorded: set[tuple[str, int | None]] = set()
        self.stopped = ""

    def run(self) -> dict[str, int]:
        """Run what is missing; returns how many trials ended in which outcome. Ctrl-C keeps what is done."""
        self._recall()
        todo = self._missing()
        try:
            while True:
                self._submit(self._due())
                fed = self._feed(todo)
                if not fed and not self.active and not self.waiting:
                    break
                self._follow()
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._abandon("interrupted" if interrupted else f"{type(error).__name__}: {error}")
            raise
        self.ledger.tell("budget", reason=self.stopped) if self.stopped else self.ledger.tell("finished")
        return self.outcomes

    def _recall(self) -> None:
        """What earlier sessions of this run used and recorded."""
        for event in self.ledger.events():
            if event.event == "ended" and event.trial_id:
                self.recorded.add((event.trial_id, event.attempt))
                self.spent.trials += 1
                self.spent.cpu_s += event.cpu_s or 0.0
                self.spent.node_s += (event.duration_s or 0.0) * self.plan.resources.nodes

    def _feed(self, todo: Iterator[Active]) -> bool:
        """Hand over as much as the executor can use now; False once there is nothing more to hand over."""
        batch: list[Active] = []
        while len(self.active) + len(batch) < self.executor.window:
            if self._over_budget(len(batch)):
                break
            item = next(todo, None)
            if item is None:
                break
            batch.append(item)
        self._submit(batch)
        return bool(batch)

    def _missing(self) -> Iterator[Active]:
        """Planned trials that have no sealed folder yet; what is sealed is counted, not run."""
        for planned in self.plan.trials():
            name = trial_id(self.ledger.folder.run_id, planned.instance_digest, planned.repetition, planned.warmup)
            folder = self.workspace.trial(self.plan.scenario.scenario, name)
            outcome = sealed_outcome(folder)
            if outcome is None:
                yield Active(planned, name)
            elif outcome != "succeeded" and self.rerun_failed:
                attempts = read_meta(folder).attempts
                self._set_aside(name, len(attempts))
                yield Active(planned, name, attempt=len(attempts) + 1, previous=attempts)
            else:
                self._remember(name, folder, outcome)
                self._count(outcome)

    def _remember(self, name: str, folder: TrialFolder, outcome: str) -> None:
        """Record a trial that was sealed in the moment before its orchestrator was killed."""
        attempt = len(read_meta(folder).attempts)
        if (name, attempt) not in self.recorded:
            digest = manifest_digest(folder)
            self.ledger.tell("ended", trial_id=name, attempt=attempt, outcome=outcome, manifest=digest)

    def _set_aside(self, name: str, attempt: int) -> None:
        scenario = self.plan.scenario.scenario
        self.workspace.trial(scenario, name).path.rename(self.workspace.superseded(scenario, name, attempt).path)

    def _submit(self, batch: list[Active]) -> None:
        jobs = []
        for item in batch:
            item.started = time.monotonic()
            jobs.append(self._job(item))
            self.active[item.trial_id] = item
        if jobs:
            self.spent.trials += len(jobs)
            self.executor.submit(jobs)

    def _job(self, item: Active) -> Job:
        spec = self.spec(item)
        folder = self.workspace.partial(spec.scenario, item.trial_id, item.attempt)
        try:
            shutil.rmtree(folder.path, ignore_errors=True)
            folder.path.mkdir(parents=True)
            folder.effective_config.write_text(self.effective(spec), encoding="utf-8")
            write_model(folder.spec, spec)
        except OSError as error:
            raise BenchError(
                f"can't write {folder.path}: {error.strerror}",
                "make room or make the folder writable; finished trials are kept",
                Exit.TRIAL_FAILED,
            ) from error
        log = self.ledger.folder.worker_logs / f"{item.trial_id}.{item.attempt}.log"
        return Job(item.trial_id, folder.path.absolute(), self.python, spec.resources, log.absolute())

    def spec(self, item: Active) -> TrialSpec:
        plan, planned = self.plan, item.planned
        instance = planned.instance
        return TrialSpec(
            trial_id=item.trial_id,
            run_id=self.ledger.folder.run_id,
            scenario=plan.scenario.scenario,
            instance_digest=planned.instance_digest,
            benchmark_case_id=instance.case_id(),
            workload_spec_digest=instance.workload_digest(),
            experiment=plan.experiment,
            component=plan.component,
            service=str(instance.target.get("driver") or plan.service),
            target=instance.target,
            parameters=instance.parameters,
            axes=plan.axes,
            repetition=planned.repetition,
            warmup=planned.warmup,
            seed=planned.seed,
            resources=plan.resources,
            limits=plan.limits,
            executor=plan.scenario.executor,
            runtime=plan.scenario.runtime.kind,
            partition=plan.scenario.partition,
            account=plan.scenario.account,
            qos=plan.scenario.qos,
            artifacts=plan.scenario.artifacts,
            binds=plan.scenario.binds,
            environment=plan.scenario.environment,
            attempt=item.attempt,
            previous_attempts=item.previous,
            final=str(self.workspace.trial(plan.scenario.scenario, item.trial_id).path.absolute()),
            **self.frame,
        )

    def _follow(self) -> None:
        wait_s = _POLL_S
        if self.waiting:
            wait_s = max(0.01, min(_POLL_S, min(item.not_before for item in self.waiting) - time.monotonic()))
        states = self.executor.poll(list(self.active), wait_s)
        for name, state in states.items():
            if state.phase == "done":
                self._ended(self.active.pop(name), state.reason)
        if self._over_budget(0) and self.stopped.startswith("the wall-clock"):
            self.executor.cancel(list(self.active))
            for item in self.active.values():
                self._discard(item)
            self.active.clear()
            self.waiting.clear()
        running = sum(state.phase == "running" for state in states.values())
        self.show(Progress(self.done, self.plan.trial_count, running, dict(self.outcomes), self.stopped))

    def _ended(self, item: Active, reason: str) -> None:
        """The folder is the truth: sealed, it counts; not sealed, the attempt was lost."""
        folder = self.workspace.trial(self.plan.scenario.scenario, item.trial_id)
        outcome = sealed_outcome(folder)
        if outcome is None:
            self._lost(item, reason or "the worker ended without sealing its folder")
            return
        meta = read_meta(folder)
        self.ledger.tell(
            "ended", trial_id=item.trial_id, attempt=item.attempt, outcome=outcome, manifest=manifest_digest(folder),
            reason=meta.failure.message[:500] if meta.failure else "", duration_s=meta.duration_s,
            cpu_s=meta.usage.get("cpu_s"),
        )  # fmt: skip
        self.spent.cpu_s += meta.usage.get("cpu_s") or 0.0
        self.spent.node_s += meta.duration_s * self.plan.resources.nodes
        if meta.failure and meta.failure.retryable and item.attempt <= self.plan.scenario.retries.max_retries:
            self._set_aside(item.trial_id, item.attempt)
            self._retry(item, meta.attempts, meta.failure.message)
            return
        self._count(outcome)

    def _lost(self, item: Active, reason: str) -> None:
        words = self._last_words(item)
        reason = f"{reason}: {words}" if words else reason
        attempt = Attempt(attempt=item.attempt, outcome="lost", reason=reason[:500])
        self.ledger.tell("ended", trial_id=item.trial_id, attempt=item.attempt, outcome="lost", reason=reason[:500])
        self._discard(item)
        if item.attempt <= self.plan.scenario.retries.max_retries and not self.stopped:
            self._retry(item, [*item.previous, attempt], reason)
        else:
            self._count("lost")

    def _retry(self, item: Active, previous: list[Attempt], reason: str) -> None:
        attempt = item.attempt + 1
        delay_s = self.plan.scenario.retries.delay_s(attempt)
        self.ledger.tell("retry", trial_id=item.trial_id, attempt=attempt, reason=reason[:500])
        self.waiting.append(
            Active(item.planned, item.trial_id, attempt, list(previous), not_before=time.monotonic() + delay_s)
        )

    def _due(self) -> list[Active]:
        now = time.monotonic()
        due = [item for item in self.waiting if item.not_before <= now]
        self.waiting = deque(item for item in self.waiting if item.not_before > now)
        return due

    def _discard(self, item: Active) -> None:
        folder = self.workspace.partial(self.plan.scenario.scenario, item.trial_id, item.attempt)
        shutil.rmtree(folder.path, ignore_errors=True)

    def _last_words(self, item: Active) -> str:
        log = self.ledger.folder.worker_logs / f"{item.trial_id}.{item.attempt}.log"
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def _count(self, outcome: str) -> None:
        self.done += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _over_budget(self, extra: int) -> bool:
        budget, spent = self.plan.scenario.budget, self.spent
        price = self.plan.scenario.price_per_hour
        if budget.trials is not None and spent.trials + extra >= budget.trials:
            self.stopped = f"the budget of {budget.trials} trials is spent"
        elif budget.wall is not None and time.monotonic() - spent.started >= budget.wall:
            self.stopped = f"the wall-clock budget of {budget.wall:g} s is spent"
        elif budget.cpu is not None and spent.cpu_s >= budget.cpu:
            self.stopped = f"the budget of {budget.cpu:g} s CPU time is spent"
        elif budget.cost is not None and price is not None and spent.node_s / 3600 * price >= budget.cost:
            self.stopped = f"the budget of {budget.cost:g} is spent"
        return bool(self.stopped)

    def _abandon(self, reason: str) -> None:
        """End what runs; unfinished folders go, finished ones stay."""
        with contextlib.suppress(OSError):
            self.ledger.tell("interrupted", reason=reason[:500])
        self.executor.cancel(list(self.active))
        for item in self.active.values():
            if sealed_outcome(self.workspace.trial(self.plan.scenario.scenario, item.trial_id)) is None:
                self._discard(item)


def sweep_partials(workspace: Workspace, scenario: str, run_id: str) -> list[Path]:
    """Remove unfinished folders that a killed orchestrator of this run left behind."""
    folder = workspace.results / scenario / ".partial"
    removed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(OSError, ValueError):
            spec = TrialFolder(path).spec
            if not spec.exists() or TrialSpec.model_validate_json(spec.read_bytes()).run_id == run_id:
                shutil.rmtree(path)
                removed.append(path)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return removed
