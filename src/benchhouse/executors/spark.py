"""Run trials on Spark: on this machine, or on an existing standalone cluster. See docs/design/dask-spark.md."""

import os
import shutil
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.executors import cluster_capacity, cluster_engine
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.executors.remote_cluster import ClusterExecutor
from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.schema.clusters import LOCAL_CLUSTER, STANDALONE, SparkSettings
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Assignment, Job, JobId
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import resolve

_PAGE_S = 3.0
_ASKED, _REFUSED = 0, 2  # message types of Spark's transport: a request for a chunk, and its refusal
_REQUEST = struct.pack(">qbqi", 8 + 1 + 8 + 4, _ASKED, 0, 0)
"""A request for a chunk of a stream that does not exist; a server that speaks the protocol refuses it."""


class SparkExecutor(ClusterExecutor):
    """An executor whose slots are tasks of one Spark job; replacements of lost slots are tasks of another."""

    title = "Spark"
    engine = "benchhouse.executors.spark_engine"
    library = "pyspark"

    def __init__(self, assignment: Assignment) -> None:
        spark = assignment.scenario.spark if assignment.scenario else SparkSettings()
        site = assignment.site.spark
        super().__init__(assignment, spark.master or site.master or "local[*]", spark.patience or site.patience)
        self.ui = spark.ui or site.ui
        self.conf = {**site.conf, **spark.conf}
        self._slot = SlotRequest()

    def settings(self) -> Mapping[str, Any]:
        ask = self._slot.model_dump(mode="json")
        return {
            "master": self.address,
            "ui": self.ui,
            "conf": resolve(self.conf, os.environ),
            "ask": ask,
            "slots": self.parallel,
        }

    def check(self, resources: Resources) -> None:
        check_java()
        if self._slot not in (SlotRequest(), self.ask(resources)):
            message = "trials of this run ask for different resources, and executors of one Spark application are alike"
            raise BenchError(message, "a scenario for each, or executor: local, slurm, ray or dask")
        self._slot = self.ask(resources)
        super().check(resources)

    def submit(self, jobs: Sequence[Job]) -> list[JobId]:
        if jobs:
            self._slot = self.ask(jobs[0].resources)
        return super().submit(jobs)

    def nodes(self) -> Sequence[ClusterNode]:
        """Return the nodes, if possible without starting an application, whose size is fixed at its start."""
        if cluster := LOCAL_CLUSTER.fullmatch(self.address):
            cores, memory = int(cluster["cores"]), int(cluster["megabytes"]) << 20
            return [ClusterNode(name=f"worker {at}", cpus=cores, memory=memory) for at in range(int(cluster["nodes"]))]
        if STANDALONE.fullmatch(self.address):
            known = workers(self.address, self.ui)
            if known == []:
                raise cluster_capacity.no_worker(self.title)
            return known or super().nodes()
        return [this_machine(self.address)]

    def _where(self) -> str:
        return self.address


def this_machine(master: str) -> ClusterNode:
    """Return the resources of `local[N]`: N cores, but no more than the machine has."""
    have = cluster_capacity.this_machine()
    cores = master.partition("[")[2].rstrip("]") or ("1" if master == "local" else "*")
    return have if cores == "*" else have.model_copy(update={"cpus": min(int(cores), have.cpus)})


def check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and os.access(f"{home}/bin/java", os.X_OK)) or (not home and shutil.which("java")):
        return
    lack = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on this machine"
    raise BenchError(
        f"Spark needs Java 17 or later, and {lack}",
        "install it: sudo apt-get install default-jre-headless (or dnf install java-21-openjdk-headless)",
    )


def unanswered(master: str, conf: Mapping[str, str], limit_s: float) -> str:
    """Return why no master is at this address, or an empty string. A master that requires a secret counts as there."""
    standalone = STANDALONE.fullmatch(master)
    assert standalone

    def speaks(connection: socket.socket) -> bool:
        if conf.get("spark.authenticate") == "true" or conf.get("spark.ssl.rpc.enabled") == "true":
            return True
        connection.sendall(_REQUEST)
        return connection.recv(9)[8:] == bytes([_REFUSED])

    return cluster_engine.unanswered("Spark", (standalone["host"], int(standalone["port"])), limit_s, speaks)


def workers(master: str, ui: str | None) -> list[ClusterNode] | None:
    """Return the live workers from the master's web page; None if it does not answer or belongs to another master.

    Spark reports them nowhere else: an application without executors may be waiting for its turn, or in vain.
    """
    standalone = STANDALONE.fullmatch(master)
    assert standalone
    page = (ui or f"http://{standalone['host']}:8080").rstrip("/")
    try:
        answer = HttpClient(_PAGE_S, proxy=True, redirects=True).get(f"{page}/json/")
        state = answer.json() if answer.ok else None
    except NoAnswer:
        return None
    if not isinstance(state, dict) or state.get("url") != master:
        return None
    return [
        ClusterNode(
            name=worker["host"],
            cpus=worker["cores"],
            gpus=len(worker.get("resources", {}).get("gpu", {}).get("addresses", [])),
            memory=worker["memory"] << 20,
        )
        for worker in state.get("workers", [])
        if worker.get("state") == "ALIVE"
    ]
