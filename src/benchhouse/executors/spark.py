"""Jobs on Spark: on this machine, or on a standalone cluster that is there. See docs/design/dask-spark.md."""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.executors.cluster_engine import Ask, Node
from benchhouse.executors.cluster_places import no_worker
from benchhouse.executors.remote_cluster import FarExecutor
from benchhouse.executors.spark_probe import page_of, workers
from benchhouse.schema.clusters import LOCAL_CLUSTER, STANDALONE, SparkSettings
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId
from benchhouse.schema.resources import Resources


class SparkExecutor(FarExecutor):
    """All slots of a run are tasks of one Spark job; those that replace lost ones are tasks of another."""

    title = "Spark"
    engine = "benchhouse.executors.spark_engine"
    library = "pyspark"

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.spark: SparkSettings = assignment.scenario.spark if assignment.scenario else SparkSettings()
        site = assignment.site.spark
        self.master = self.spark.master or site.master or "local[*]"
        self.ui = self.spark.ui or site.ui
        self.conf = {**site.conf, **self.spark.conf}
        self._asked = Ask()

    def settings(self) -> Mapping[str, Any]:
        asked = self._asked.model_dump(mode="json")
        return {"master": self.master, "ui": self.ui, "conf": self.conf, "ask": asked, "slots": self.parallel}

    def patience_s(self) -> float | None:
        return self.spark.patience or self.assignment.site.spark.patience

    def check(self, resources: Resources) -> None:
        check_java()
        self._asked = self.ask(resources)
        super().check(resources)

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        if jobs:
            self._asked = self.ask(jobs[0].resources)
        return super().submit(jobs)

    def nodes(self) -> Sequence[Node]:
        """Without starting anything where that can be told: a Spark application is as large as it was when it began."""
        if cluster := LOCAL_CLUSTER.fullmatch(self.master):
            cores, memory = int(cluster["cores"]), int(cluster["megabytes"]) << 20
            return [Node(name=f"worker {at}", cpus=cores, memory=memory) for at in range(int(cluster["nodes"]))]
        if STANDALONE.fullmatch(self.master):
            told = workers(page_of(self.master, self.ui), self.master)
            if told == []:
                raise no_worker(self.title)
            return told or super().nodes()
        return [this_machine(self.master)]

    def _where(self) -> str:
        return self.master


def this_machine(master: str) -> Node:
    """What `local[N]` has: N cores, whether or not there are so many, as Spark takes it; and all else."""
    from benchhouse.executors.local import machine

    have = machine()
    asked = master.partition("[")[2].rstrip("]") or ("1" if master == "local" else "*")
    cores = have.cpus if asked == "*" else int(asked)
    return Node(name=os.uname().nodename, cpus=min(cores, have.cpus), gpus=have.gpus, memory=have.memory)


def check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and os.access(f"{home}/bin/java", os.X_OK)) or (not home and shutil.which("java")):
        return
    found = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on this machine"
    raise BenchError(
        f"Spark needs Java 17 or later, and {found}",
        "install it: sudo apt-get install default-jre-headless (or dnf install java-21-openjdk-headless)",
    )
