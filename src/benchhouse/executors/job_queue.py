"""Executors whose jobs end with them, and the queue in which jobs wait for a place."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence

from benchhouse.schema.protocols import Assignment, Job, JobId, JobState, ServiceLauncher


class BoundExecutor:
    """An executor whose jobs end with it; services that outlive a trial are processes of the caller."""

    outlives = False
    keepers: ServiceLauncher | None = None

    def adopt(self) -> Mapping[JobId, int]:
        return {}

    def sweep(self) -> None:
        """Do nothing: everything it started ends on its own."""

    def end_services(self) -> None:
        """Do nothing: services are processes of the caller."""


class QueueExecutor(BoundExecutor, ABC):
    """Starts jobs in order of submission, at most `parallel` at once. Subclasses implement `_fill` and `_listen`."""

    waits_for = ""  # what a queued job waits for, for people

    def __init__(self, assignment: Assignment) -> None:
        self.parallel = assignment.parallel
        self.window = 2 * self.parallel + 1
        self.queue: deque[Job] = deque()
        self.states: dict[JobId, JobState] = {}
        self.running: dict[JobId, Job] = {}

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        for job in jobs:
            self.queue.append(job)
            self.states[job.id] = JobState("pending", self.waits_for)
        self._fill()
        return [job.id for job in jobs]

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        self._fill()  # before listening: the caller must see what ended before more starts, and may stop
        self._listen(wait_s)
        return {job: self.states.pop(job) if self.states[job].phase == "done" else self.states[job] for job in ids}

    @abstractmethod
    def _fill(self) -> None:
        """Start the jobs for which there is a place."""

    @abstractmethod
    def _listen(self, wait_s: float) -> None:
        """Process what has happened, and wait up to `wait_s` for something to happen."""

    def _cancel_queued(self, ids: set[JobId]) -> None:
        for job in [job for job in self.queue if job.id in ids]:
            self.queue.remove(job)
            self.states[job.id] = JobState("done", "cancelled before it started")

    def _note_exit(self, job: JobId, code: int, detail: str = "") -> None:
        """Set the state of a running job whose worker has ended."""
        del self.running[job]
        reason = f"the worker was killed by signal {-code}" if code < 0 else f"the worker exited with code {code}"
        self.states[job] = JobState("done", reason if code else "", detail)


def more_trials(jobs: Sequence[Job], trials: int) -> list[str]:
    """Return a comment for a dry run that shows only the first jobs of `trials`; empty if it shows all."""
    return [f"# ... and {trials - len(jobs)} more"] if trials > len(jobs) else []
