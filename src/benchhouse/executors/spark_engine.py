"""Spark as an engine: slots are tasks of one Spark job, each in an executor of its own on a cluster.

The request of an application is fixed at its start: `spark.task.cpus` and the executor size are those of a trial.
Spark's own retries cannot be disabled without ending the whole job with its first lost task. A retry notices that its
slot was started before, and ends at once.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.executors.cluster_engine import (
    ClusterGoneError,
    ClusterNode,
    SlotRequest,
    WorkerSlot,
    first_line,
    request_slot_end,
    serve,
)
from benchhouse.executors.spark import check_java, this_machine, unanswered, workers
from benchhouse.executors.task_slots import run_spark_slot
from benchhouse.schema.clusters import LOCAL_CLUSTER, STANDALONE
from benchhouse.schema.errors import BenchError

_GATHER_S = 0.3  # slots that are requested within this time form one job
_LOOK_S = 1.0
_ANSWER_S = 8.0
_GONE_S = 15.0
_EXECUTORS_S = 60.0
_MANY = 1_000_000  # task failures that Spark must tolerate; later attempts end at once
_LEAST_HEAP = 512 << 20
_LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that only waits needs no optimization


@dataclass
class SparkJob:
    """One Spark job."""

    group: str
    slots: list[WorkerSlot]
    over: set[str] = field(default_factory=set)
    ended: bool = False
    error: str = ""


class SparkEngine:
    def __init__(self) -> None:
        self.context: Any = None
        self.master, self.standalone, self.looked = "", False, False
        self.ui: str | None = None
        self.scratch: Path | None = None
        self.fresh: list[tuple[WorkerSlot, dict[str, str]]] = []
        self.fresh_since = 0.0
        self.batches: list[SparkJob] = []
        self._seen, self._next_look = time.monotonic(), 0.0

    def open(self, settings: Mapping[str, Any]) -> None:
        self.master, self.ui = settings["master"], settings["ui"]
        check_java()
        self.standalone = STANDALONE.fullmatch(self.master) is not None
        if self.standalone and (why := unanswered(self.master, settings["conf"], _ANSWER_S)):
            raise BenchError(
                f"no Spark master answers at {self.master}: {why}",
                "start one: sbin/start-master.sh; or leave spark.master out",
            )
        import pyspark

        ask, slots = SlotRequest.model_validate(settings["ask"]), int(settings["slots"])
        self.scratch = Path(tempfile.mkdtemp(prefix="bench-spark-"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # no property sets it; the default is python3
        conf = pyspark.SparkConf(loadDefaults=True)
        for key, value in {**properties(self.master, ask, slots, self.scratch), **settings["conf"]}.items():
            conf.set(key, value)
        try:
            self.context = pyspark.SparkContext(conf=conf)
            self.context.setLogLevel("ERROR")
        except Exception as error:  # of Java or py4j, with many names
            raise BenchError(
                f"Spark can't be started for {self.master}: {first_line(error)}",
                "see its own messages above; Spark 4 needs Java 17 or later: java -version",
            ) from error

    def nodes(self) -> Sequence[ClusterNode]:
        """Return the cluster's workers; if it does not list them, this application's executors, if any."""
        first, self.looked = not self.looked, True
        if not self.standalone and not LOCAL_CLUSTER.fullmatch(self.master):
            return [this_machine(self.master)]
        if self.standalone and (known := workers(self.master, self.ui)) is not None:
            return known
        deadline = time.monotonic() + (_EXECUTORS_S if first else 0)  # executors appear some time after the application
        while not (executors := self._executors()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [ClusterNode(name=each.hostPort().rpartition(":")[0], cpus=each.totalCores()) for each in executors]

    def start(self, slot: WorkerSlot, environment: Mapping[str, str]) -> None:
        self.fresh_since = self.fresh_since if self.fresh else time.monotonic()
        self.fresh.append((slot, dict(environment)))

    def gone(self) -> Mapping[str, str]:
        if self.fresh and time.monotonic() - self.fresh_since >= _GATHER_S:
            self._begin_job()
        if time.monotonic() < self._next_look:
            return {}
        self._next_look = time.monotonic() + _LOOK_S
        try:
            self._check_cluster()
            ended = {name: why for batch in self.batches for name, why in self._ended(batch).items()}
        except ClusterGoneError:
            raise
        except Exception as error:  # py4j: its JVM is gone
            raise ClusterGoneError(f"its driver has ended: {type(error).__name__}") from error
        self.batches = [batch for batch in self.batches if len(batch.over) < len(batch.slots)]
        return ended

    def stop(self, slots: Sequence[str]) -> None:
        """End slots: cancel a job without other slots; in other jobs, tell the slots through their orders."""
        self.fresh = [item for item in self.fresh if item[0].name not in slots]
        for batch in self.batches:
            for slot in batch.slots:
                if slot.name in slots:
                    request_slot_end(slot)
            if all(slot.name in slots or slot.name in batch.over for slot in batch.slots):
                with contextlib.suppress(Exception):
                    self.context.cancelJobGroup(batch.group)

    def close(self) -> None:
        for batch in self.batches:
            for slot in batch.slots:
                if slot.name not in batch.over:
                    request_slot_end(slot)
        if self.context is not None:
            with contextlib.suppress(Exception):
                self.context.stop()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _begin_job(self) -> None:
        fresh, self.fresh = self.fresh, []
        batch = SparkJob(f"bench-{fresh[0][0].name}", [slot for slot, _ in fresh])
        lines = [
            json.dumps(
                {
                    "folder": slot.folder,
                    "python": list(slot.python),
                    "environment": environment,
                    "patience_s": slot.patience_s,
                    "application": self.context.applicationId,
                }
            )
            for slot, environment in fresh
        ]
        self.batches.append(batch)
        threading.Thread(target=self._run_job, args=(batch, lines), daemon=True).start()

    def _run_job(self, batch: SparkJob, lines: list[str]) -> None:
        try:
            self.context.setJobGroup(batch.group, f"{len(lines)} slots of benchhouse", interruptOnCancel=True)
            self.context.parallelize(lines, len(lines)).map(run_spark_slot).collect()
        except Exception as error:  # noqa: BLE001 - reported as the end of its slots
            batch.error = essence(str(error)) or type(error).__name__
        batch.ended = True

    def _ended(self, batch: SparkJob) -> dict[str, str]:
        """Return the slots whose first attempt has ended, with reasons. Later attempts, by Spark, do nothing."""
        if batch.ended:
            reason = batch.error or "its Spark job has ended"
            ended = {slot.name: reason for slot in batch.slots if slot.name not in batch.over}
        else:
            ended = {}
            for task in self._tasks(batch):
                name = batch.slots[task.index()].name
                if task.attempt() == 0 and task.status() in ("FAILED", "KILLED", "SUCCESS") and name not in batch.over:
                    error = task.errorMessage()
                    ended[name] = essence(str(error.get())) if error.isDefined() else "its task has ended"
        batch.over.update(ended)
        return ended

    def _tasks(self, batch: SparkJob) -> list[Any]:
        store, tracker = self.context._jsc.sc().statusStore(), self.context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(batch.group)]
        stages = [stage for job in jobs if job for stage in job.stageIds]
        return [task for stage in stages for task in _listed(store.taskList(int(stage), 0, 4 * len(batch.slots)))]

    def _executors(self) -> list[Any]:
        executors = _listed(self.context._jsc.sc().statusStore().executorList(True))
        return [executor for executor in executors if executor.id() != "driver"]

    def _check_cluster(self) -> None:
        """Raise ClusterGoneError if the application has ended, or master and executors are gone for too long."""
        if self.context._jsc.sc().isStopped():
            raise ClusterGoneError("Spark has ended the application")
        if not self.standalone or self._executors() or not unanswered(self.master, {}, 3.0):
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _GONE_S:
            raise ClusterGoneError(f"{self.master} no longer answers, and has no executor left")


def _listed(sequence: Any) -> list[Any]:
    """Convert a Scala sequence to a list."""
    return [sequence.apply(at) for at in range(sequence.size())]


def essence(message: str) -> str:
    """Return the most informative line of a Java exception: the last of a wrapped Python traceback, or the first."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    wraps = len(lines) > 1 and lines[0].endswith("(most recent call last):")
    return lines[wraps].strip()[:300] if lines else ""


