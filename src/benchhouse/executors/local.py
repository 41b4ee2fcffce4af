"""Jobs on this machine: a warm worker host per interpreter, slots by declared resources."""

import contextlib
import json
import os
import selectors
import shlex
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.processes.owner import OWNER, identity
from benchhouse.schema.container import explain_exit
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId, JobState
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.resources import Resources


class LocalExecutor:
    """Runs at most `parallel` jobs at a time, and only as many as the machine's cores, memory and GPUs allow."""

    outlives = False
    keepers = None

    def __init__(self, assignment: Assignment) -> None:
        self.parallel = assignment.parallel
        self.window = 2 * self.parallel + 1
        self.capacity = machine()
        self.queue: deque[Job] = deque()
        self.states: dict[JobId, JobState] = {}
        self.running: dict[JobId, Job] = {}
        self.hosts: dict[tuple[str, ...], _Host] = {}
        self.selector = selectors.DefaultSelector()

    def adopt(self) -> Mapping[JobId, int]:
        return {}

    def end_services(self) -> None:
        """They are processes of whoever runs it."""

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
        return "\n".join([*lines, *([f"# ... and {trials - len(jobs)} more"] if trials > len(jobs) else [])])

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        for job in jobs:
            self.check(job.resources)
            self.queue.append(job)
            self.states[job.id] = JobState("pending")
        self._fill()
        return [job.id for job in jobs]

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        self._fill()  # not after listening: first the caller hears what ended, and may decide that nothing more starts
        self._listen(wait_s)
        known = {job: self.states[job] for job in ids}
        for job, state in known.items():
            if state.phase == "done":
                del self.states[job]
        return known

    def cancel(self, ids: Sequence[JobId]) -> None:
        wanted = set(ids)
        for job in [job for job in self.queue if job.id in wanted]:
            self.queue.remove(job)
            self.states[job.id] = JobState("done", "cancelled before it started")
        for job in [job for job in self.running.values() if job.id in wanted]:
            self.hosts[job.python].send({"stop": job.id})
        deadline = time.monotonic() + 30
        while wanted & set(self.running):
            if time.monotonic() > deadline:  # a host that does not answer goes, and all its trials with it
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
        """Start what fits, in order: a large job is not overtaken for ever by small ones."""
        while self.queue and len(self.running) < self.parallel and self._fits(self.queue[0].resources):
            job = self.queue.popleft()
            self.running[job.id] = job
            self.states[job.id] = JobState("running")
            host = self._host(job.python)
            host.send({"id": job.id, "folder": str(job.folder), "log": str(job.log)})

    def _fits(self, wanted: Resources) -> bool:
        taken = [job.resources for job in self.running.values()]
        memory = (wanted.memory or 0) + sum(item.memory or 0 for item in taken)
        return (
            wanted.cpus + sum(item.cpus for item in taken) <= self.capacity.cpus
            and wanted.gpus + sum(item.gpus for item in taken) <= self.capacity.gpus
            and (self.capacity.memory is None or memory <= self.capacity.memory)
        )

    def _host(self, python: tuple[str, ...]) -> "_Host":
        if python not in self.hosts:
            self.hosts[python] = host = _Host(python)
            self.selector.register(host.output, selectors.EVENT_READ, host)
        return self.hosts[python]

    def _listen(self, wait_s: float) -> None:
        if not self.hosts:
            time.sleep(min(wait_s, 0.05) if not self.queue else 0)
            return
        for key, _ in self.selector.select(wait_s):
            host: _Host = key.data
            messages, gone = host.read()
            for message in messages:
                self._hear(message)
            if gone:
                self._lose(host)

    def _hear(self, message: dict[str, Any]) -> None:
        job = message.get("id")
        if job is None:
            return
        if "pid" in message:
            self.states[job] = JobState("running", detail=str(message["pid"]))
        elif job in self.running:
            del self.running[job]
            code = message["exit"]
            reason = f"the worker was killed by signal {-code}" if code < 0 else f"the worker exited with code {code}"
            self.states[job] = JobState("done", reason if code else "")

    def _lose(self, host: "_Host") -> None:
        """The host is gone, and with it its trials; the next job starts another one."""
        self.selector.unregister(host.output)
        reason = host.close()
        self.hosts.pop(host.python, None)
        for job in [job for job in self.running.values() if job.python == host.python]:
            del self.running[job.id]
            self.states[job.id] = JobState("done", f"the worker host ended{reason}")


class _Host:
    """One `python -m benchhouse.worker --host` and the pipes to it."""

    def __init__(self, python: tuple[str, ...]) -> None:
        self.python = python
        self.buffer = b""
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop it once it is full
        self.process = subprocess.Popen(
            [*python, "-m", "benchhouse.worker", "--host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env=os.environ | {OWNER: identity()},
        )
        assert self.process.stdout
        self.output: int = self.process.stdout.fileno()

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # read() will find that it is gone

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Messages that have come, and whether the host is gone."""
        chunk = os.read(self.output, 1 << 16)
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line], not chunk

    def close(self) -> str:
        """End the host (it ends what it runs); returns its last words."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.words.seek(0)
        words = self.words.read().decode("utf-8", "replace").strip()
        if why := explain_exit(self.process.returncode):
            words = f"{why} (exit {self.process.returncode}): {words.splitlines()[-1] if words else 'no words'}"
        self.process.stdout.close()
        self.words.close()
        return f": {words.splitlines()[-1]}" if words else ""


def machine() -> Resources:
    """What this machine can give."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Resources(cpus=len(os.sched_getaffinity(0)), gpus=_gpus(), memory=memory)


def _gpus() -> int:
    folder = Path("/proc/driver/nvidia/gpus")
    count = len(list(folder.iterdir())) if folder.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return min(count, len([item for item in visible.split(",") if item])) if visible is not None else count
