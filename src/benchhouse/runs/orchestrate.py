"""Take a run to its end: submit jobs, follow them, retry what the infrastructure broke, and keep finished trials."""

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from benchhouse.evidence.folder import discard, read_meta, sealed_outcome, withdraw
from benchhouse.evidence.request import make_folder
from benchhouse.evidence.verify import manifest_digest
from benchhouse.evidence.writing import now
from benchhouse.processes.durable import put_in_place
from benchhouse.processes.owned_names import remove_tree
from benchhouse.runs.budget import Overspent, Spent, most_used
from benchhouse.runs.endings import sealed_end
from benchhouse.runs.interrupts import Interrupts, reason_of
from benchhouse.runs.setup import ActiveTrial, RunSetup
from benchhouse.runs.stopping_rule import Enough, HeldTrials
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.protocols import Job, JobState
from benchhouse.schema.trial import Attempt, Meta, TrialSpec, joined, trial_id

_POLL_S = 0.5
_PROBE_BYTES = 64 << 10
_HOURS = ("wall", "node_hours", "gpu_hours")


@dataclass(frozen=True)
class ProgressReport:
    """The progress of a run after one step, for display."""

    done: int
    total: int
    running: int
    outcomes: dict[str, int]
    last: str = ""


class Orchestrator:
    """Owner of one run, from submission to its last sealed folder. All state that matters is on disk."""

    def __init__(
        self,
        setup: RunSetup,
        show: Callable[[ProgressReport], None],
        sealed: Callable[[TrialFolder], None] | None,  # called with each folder that this session seals
        enough: Enough | None,
        *,
        rerun_failed: bool,
    ) -> None:
        self.setup, self.show, self.sealed = setup, show, sealed
        self.holding = HeldTrials(enough)
        self.workspace, self.plan, self.ledger = setup.workspace, setup.plan, setup.ledger
        self.executor, self.python, self.attached = setup.executor, setup.python, setup.attached
        self.rerun_failed = rerun_failed
        self.active: dict[str, ActiveTrial] = {}
        self.waiting: list[ActiveTrial] = []
        self.outcomes: dict[str, int] = {}
        self.done = 0
        self.started = time.monotonic()
        self.spent = Spent()
        self.running_since: dict[str, float] = {}  # trials that were seen running
        self.recorded: set[str] = set()  # digests of manifests that the ledger has
        self.adopted: Mapping[str, int] = {}  # trials that an earlier session submitted, with their attempts
        self.handed: set[str] = set()  # trials submitted to the executor, by any session
        self.unsealed: dict[str, str] = {}  # trials that ended without evidence, with their outcomes
        self.last_turn_counts = False
        self.there: set[str] = set()  # names in the results folder when this session began
        self.history: dict[str, dict[int, Attempt]] = {}  # attempts of trials that have not succeeded
        self.stopped = ""
        self.stopped_by: Literal["budget", "service"] = "budget"
        self.interrupts = Interrupts()

    def hand_over(self, *, again: bool, only_look: bool = False) -> int:
        """Do one turn: check what earlier turns submitted, submit what is missing, and leave it to the executor.

        Only for an executor whose jobs outlive this process. With `again`, trials without retries left are tried again,
        as when a person resumes a run. Without it, an interrupted run is only checked, and so is a run that may not
        continue (`only_look`). Return the number of trials under way.
        """
        self.last_turn_counts = not again
        self._recall()
        todo = self._missing()
        interrupted = only_look or (not again and self.ledger.last_event() == "interrupted")
        with self.interrupts:
            if interrupted:
                deque(todo, maxlen=0)  # finds the trials that are under way
            else:
                self._feed(todo)
            if self.active:
                self._follow(0.0)
            if not interrupted:
                self._feed(todo)
        if self.stopped:
            self.ledger.tell(self.stopped_by, reason=self.stopped[:500])
        elif not self.active and not self.waiting:
            self._last_look()
            incomplete = self.done < self.plan.trial_count or bool(self.unsealed)
            stays_ended = incomplete if interrupted else self.ledger.last_event() in ("budget", "service")
            if not stays_ended:
                self.ledger.tell("finished")
        return len(self.active)

    def run(self) -> dict[str, int]:
        """Run what is missing and return the number of trials per outcome. Ctrl-C keeps what is done."""
        self._recall()
        todo = self._missing()
        with self.interrupts:
            try:
                while self._feed(todo) or self.active or self.waiting:
                    self._follow()
                self._last_look()
            except BaseException as error:  # remove unfinished folders, keep finished ones
                with contextlib.suppress(OSError, BenchError):
                    self._cancel(list(self.active))
                with contextlib.suppress(OSError, BenchError):
                    self.ledger.tell("interrupted", reason=reason_of(error)[:500])
                raise
        if self.stopped:
            self.ledger.tell(self.stopped_by, reason=self.stopped[:500])
        elif lost := self.outcomes.get("lost"):
            self.ledger.tell("interrupted", reason=f"{lost} trials were lost")
        else:
            self.ledger.tell("finished")
        return self.outcomes

    def _last_look(self) -> None:
        """Cancel all submitted jobs, which a batch system may have started twice, and count what they have sealed."""
        if not self.executor.outlives or not self.handed:
            return
        self.executor.cancel(list(self.handed))
        for name, outcome in self.unsealed.items():
            folder = self._folder(name)
            if (sealed := sealed_outcome(folder)) is not None:
                self._record(name, folder, sealed)
                self.outcomes[outcome] -= 1
                self.outcomes[sealed] = self.outcomes.get(sealed, 0) + 1
        self.outcomes = {outcome: count for outcome, count in self.outcomes.items() if count}

    def _recall(self) -> None:
        self.adopted = self.executor.adopt()
        self.handed.update(self.adopted)
        if self._results.is_dir():
            self.there = {entry.name for entry in os.scandir(self._results)}
        self.spent = Spent.recall(self.ledger.events(), *self._most_used, now())
        for event in self.ledger.events():
            if event.event != "ended" or not event.trial_id:
                continue
            if event.manifest:
                self.recorded.add(event.manifest)
            if event.outcome != "succeeded":
                attempt = {"attempt": event.attempt, "outcome": event.outcome, "reason": event.reason}
                tried = Attempt.model_validate(attempt | {"ended": event.time})
                self.history.setdefault(event.trial_id, {})[tried.attempt] = tried

    def _feed(self, todo: Iterator[ActiveTrial]) -> bool:
        """Submit as many trials as the executor can use now. Return False if none was submitted."""
        batch: list[ActiveTrial] = []
        while not self.stopped and len(self.active) + len(batch) < self.executor.window:
            item = self._due() or self.holding.next(todo, self._under_way(batch))
            if item is None:
                break
            if over := self._overspent(len(batch)):
                self.stopped = over.message
                break
            batch.append(item)
        if self.stopped:
            self.waiting.clear()
        jobs = []
        for item in batch:
            jobs.append(self._job(item))
            self.active[item.trial_id] = item
        if jobs:
            self.handed.update(item.trial_id for item in batch)
            self.spent.trials += len(jobs)
            self.attached.ensure()
            self.executor.submit(jobs)
        return bool(jobs)

    def _under_way(self, batch: list[ActiveTrial]) -> Iterator[ActiveTrial]:
        """Yield the trials under way at the time of iteration, not of the call: `_missing` adopts trials in between."""
        yield from (*self.active.values(), *self.waiting, *batch)

    def _missing(self) -> Iterator[ActiveTrial]:
        """Yield the planned trials that have no sealed folder yet; sealed ones are counted, not run."""
        run_id = self.ledger.folder.run_id
        for planned in self.plan.trials():
            self.interrupts.check()
            name = trial_id(run_id, planned.instance_digest, planned.repetition, planned.warmup)
            outcome = sealed_outcome(folder := self._folder(name)) if name in self.there else None
            if outcome is None:
                if name in self.there:
                    raise BenchError(
                        f"{folder.path} is there, but its manifest is not readable",
                        f"see: bench verify {folder.path}; move it away to run this trial again",
                        Exit.TRIAL_FAILED,
                    )
                previous = self._previous(name)
                item = ActiveTrial(planned, name, previous[-1].attempt + 1 if previous else 1, previous)
                if self.adopted.get(name, 0) >= item.attempt:  # under way since an earlier session
                    item.attempt = self.adopted[name]
                    self.active[name] = item
                elif (
                    previous
                    and self.last_turn_counts
                    and not (previous[-1].outcome == "lost" and len(previous) <= self.plan.scenario.retries.max_retries)
                ):
                    self.unsealed[name] = previous[-1].outcome
                    self._count(previous[-1].outcome)
                else:
                    yield item
            elif outcome != "succeeded" and self.rerun_failed:
                self._record(name, folder, outcome)
                attempts = read_meta(folder).attempts
                yield ActiveTrial(planned, name, attempts[-1].attempt + 1, attempts)
            elif manifest_digest(folder) not in self.recorded:  # sealed just before the orchestrator was killed
                attempts = read_meta(folder).attempts
                self._ended(ActiveTrial(planned, name, attempts[-1].attempt, attempts[:-1]), JobState("done"))
            else:
                self._count(outcome)

    def _previous(self, name: str) -> list[Attempt]:
        """Return earlier attempts at a trial: from set-aside folders, or from the ledger if they left none."""
        if name not in self.history:
            return []
        tried = dict(self.history[name])
        for number in tried:
            folder = self.workspace.superseded(self.plan.scenario.scenario, name, number)
            if folder.sealed:
                tried[number] = read_meta(folder).attempts[-1]
        return [tried[number] for number in sorted(tried)]

    def _folder(self, name: str) -> TrialFolder:
        return self.workspace.trial(self.plan.scenario.scenario, name)

    @cached_property
    def _most_used(self) -> tuple[int, int]:
        return most_used(self.plan)

    def _set_aside(self, name: str, attempt: int) -> None:
        put_in_place(
            self._folder(name).path, self.workspace.superseded(self.plan.scenario.scenario, name, attempt).path
        )

    def _job(self, item: ActiveTrial) -> Job:
        differs = self._differs(item)
        if item.previous and (folder := self._folder(item.trial_id)).sealed:  # a failed trial that will run again
            try:
                self._set_aside(item.trial_id, item.previous[-1].attempt)
            except OSError as error:
                raise self.ledger.unwritable(folder.path, error) from error
        if self.executor.outlives:
            delay_s = max(0.0, item.not_before - time.monotonic()) if item.not_before else 0.0
            return Job(
                item.trial_id, self._results, self.python(item.planned.runtime), item.planned.resources,
                self.ledger.folder.worker_logs.absolute(), frame=self.setup.shared_frame, differs=differs,
                delay_s=delay_s,
            )  # fmt: skip
        folder = self._partial(item)
        try:
            make_folder(folder, TrialSpec.model_validate(joined(self.setup.trial_frame, differs, self._results)))
        except OSError as error:
            discard(folder.path)
            raise self.ledger.unwritable(folder.path, error) from error
        log = self._log(item).absolute()
        python = self.python(item.planned.runtime)
        return Job(item.trial_id, folder.path.absolute(), python, item.planned.resources, log)

    def _differs(self, item: ActiveTrial) -> dict[str, Any]:
        plan, planned = self.plan, item.planned
        target = planned.target
        own = {"experiment": planned.experiment.model_dump()} if planned.experiment != plan.experiment else {}
        own |= {"resources": planned.resources.model_dump()} if planned.resources != plan.resources else {}
        own |= {"runtime": planned.runtime.model_dump()} if planned.runtime != plan.scenario.runtime else {}
        return own | {
            "trial_id": item.trial_id,
            "instance_digest": planned.instance_digest,
            "service": plan.service if plan.service_is_explicit else str(target.get("driver") or plan.service),
            "target": target,
            "parameters": planned.parameters,
            "repetition": planned.repetition,
            "warmup": planned.warmup,
            "seed": planned.seed,
            "attempt": item.attempt,
            "previous_attempts": [attempt.model_dump(mode="json") for attempt in item.previous],
        }

    @cached_property
    def _results(self) -> Path:
        return (self.workspace.results / self.plan.scenario.scenario).absolute()

    def _follow(self, wait_s: float = _POLL_S) -> None:
        if self.waiting:
            wait_s = max(0.01, min(_POLL_S, min(item.not_before for item in self.waiting) - time.monotonic()))
        states = self.executor.poll(list(self.active), wait_s)
        self.interrupts.check()
        for name, state in states.items():
            if state.phase == "running":
                self.running_since.setdefault(name, time.monotonic())
            elif state.phase == "done":
                self.running_since.pop(name, None)
                self._ended(self.active.pop(name), state)
        self._keep_budget(states)
        self._stop_without_services(states)
        self.executor.submit([])  # start queued trials before further trials are prepared
        running = sum(state.phase == "running" for state in states.values())
        self.show(ProgressReport(self.done, self.plan.trial_count, running, dict(self.outcomes), self.stopped))

    def _keep_budget(self, states: Mapping[str, JobState]) -> None:
        """Cancel trials when the budget is spent: all of them for wall time, node hours, and GPU hours; only pending
        ones for money and CPU time, where running trials may finish."""
        over = self._overspent(0)
        if over is None or over.what == "trials":
            return
        names = [name for name in self.active if over.what in _HOURS or states[name].phase == "pending"]
        if names:
            self.stopped = over.message
            self._cancel(names)

    def _stop_without_services(self, states: Mapping[str, JobState]) -> None:
        """Stop starting trials when an attached server has ended; running trials notice on their own."""
        if not self.stopped and (message := self.attached.over()):
            self.stopped, self.stopped_by = message, "service"
            self.waiting.clear()
            self._cancel([name for name in self.active if states[name].phase == "pending"])

    def _overspent(self, extra: int) -> Overspent | None:
        scenario = self.plan.scenario
        now_s = time.monotonic()
        session_s, running_s = now_s - self.started, sum(now_s - since for since in self.running_since.values())
        spent = self.spent.with_running(running_s, *self._most_used)
        return spent.over(scenario.budget, scenario.price_per_hour, session_s, extra)

    def _ended(self, item: ActiveTrial, state: JobState) -> None:
        """Record the end of an attempt. Without a sealed folder it is lost, or as the executor reports."""
        folder = self._folder(item.trial_id)
        outcome = sealed_outcome(folder)
        if outcome is None:
            self._withdraw(item)
            outcome = sealed_outcome(folder)  # it can't be sealed from now on, but it may just have been
        if outcome is None:
            self._unsealed(item, state)
            return
        meta = self._record(item.trial_id, folder, outcome)
        if meta.failure and meta.failure.retryable and self._tries(item) < self.plan.scenario.retries.max_retries:
            self._set_aside(item.trial_id, item.attempt)
            self._retry(item, meta.attempts, meta.failure.message)
            return
        self._count(outcome)

    def _record(self, name: str, folder: TrialFolder, outcome: str) -> Meta:
        """Record a sealed folder in the ledger, once."""
        meta, manifest = read_meta(folder), manifest_digest(folder)
        if manifest not in self.recorded:
            self.recorded.add(manifest)
            self.spent.add(meta.usage.get("cpu_s"), meta.duration_s, *self._most_used)
            self.ledger.tell("ended", **sealed_end(name, meta, outcome, manifest))
            if self.sealed:
                self.sealed(folder)
        return meta

    def _unsealed(self, item: ActiveTrial, state: JobState) -> None:
        reason = state.reason or "the worker ended without sealing its folder"
        with contextlib.suppress(OSError):
            last_lines = self._log(item).read_text(errors="replace").strip().splitlines()[-1:]
            reason = ": ".join([reason, *last_lines])
        reason = reason[:500]
        outcome = state.outcome or "lost"
        attempt = Attempt(attempt=item.attempt, outcome=outcome, reason=reason, job=state.detail or None)
        self.ledger.tell("ended", trial_id=item.trial_id, attempt=item.attempt, outcome=outcome, reason=reason)
        again = outcome == "lost" and self._tries(item) < self.plan.scenario.retries.max_retries
        if again and not self.stopped:
            self._retry(item, [*item.previous, attempt], reason)
        else:
            self.unsealed[item.trial_id] = outcome
            self._count(outcome)

    def _tries(self, item: ActiveTrial) -> int:
        """Return the retries of this session, or of all sessions when each session is only one turn."""
        return len(item.previous) if self.last_turn_counts else item.retries

    def _withdraw(self, item: ActiveTrial) -> None:
        """Remove what a lost attempt left. Raise BenchError if the disk is full: no further trial could be kept."""
        folder, taken = self._partial(item).path, None
        try:
            if taken := withdraw(folder):
                (taken / ".probe").write_bytes(bytes(_PROBE_BYTES))
        except OSError as error:
            raise self.ledger.unwritable(folder, error) from error
        finally:
            if taken:
                remove_tree(taken)

    def _retry(self, item: ActiveTrial, previous: list[Attempt], reason: str) -> None:
        retries, attempt = item.retries + 1, item.attempt + 1
        self.ledger.tell("retry", trial_id=item.trial_id, attempt=attempt, reason=reason[:500])
        not_before = time.monotonic() + self.plan.scenario.retries.delay_s(retries + 1)
        self.waiting.append(ActiveTrial(item.planned, item.trial_id, attempt, list(previous), retries, not_before))

    def _due(self) -> ActiveTrial | None:
        """Return the next trial to retry, or None. All are due for a batch system, which applies the delay itself."""
        now = math.inf if self.executor.outlives else time.monotonic()
        due = next((item for item in self.waiting if item.not_before <= now), None)
        if due:
            self.waiting.remove(due)
        return due

    def _partial(self, item: ActiveTrial) -> TrialFolder:
        return self.workspace.partial(self.plan.scenario.scenario, item.trial_id, item.attempt)

    def _log(self, item: ActiveTrial) -> Path:
        return self.ledger.folder.worker_logs / f"{item.trial_id}.{item.attempt}.log"

    def _count(self, outcome: str) -> None:
        self.done += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _cancel(self, names: Collection[str]) -> None:
        """Cancel these trials. One that was sealed at the last moment counts; the others are as if never started."""
        self.executor.cancel(list(names))
        for name in names:
            item = self.active.pop(name)
            discard(self._partial(item).path)
            if sealed_outcome(self._folder(name)) is None:
                self.spent.trials -= 1
                if self.executor.outlives:  # otherwise a later session would wait for its job
                    end = {"outcome": "cancelled", "reason": (self.stopped or "interrupted")[:500]}
                    self.ledger.tell("ended", trial_id=name, attempt=item.attempt, **end)
            else:
                self._ended(item, JobState("done"))