def properties(master: str, ask: SlotRequest, slots: int, scratch: Path) -> dict[str, str]:
    """Return the properties of an application with room for `slots` trials, each counted in full."""
    conf = {
        "spark.app.name": "benchhouse",
        "spark.master": master,
        "spark.task.cpus": str(ask.cpus),
        "spark.task.maxFailures": str(_MANY),
        "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _LEAN,
        "spark.executor.extraJavaOptions": _LEAN,
    }
    if not STANDALONE.fullmatch(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not (STANDALONE.fullmatch(master) or LOCAL_CLUSTER.fullmatch(master)):
        room = slots_in(this_machine(master), ask, slots)
        # Spark counts only cores, so offer as many as fit that many trials. Local Spark generates its own secret.
        return conf | {"spark.master": f"local[{room * ask.cpus},{_MANY}]", "spark.authenticate": "true"}
    memory = max(ask.memory or 0, _LEAST_HEAP)
    conf |= {
        "spark.executor.cores": str(ask.cpus),
        "spark.executor.memory": f"{-(-memory // (1 << 20))}m",
        "spark.cores.max": str(slots * ask.cpus),
    }
    if ask.gpus:
        conf |= {f"spark.{whose}.resource.gpu.amount": str(ask.gpus) for whose in ("executor", "task")}
    return conf


def slots_in(node: ClusterNode, ask: SlotRequest, slots: int) -> int:
    """Return how many trials fit at the same time, at least one."""
    by = [slots, int(node.cpus) // ask.cpus]
    by += [node.memory // ask.memory] if ask.memory and node.memory else []
    by += [int(node.gpus) // ask.gpus] if ask.gpus else []
    return max(1, min(by))


if __name__ == "__main__":
    sys.exit(serve(SparkEngine()))
