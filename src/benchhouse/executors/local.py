"""Run trials on this machine, with one warm worker host per interpreter and slots by declared resources."""

import os
import selectors
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.executors.job_queue import QueueExecutor, more_trials
from benchhouse.executors.json_process import JsonProcess
from benchhouse.processes.process_identity import OWNER, identity
from benchhouse.schema.container import explain_exit
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId, JobState
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.resources import Resources


class LocalExecutor(QueueExecutor):
    """Runs at most `parallel` jobs at a time, and only as many as the machine's cores, memory, and GPUs allow."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.capacity = machine()
        self.environment = assignment.site.environment
        self.hosts: dict[tuple[str, ...], _Host] = {}
        self.selector = selectors.DefaultSelector()

    def check(self, resources: Resources) -> None:
        have, missing = self.capacity, []
        if resources.nodes > 1:
            missing.append(f"{resources.nodes} nodes (this is one machine)")
        if resources.cpus > have.cpus:
            missing.append(f"{resources.cpus} cores (there are {have.cpus})")
        if resources.gpus > have.gpus:
            missing.append(f"{resources.gpus} GPUs (there are {have.gpus})")
        if resources.memory and have.memory and resources.memory > have.memory:
            missing.append(f"{show_bytes(resources.memory)} of memory (there are {show_bytes(have.memory)})")
        if missing:
            raise BenchError(
                f"this machine can't give what a trial asks for: {'; '.join(missing)}",
                "ask for less under resources:, or run on another executor",
            )

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        commands = [shlex.join([*job.python, "-m", "benchhouse.worker", str(job.folder)]) for job in jobs]
        lines = [f"# {job.label}\n{command}" for job, command in zip(jobs, commands, strict=True)]
        return "\n".join([*lines, *more_trials(jobs, trials)])

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        for job in jobs:
            self.check(job.resources)
        return super().submit(jobs)

    def cancel(self, ids: Sequence[JobId]) -> None:
        wanted = set(ids)
        self._cancel_queued(wanted)
        for job in [job for job in self.running.values() if job.id in wanted]:
            self.hosts[job.python].send({"stop": job.id})
        deadline = time.monotonic() + 30
        while wanted & set(self.running):
            if time.monotonic() > deadline:  # a host that does not answer is ended with all its trials
                for host in {self.hosts[job.python] for job in self.running.values() if job.id in wanted}:
                    self._lose(host)
                return
            self._listen(0.2)

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        self.hosts.clear()
        self.selector.close()

    def _fill(self) -> None:
        """Start what fits, in order, so that small jobs never delay a large one indefinitely."""
        while self.queue and len(self.running) < self.parallel and self._fits(self.queue[0].resources):
            job = self.queue.popleft()
            self.running[job.id] = job
            self.states[job.id] = JobState("running")
            if job.python not in self.hosts:
                self.hosts[job.python] = host = _Host(job.python, self.environment)
                self.selector.register(host, selectors.EVENT_READ)
            self.hosts[job.python].send({"id": job.id, "folder": str(job.folder), "log": str(job.log)})

    def _fits(self, wanted: Resources) -> bool:
        taken = [job.resources for job in self.running.values()]
        memory = (wanted.memory or 0) + sum(item.memory or 0 for item in taken)
        return (
            wanted.cpus + sum(item.cpus for item in taken) <= self.capacity.cpus
            and wanted.gpus + sum(item.gpus for item in taken) <= self.capacity.gpus
            and (self.capacity.memory is None or memory <= self.capacity.memory)
        )

    def _listen(self, wait_s: float) -> None:
        if not self.hosts:
            time.sleep(min(wait_s, 0.05) if not self.queue else 0)
            return
        for key, _ in self.selector.select(wait_s):
            assert isinstance(key.fileobj, _Host)
            messages, is_gone = key.fileobj.read()
            for message in messages:
                self._take_in(message)
            if is_gone:
                self._lose(key.fileobj)

    def _take_in(self, message: dict[str, Any]) -> None:
        job = message.get("id")
        if job and "pid" in message:
            self.states[job] = JobState("running", detail=str(message["pid"]))
        elif job in self.running:
            self._note_exit(job, message["exit"])

    def _lose(self, host: "_Host") -> None:
        """Drop a host that is gone, with its trials. The next job starts another one."""
        self.selector.unregister(host)
        reason = host.close()
        self.hosts.pop(host.python, None)
        for job in [job for job in self.running.values() if job.python == host.python]:
            del self.running[job.id]
            self.states[job.id] = JobState("done", f"the worker host ended{reason}")


class _Host(JsonProcess):
    """One `python -m benchhouse.worker --host` process."""

    def __init__(self, python: tuple[str, ...], environment: Mapping[str, str]) -> None:
        variables = {**os.environ, **environment, OWNER: identity()}
        super().__init__([*python, "-m", "benchhouse.worker", "--host"], variables)
        self.python = python

    def close(self) -> str:
        """End the host with everything it runs. Return why it ended, as a suffix for a message."""
        message, code = self.end(15), self.process.returncode
        if reason := explain_exit(code):
            message = f"{reason} (exit {code}): {message or 'no output'}"
        return f": {message}" if message else ""


def machine() -> Resources:
    """Return the resources of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Resources(cpus=len(os.sched_getaffinity(0)), gpus=_gpus(), memory=memory)


def _gpus() -> int:
    count = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return min(count, len([item for item in visible.split(",") if item])) if visible is not None else count
