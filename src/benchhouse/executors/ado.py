"""Run a run as an operation of ado: its trials are the points of a space, and our actuator runs each and seals
evidence.

ado starts or finds Ray, distributes the points, and keeps its own record of them in its active context.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.executors.job_queue import BoundExecutor
from benchhouse.schema.ado import OURS, TRIAL
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId, JobState
from benchhouse.schema.resources import Resources

_GRACE_S = 20.0
_FINISH_S = 120.0
_STEPS = (
    (re.compile(rb"Created space with identifier:? *(\S+)"), "{0} is made; Ray starts"),
    (re.compile(rb"Started a local Ray instance|Connected to Ray cluster"), "Ray is up; the operation starts"),
    (re.compile(rb"=+ Starting Operation (\S+) =+"), "{0} measures {points}"),
)


class AdoExecutor(BoundExecutor):
    """Runs one operation per submission. A trial is done when its folder is gone, because sealing moves it."""

    window = 10_000

    def __init__(self, assignment: Assignment) -> None:
        self.parallel = assignment.parallel
        self.folder = assignment.run.path / "ado"
        self.jobs: dict[JobId, Job] = {}
        self.operations: dict[Path, subprocess.Popen[bytes]] = {}
        self.where: dict[JobId, Path] = {}
        self.cancelled: set[JobId] = set()
        self.say, self.variables = assignment.say, assignment.site.environment
        self.steps: list[AdoProgress] = []

    def check(self, resources: Resources) -> None:
        if find_spec("ado") is None:
            raise BenchError("ado is not installed", "pip install 'benchhouse[ado]'")
        if resources.nodes > 1:
            raise BenchError(f"a trial asks for {resources.nodes} nodes; an ado operation gives it one")

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        space, operation = _space([self._file(job) for job in jobs]), _operation(self.parallel)
        more = f"# ... and {trials - len(jobs)} more values of `job`\n" if trials > len(jobs) else ""
        texts = [f"# space.yaml\n{dump_yaml(space)}{more}", f"# operation.yaml\n{dump_yaml(operation)}"]
        return "\n".join([*texts, shlex.join(_command(self.folder / "N"))])

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        if not jobs:
            return []
        folder = self.folder / str(len(list(self.folder.glob("*/space.yaml"))) + 1)
        folder.mkdir(parents=True)
        for job in jobs:
            order = {"folder": str(job.folder), "python": list(job.python), "log": str(job.log)}
            self._file(job).write_text(json.dumps(order))
            self.jobs[job.id], self.where[job.id] = job, folder
        (folder / "space.yaml").write_text(dump_yaml(_space([self._file(job) for job in jobs])))
        (folder / "operation.yaml").write_text(dump_yaml(_operation(min(self.parallel, len(jobs)))))
        self.steps.append(AdoProgress(folder / "ado.log", len(jobs)))
        self.say("ado: starting an operation, which takes a while ...")
        with (folder / "ado.log").open("wb") as log:
            self.operations[folder] = subprocess.Popen(
                [sys.executable, "-m", "benchhouse.executors.ado_operation", *_command(folder)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, start_new_session=True,
                env={"RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"} | os.environ | self.variables,
            )  # fmt: skip
        return [job.id for job in jobs]

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        deadline = time.monotonic() + wait_s
        while True:
            # Check whether it has ended before checking its trials, because a trial may be sealed in between.
            over = {folder for folder, process in self.operations.items() if process.poll() is not None}
            for news in filter(None, [steps.news() for steps in self.steps]):
                self.say(f"ado: {news} ...")
            states = {name: self._state(name, over) for name in ids}
            if time.monotonic() >= deadline or any(state.phase == "done" for state in states.values()):
                return states
            time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))

    def _state(self, name: JobId, over: set[Path]) -> JobState:
        if not self.jobs[name].folder.exists():
            return JobState("done")
        if name in self.cancelled:
            return JobState("done", "cancelled")
        folder = self.where[name]
        if folder in over:
            return JobState("done", f"ado's operation ended without it: {_last_line(folder / 'ado.log')}")
        return JobState("running", detail=str(self.operations[folder].pid))

    def cancel(self, ids: Sequence[JobId]) -> None:
        """End whole operations; the caller submits their other trials again if it still needs them."""
        for folder in {self.where[name] for name in ids if name in self.where}:
            self._end(folder)
        self.cancelled.update(ids)

    def close(self) -> None:
        for folder, process in self.operations.items():
            measured = all(not job.folder.exists() for name, job in self.jobs.items() if self.where[name] == folder)
            if measured and process.poll() is None:
                self.say("ado: all is measured; ado writes that down and ends Ray ...")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_FINISH_S)
            self._end(folder)

    def _end(self, folder: Path) -> None:
        """End an operation by closing its process's input; that process then ends all that ado started."""
        process = self.operations[folder]
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _file(self, job: Job) -> Path:
        return (self.folder / f"{job.id}.json").absolute()


def _command(folder: Path) -> list[str]:
    beside = Path(sys.executable).with_name("ado")
    ado = str(beside) if beside.exists() else shutil.which("ado") or "ado"
    files = (folder / "operation.yaml").absolute(), (folder / "space.yaml").absolute()
    return [ado, "create", "operation", "-f", str(files[0]), "--with", f"space={files[1]}"]


def _space(files: Sequence[Path]) -> dict[str, Any]:
    domain = {"values": [str(path) for path in files], "variableType": "CATEGORICAL_VARIABLE_TYPE"}
    return {
        "sampleStoreIdentifier": "default",
        "entitySpace": [{"identifier": "job", "propertyDomain": domain}],
        "experiments": [
            {"actuatorIdentifier": OURS, "experimentIdentifier": TRIAL, "experimentVersion": "1.0.0"}
        ],
    }  # fmt: skip


def _operation(batch: int) -> dict[str, Any]:
    parameters = {
        "numberEntities": "all", "batchSize": batch, "singleMeasurement": False,
        "samplerConfig": {"samplerType": "generator", "mode": "sequential"},
    }  # fmt: skip
    module = {"operationType": "explore", "operatorName": "random_walk"}
    return {"operation": {"module": module, "parameters": parameters}, "spaces": ["space"]}


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1][:300]} (see {log})" if lines else "it printed nothing"


class AdoProgress:
    """The progress of an operation according to its log; it takes up to a minute before its first point."""

    def __init__(self, log: Path, points: int) -> None:
        self.log = log
        self.points = f"{points} {'point' if points == 1 else 'points'}"
        self._read = self._next = 0

    def news(self) -> str:
        """Return the latest step if it was reached since the last call, otherwise an empty string."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        news = ""
        for line in text.splitlines():
            for number, (pattern, message) in enumerate(_STEPS[self._next :], self._next):
                if match := pattern.search(line):
                    names = (name.decode(errors="replace") for name in match.groups())
                    news, self._next = message.format(*names, points=self.points), number + 1
                    break
        return news
