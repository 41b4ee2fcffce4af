"""One task of a batch system's array: its trials, several at a time, each forked from this one warm process.

It gets a `SubmissionFolder`, finds its own line there by the number of its task, and creates the folders of its trials.
On SIGTERM it ends everything and seals nothing. On SIGUSR2, when its time is nearly over, it lets running trials be
sealed as `timeout` and starts no more.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from array import array
from pathlib import Path
from types import FrameType
from typing import Any

from benchhouse.evidence.request import make_folder
from benchhouse.processes import tree
from benchhouse.processes.cgroups import sweep_leftovers
from benchhouse.processes.process_identity import OWNER, identity
from benchhouse.schema.layout import SubmissionFolder, TrialFolder
from benchhouse.schema.trial import ExperimentRef, TrialSpec, joined
from benchhouse.worker.batch import TASK
from benchhouse.worker.pool import WorkerPool
from benchhouse.worker.supervise import CANCELLED
from benchhouse.worker.warmup import warm_up

_LOST = 1
_INSIDE = ("results", "together", "worker_logs")  # of the frame, but not of a trial's specification


def run_task(path: Path) -> int:
    """Run the trials of this task. Return 0 if all of them were sealed."""
    task = Task(SubmissionFolder(path), int(os.environ.get(TASK, "0")))
    try:
        return task.run()
    finally:
        _drop_empty_logs()


class Task:
    def __init__(self, folder: SubmissionFolder, number: int) -> None:
        self.frame = json.loads(folder.frame.read_bytes())
        self.results = Path(self.frame["results"])
        self.together: int = self.frame["together"]
        self.logs = Path(self.frame["worker_logs"])
        self.trials = _line(folder, number)
        self.spec = {key: value for key, value in self.frame.items() if key not in _INSIDE}
        self.pool = WorkerPool(quiet=(signal.SIGINT, signal.SIGUSR2))
        self.folders: dict[str, Path] = {}  # of running trials, not finished
        self.stopping = 0

    def run(self) -> int:
        os.environ[OWNER] = identity()
        tree.become_subreaper()
        sweep_leftovers()
        if len(self.trials) > 1:
            warm_up(ExperimentRef.model_validate(self.frame["experiment"]))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._stop)
        unsealed = 0
        todo = iter(self.trials)
        while True:
            while self._has_room() and not self.stopping and (differs := next(todo, None)):
                self._begin(differs)
            if not self.folders:
                break
            unsealed += self._wait()
        self.pool.close()
        if self.stopping == signal.SIGUSR2:
            return 0
        return 128 + self.stopping if self.stopping else _LOST if unsealed else 0

    def _has_room(self) -> bool:
        """Whether another trial may start: a slot is free when its experiment has ended. If several trials run
        together, the same number may be sealing meanwhile; a trial that runs alone is not disturbed by the sealing of
        the previous one."""
        sealing = self.together if self.together > 1 else 0
        return self.pool.measuring < self.together and len(self.folders) < self.together + sealing

    def _begin(self, differs: dict[str, Any]) -> None:
        if (self.results / differs["trial_id"]).exists():
            return  # a scheduler that lost its memory starts a task twice
        name = f"{differs['trial_id']}.{differs['attempt']}"
        folder = TrialFolder(self.results / ".partial" / name)
        shutil.rmtree(folder.path, ignore_errors=True)
        text = json.dumps(joined(self.spec, differs, self.results))
        make_folder(folder, TrialSpec.model_validate_json(text))
        order = {"id": differs["trial_id"], "folder": str(folder.path), "log": str(self.logs / f"{name}.log")}
        self.folders[order["id"]] = folder.path
        self.pool.begin(order)
        if self.stopping:  # the signal arrived just before
            self._stop(self.stopping, None)

    def _wait(self) -> int:
        """Wait until a trial has ended or is measured. Return how many trials were not sealed."""
        select.select(self.pool.lines(), [], [])
        unsealed = 0
        for job, code in self.pool.ended():
            folder = self.folders.pop(job)
            if code:
                if code != CANCELLED:
                    print(f"the worker of trial {folder.name} ended with {code}", file=sys.stderr)
                shutil.rmtree(folder, ignore_errors=True)
                unsealed += 1
        return unsealed

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Forward the signal to the workers: on SIGTERM they end everything that they started, on SIGUSR2 they seal."""
        self.stopping = self.stopping or number
        self.pool.stop(signum=signal.SIGUSR2 if number == signal.SIGUSR2 else signal.SIGTERM)


def _line(folder: SubmissionFolder, number: int) -> list[dict[str, Any]]:
    """Return the trials of this task: one line of a file that may have many thousands."""
    offsets = array("Q")
    with folder.index.open("rb") as file:
        file.seek(8 * number)
        offsets.frombytes(file.read(16))
    with folder.tasks.open("rb") as file:
        file.seek(offsets[0])
        trials: list[dict[str, Any]] = json.loads(file.read(offsets[1] - offsets[0]))
    return trials


def _drop_empty_logs() -> None:
    """Remove empty logs: ten thousand of them burden a shared filesystem, and hide the few with content."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            path = Path(f"/proc/self/fd/{number}").readlink()
            if path.suffix in (".out", ".err") and path.is_file() and path.stat().st_size == 0:
                path.unlink()
