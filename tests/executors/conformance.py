"""What every executor promises, and where each of them is to be had. A further one joins by a line in `PLACES`."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import services.apart
from laboratory import Lab
from services.dask_cluster import DaskCluster
from services.kubernetes_cluster import KubernetesCluster
from services.ray_cluster import RayCluster
from services.seaweedfs import SeaweedFS
from services.slurm_cluster import Cluster
from services.spark_cluster import has_spark


@dataclass
class Place:
    """One executor, ready to be used by laboratories."""

    name: str
    site: dict[str, Any]
    variables: dict[str, str]
    ends_at_once: bool = True  # with its orchestrator; jobs of Slurm continue, and pods wait for it for 30 seconds
    module: Path | None = None  # that holds it, where it is none of ours
    carries: bool = True  # its jobs have the orchestrator's variables

    def furnish(self, lab: Lab) -> Lab:
        lab.variables |= self.variables
        if self.module:
            entry = f"[benchhouse.executors]\n{self.name} = {self.name}:{self.name.title()}Executor\n"
            lab.install(self.name, "1.0", self.module.read_text(), entry)
        environment = {"FROM_SITE": "1.5"} | ({} if self.carries else lab.own_variables)
        site = {"site": "test", "executor": self.name, "environment": environment, **self.site}
        (lab.workspace / "site.yaml").write_text(json.dumps(site))
        return lab


def local(request: pytest.FixtureRequest) -> Place:
    return Place("local", {}, {})


def slurm(request: pytest.FixtureRequest) -> Place:
    cluster: Cluster = request.getfixturevalue("cluster")
    return Place(
        "slurm", {"slurm": {"poll": 2.0, "partition": "all"}}, {"SLURM_CONF": cluster.conf}, ends_at_once=False
    )


def ray(request: pytest.FixtureRequest) -> Place:
    cluster: RayCluster = request.getfixturevalue("ray_cluster")
    return Place("ray", {"ray": {"address": cluster.address}}, cluster.variables)


def dask(request: pytest.FixtureRequest) -> Place:
    cluster: DaskCluster = request.getfixturevalue("dask_cluster")
    return Place("dask", {"dask": {"address": cluster.address}}, {})


def spark(request: pytest.FixtureRequest) -> Place:
    has_spark()
    return Place("spark", {"spark": {"master": "local[2]"}}, {})


def kubernetes(request: pytest.FixtureRequest) -> Place:
    cluster: KubernetesCluster = request.getfixturevalue("kubernetes_cluster")
    folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    namespace = cluster.make_namespace()
    request.addfinalizer(lambda: cluster.forget(namespace))
    site = {"kubernetes": cluster.site(namespace, folders.getbasetemp())}
    return Place("kubernetes", site, {"KUBECONFIG": cluster.kubeconfig}, carries=False, ends_at_once=False)


def apart(request: pytest.FixtureRequest) -> Place:
    """Slots that see no file of ours: a bucket carries all."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a file system of a process's own needs root")
    seaweedfs: SeaweedFS = request.getfixturevalue("seaweedfs")
    seaweedfs.bucket("apart")
    variables = seaweedfs.environment | {"AWS_ENDPOINT_URL": seaweedfs.url, "APART_BUCKET": "s3://apart/runs"}
    return Place("apart", {}, variables, module=Path(services.apart.__file__))


def joined(make: Callable[[pytest.FixtureRequest], Place], *marks: pytest.MarkDecorator) -> Any:
    """One line of `PLACES`; all tests of a cluster run in one test process, so that it is started once (conftest)."""
    return pytest.param(make, id=make.__name__, marks=marks)


PLACES = [joined(local), joined(slurm), joined(ray), joined(dask), joined(spark), joined(kubernetes)]

SWEEP: dict[str, Any] = {
    "workload": {"act": ["stubborn", "kill_worker", "flaky", "fill", "ok", "fail", "raise", "daemon", "site_variable"]},
    "limits": {"wall": "10s", "memory": "300MB"},
    "retries": {"max_retries": 2, "backoff": 0.05},
    "parallel": 2,
}
OUTCOMES = {
    "ok": "succeeded",
    "fail": "failed",
    "raise": "error",
    "stubborn": "timeout",
    "fill": "out_of_memory",
    "flaky": "succeeded",
    "daemon": "succeeded",
    "site_variable": "succeeded",
}
"""Of those that are sealed; `kill_worker` never is, and ends as `lost`."""
