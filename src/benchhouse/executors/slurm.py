"""Run trials on a Slurm cluster: one array per submission, with files on the shared file system as the truth about
trials.

See docs/design/slurm.md.
"""

import contextlib
import itertools
import json
import math
import os
import time
from array import array as numbers
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import to_json

from benchhouse.executors import slurm_calls as calls
from benchhouse.executors.slurm_calls import ENDED, WAITING, TaskState, UnreachableError
from benchhouse.executors.slurm_keepers import SlurmKeepers, alive
from benchhouse.executors.slurm_script import Array, script
from benchhouse.processes.durable import make_folders, write_whole
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import SubmissionFolder
from benchhouse.schema.protocols import Assignment, Job, JobId, JobState
from benchhouse.schema.resources import Resources
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.site import site_folder
from benchhouse.schema.slurm import SlurmSubmission, submissions
from benchhouse.schema.trial import Outcome

_SOON_S = 2.0  # between two queries to Slurm, at first
_SETTLE_S = 1.0  # a folder sealed on another node may become visible shortly after its job has ended
_END_S = 30.0  # a task whose trials are all sealed usually ends within half a second
_CANCEL_S = 180.0
_OUTAGE_S = 900.0  # how long a submission waits for a controller, which may be restarted
_FINAL: Mapping[str, Outcome] = {
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out_of_memory",
    "CANCELLED": "cancelled",
}
_NEVER = {
    "AccountNotAllowed", "AssocMaxWallDurationPerJobLimit", "BadConstraints", "DependencyNeverSatisfied",
    "InvalidAccount", "InvalidQOS", "PartitionNodeLimit", "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit",
    "QosNotAllowed",
}  # fmt: skip  # why a job waits, where waiting does not help
_UNKNOWN = TaskState("PENDING")
_GONE = TaskState("COMPLETED", "forgotten")


class SlurmExecutor:
    """Submits, queries, and cancels jobs. Everything it must remember is in the run's `jobs` folder."""

    outlives = True

    def __init__(self, assignment: Assignment) -> None:
        self.scenario, self.site = assignment.scenario or Scenario(scenario="run"), assignment.site
        self.run = assignment.run
        settings, site = self.scenario.slurm, self.site.slurm
        self.pack = settings.pack
        asked = "parallel" in self.scenario.model_fields_set
        tasks = max(1, self.scenario.parallel // settings.together) if asked else None
        self.throttle = min(filter(None, (settings.throttle, tasks)), default=site.throttle)
        self.window = (site.max_jobs or 20_000) * self.pack
        self._tasks: dict[JobId, str] = {}  # by trial: JOB_INDEX
        self._results: dict[JobId, Path] = {}  # the parent of each sealed folder
        self._sizes: dict[str, int] = {}  # trials of a task
        self._names: dict[str, str] = {}  # of jobs that may still run, by id
        self._states: dict[str, TaskState] = {}
        self._wait_s, self._next_look = _SOON_S, 0.0
        self._trouble = ""
        self.keepers: SlurmKeepers = SlurmKeepers(self.scenario, self.site)

    def sweep(self) -> None:
        """Do nothing: `adopt` finds the jobs again."""

    def check(self, resources: Resources) -> None:
        """Raise BenchError if Slurm itself would refuse such a job."""
        calls.check_script(self._script(self._array(1, 1, ("true",), resources)))

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        """Return the complete script of the first array."""
        tasks = math.ceil(trials / self.pack)
        most = min(tasks, self.site.slurm.max_array or calls.largest_array())
        labels = [job.label for job in jobs]
        if trials > len(jobs):
            labels.append(f"... and {trials - len(jobs)} more")
        if tasks > most:
            labels.append(f"the first of {math.ceil(tasks / most)} arrays")
        return self._script(replace(self._array(1, most, jobs[0].python, jobs[0].resources), labels=labels))

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        """Submit one array per set of equal requests, because the tasks of an array are alike.

        Retries form an array of their own, which waits as long as the longest delay among them.
        """
        parts: dict[tuple[bool, Resources, tuple[str, ...]], list[Job]] = defaultdict(list)
        for job in jobs:
            parts[bool(job.delay_s), job.resources, job.python].append(job)
        most = self.pack * (self.site.slurm.max_array or calls.largest_array()) if parts else 1
        for part in parts.values():
            for start in range(0, len(part), most):
                self._send(part[start : start + most])
        return [job.id for job in jobs]

    def adopt(self) -> Mapping[JobId, int]:
        attempts: dict[JobId, int] = {}
        for folder in submissions(self.run.jobs):
            done = self._submitted(folder)
            if not done.job_id:
                continue
            results = Path(json.loads(folder.frame.read_bytes())["results"])
            with folder.tasks.open(encoding="utf-8") as lines:
                packs = [[(item["trial_id"], item["attempt"]) for item in json.loads(line)] for line in lines]
            attempts.update(item for pack in packs for item in pack)
            self._remember(done, results, [[trial for trial, _ in pack] for pack in packs])
        return attempts

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        """Return the states as soon as a trial has ended. Slurm is queried less often while nothing happens."""
        deadline = time.monotonic() + wait_s
        pause_s = min(max(len(ids) / 5000, 0.1), 2.0)  # listing a folder of ten thousand trials takes time
        while True:
            states = self._look(ids)
            left = deadline - time.monotonic()
            if left <= 0 or any(state.phase == "done" for state in states.values()):
                return states
            time.sleep(min(pause_s, left))

    def cancel(self, ids: Sequence[JobId]) -> None:
        """Cancel whole tasks; a task continues if only some of its trials are to end.

        A task with nothing left to do gets a moment to end on its own, so that Slurm's accounting does not record it as
        cancelled.
        """
        wanted, sealed = set(ids), self._sealed(list(self._tasks))
        at_work = {task for trial, task in self._tasks.items() if trial not in sealed}
        kept = {task for trial, task in self._tasks.items() if trial not in sealed and trial not in wanted}
        tasks = {self._tasks[trial] for trial in wanted if trial in self._tasks} - kept
        if not tasks:
            return
        names = [self._names[job] for job in {_job(task) for task in tasks}]
        known: Mapping[str, TaskState] = {}
        with contextlib.suppress(UnreachableError):  # running tasks are cancelled anyway
            known = calls.states(names)
        ending = {task for task in known if task not in at_work and known[task].state not in ENDED | WAITING}
        waits = {task for task in tasks if task in known and known[task].state in WAITING}
        now = tasks & at_work | waits
        jobs, mixed = {_job(task) for task in now}, {_job(task) for task in kept | ending}
        calls.cancel([*sorted(jobs - mixed), *sorted(task for task in now if _job(task) in mixed)])
        self._await_end(tasks | ending, names, ending)

    def _await_end(self, tasks: set[str], names: Sequence[str], ending: set[str]) -> None:
        """Wait until none of the tasks runs, and cancel those that should have ended on their own but have not.

        A completing task of the latter kind counts as ended: it waits only for the site's own work after a job.
        """
        began, pause_s = time.monotonic(), 0.05
        while (passed_s := time.monotonic() - began) < _CANCEL_S:
            known = calls.states(names)
            over = {task: ENDED | {"COMPLETING"} if task in ending else ENDED for task in tasks}
            left = {task for task in tasks if task in known and known[task].state not in over[task]}
            if not left:
                return
            if passed_s > _END_S:
                calls.cancel(sorted(left & ending))
                ending = set()
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)
        first = ", ".join(sorted(left)[:5])
        raise BenchError(f"Slurm has not ended {first} within {_CANCEL_S:g} s", "look: squeue; then stop again")

    def close(self) -> None:
        """Do nothing: the jobs continue without this process."""

    def _look(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        sealed = self._sealed(ids)
        if len(sealed) < len(ids) and time.monotonic() >= self._next_look:
            if self._ask({self._tasks[trial] for trial in ids if trial not in sealed}):
                time.sleep(_SETTLE_S)
            sealed = self._sealed(ids)
        return {trial: JobState("done") if trial in sealed else self._state(trial) for trial in ids}

    def _sealed(self, ids: Sequence[JobId]) -> set[JobId]:
        folders = {self._results[trial] for trial in ids}
        return {entry.name for folder in folders if folder.is_dir() for entry in os.scandir(folder)}.intersection(ids)

    def _ask(self, wanted: Collection[str]) -> bool:
        """Query all tasks at once, and the accounting for those that Slurm forgot. Return True if a task has ended."""
        wanted = {task for task in wanted if self._states.get(task, _UNKNOWN).state not in ENDED}
        try:
            known = calls.states({self._names[_job(task)] for task in wanted}) if wanted else {}
            arrays = {_job(task) for task in known}
            if forgotten := {task for task in wanted if task not in known}:
                known |= calls.recorded(forgotten)
            self._trouble = ""
        except UnreachableError as error:
            self._trouble = error.message
            self._again(_SOON_S)
            return False
        changed = {}
        for task in wanted:
            state = known.get(task) or self._vanished(task, arrays)
            if state.state in WAITING and state.reason in _NEVER:
                calls.cancel([task])
                state = TaskState("CANCELLED", f"it would never start: {state.reason}")
            if state != self._states.get(task):
                changed[task] = state
        self._states |= changed
        self._note(changed)
        self._again(_SOON_S if changed else min(self._wait_s * 1.5, self.site.slurm.poll))
        return any(state.state in ENDED for state in changed.values())

    def _vanished(self, task: str, arrays: Collection[str]) -> TaskState:
        """Return the state of a task that Slurm forgot.

        A task that is cancelled while waiting leaves no record, although the other tasks of its array do.
        """
        cancelled = _job(task) in arrays and self._log(task) is None
        return TaskState("CANCELLED", "before it began") if cancelled else _GONE

    def _again(self, wait_s: float) -> None:
        self._wait_s, self._next_look = wait_s, time.monotonic() + wait_s

    def _note(self, changed: Mapping[str, TaskState]) -> None:
        """Record what the scheduler did and when it was seen, because that is evidence too."""
        if changed:
            at = _now()
            rows = [{"time": at, "task": task, **vars(state)} for task, state in changed.items()]
            with (self.run.jobs / "states.jsonl").open("a", encoding="utf-8") as file:
                file.write("".join(f"{json.dumps(row)}\n" for row in rows))

    def _state(self, trial: JobId) -> JobState:
        task = self._tasks[trial]
        known = self._states.get(task, _UNKNOWN)
        if known.state in ENDED:
            return self._unsealed(task, known)
        reason = f"{known.reason or known.state}{f', {self._trouble}' if self._trouble else ''}"
        return JobState("pending" if known.state in WAITING else "running", reason, task)

    def _unsealed(self, task: str, known: TaskState) -> JobState:
        """Return the state of an unsealed trial whose task has ended. If its turn had not come, it is retried."""
        if known == _GONE:
            return JobState("done", f"Slurm no longer knows job {task}", task)
        reason = known.ended(task)
        if known.reason:
            reason = f"{reason} ({known.reason})"
        if line := self._last_line(task):
            reason = f"{reason}: {line}"
        outcome = _FINAL.get(known.state)
        if known.state == "TIMEOUT" and self._sizes[task] > 1:
            outcome = None  # it had not started, or only just
        return JobState("done", reason, task, outcome)

    def _last_line(self, task: str) -> str:
        """Return the last line of a task that could not even start, for example because its Python is missing."""
        path = self._log(task)
        try:
            lines = path.read_text(errors="replace").strip().splitlines() if path else []
        except OSError:
            return ""
        return next((line for line in reversed(lines) if not line.startswith(("slurmstepd", "srun:"))), "")

    def _log(self, task: str) -> Path | None:
        """Return the file with a task's standard error; None if the task has not started."""
        name, index = self._names[_job(task)], task.partition("_")[2]
        job = SubmissionFolder(self.run.jobs / name.rpartition("-")[2]).job_of(index)
        return self.run.job_logs / f"{name}_{job}.err" if job else None

    def _send(self, jobs: Sequence[Job]) -> None:
        """Write the tasks' input, submit, and write down the id, in this order, so that nothing is ever lost."""
        number = max((folder.number for folder in submissions(self.run.jobs)), default=0) + 1
        first, results = jobs[0], jobs[0].folder
        packs = [jobs[start : start + self.pack] for start in range(0, len(jobs), self.pack)]
        array = self._array(number, len(packs), first.python, first.resources)
        delay_s = max(job.delay_s for job in jobs)
        waiting = tuple(job.job_id for _, job, begun in alive(self.run.services) if not begun)
        array = replace(array, delay_s=delay_s, after=waiting)
        folder = SubmissionFolder(array.folder)
        make_folders(folder.begun)
        self._make_logs(array.logs)
        frame = {**first.frame, "results": str(results), "together": self.scenario.slurm.together, "submitted": _now()}
        frame["worker_logs"] = str(first.log)
        write_whole(folder.frame, json.dumps(frame).encode())
        # With pydantic's encoder: that of `json` takes five times as long, and there may be tens of thousands of
        # trials.
        lines = [to_json([job.differs for job in pack]) + b"\n" for pack in packs]
        offsets = numbers("Q", itertools.accumulate(map(len, lines), initial=0))
        write_whole(folder.tasks, b"".join(lines))
        write_whole(folder.index, offsets.tobytes())
        write_whole(folder.script, self._script(array).encode())
        job_id = self._submit(folder, array.name)
        done = SlurmSubmission(job_id=job_id, name=array.name, submitted=_now(), tasks=len(packs), trials=len(jobs))
        _keep(folder, done)
        self._remember(done, results, [[job.id for job in pack] for pack in packs])
        self._reap(done.job_id)
        self._again(0.5)

    def _reap(self, newest: str) -> None:
        """Submit a job that ends the run's services after its last array, in case no orchestrator is left to do it."""
        folders = [folder for folder, _, _ in alive(self.run.services)]
        if not folders:
            return
        noted = self.run.jobs / "reaper"
        earlier = noted.read_text().split() if noted.exists() else []
        tasks = {task for task in self._tasks.values() if self._states.get(task, _UNKNOWN).state not in ENDED}
        after = sorted({_job(task) for task in tasks} | {newest})
        name, script = f"bench-{self.run.run_id}-reaper", self.run.jobs / "reaper.sh"
        try:
            job_id = self.keepers.reap(folders, after, name, script)
        except BenchError:  # Slurm has forgotten a job that was over long ago
            job_id = self.keepers.reap(folders, [newest], name, script)
        write_whole(noted, job_id.encode())
        calls.cancel(earlier)

    def end_services(self) -> None:
        """End the jobs of the run's services, and their reaper."""
        noted = self.run.jobs / "reaper"
        if noted.exists():
            calls.cancel(noted.read_text().split())
        self.keepers.stop([folder for folder, _, _ in alive(self.run.services)])

    def _remember(self, done: SlurmSubmission, results: Path, packs: Sequence[Sequence[JobId]]) -> None:
        self._names[done.job_id] = done.name
        for index, pack in enumerate(packs):
            task = f"{done.job_id}_{index}"
            self._sizes[task] = len(pack)
            for trial in pack:
                self._tasks[trial], self._results[trial] = task, results

    def _submit(self, folder: SubmissionFolder, name: str) -> str:
        """Submit the job, retrying while the controller does not answer; it may have accepted the job anyway."""
        deadline, wait_s = time.monotonic() + _OUTAGE_S, 1.0
        while True:
            try:
                return calls.submit(folder.script)
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
            except BenchError as error:
                _keep(folder, _never(name, error.message))
                raise
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 30.0)
            with contextlib.suppress(UnreachableError):
                if job_id := calls.find(name):
                    return job_id

    def _submitted(self, folder: SubmissionFolder) -> SlurmSubmission:
        """Return what became of a submission. If the submitter was killed before recording it, query Slurm."""
        try:
            return SlurmSubmission.model_validate_json(folder.job.read_bytes())
        except FileNotFoundError:
            name = self._name(folder.number)
            job_id = calls.find(name)
            tasks = folder.index.stat().st_size // 8 - 1
            done = SlurmSubmission(job_id=job_id, name=name, submitted=_now(), tasks=tasks, trials=tasks * self.pack)
            if not job_id:
                done = _never(name, "its submitter ended before Slurm had it")
            _keep(folder, done)
            return done

    def _array(self, number: int, tasks: int, python: tuple[str, ...], resources: Resources) -> Array:
        folder = self.run.jobs.absolute() / f"{number:04d}"
        return Array(self._name(number), tasks, self.throttle, python, resources, folder, self._logs())

    def _logs(self) -> Path:
        """Return the folder for the output of tasks: once created it stays the same, even if the site changes."""
        own, elsewhere = self.run.job_logs.absolute(), site_folder(self.site, "logs")
        if elsewhere and not own.exists():
            root = self.run.path.absolute().parents[2]  # of the workspace
            return root / elsewhere / self.scenario.scenario
        return own.resolve() if own.is_symlink() else own

    def _make_logs(self, logs: Path) -> None:
        own = self.run.job_logs
        try:
            logs.mkdir(parents=True, exist_ok=True)
            if not own.is_symlink() and not own.exists():
                own.symlink_to(logs)
        except OSError as error:
            raise unwritable(logs, error) from error

    def _script(self, array: Array) -> str:
        return script(array, self.scenario, self.site)

    def _name(self, number: int) -> str:
        return f"{self.run.job_name}{number:04d}"


def _job(task: str) -> str:
    """Return the array of a task."""
    return task.partition("_")[0]


def _never(name: str, reason: str) -> SlurmSubmission:
    return SlurmSubmission(job_id="", name=name, submitted=_now(), tasks=0, trials=0, reason=reason[:500])


def _keep(folder: SubmissionFolder, done: SlurmSubmission) -> None:
    write_whole(folder.job, done.model_dump_json().encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
