"""Pods that share no file with this machine: a bucket carries all, their image has the code, and they may do little."""

import json
import platform
import shutil
from pathlib import Path

import pytest
from executors.test_kubernetes import settings
from laboratory import Lab, wait_until
from services.kubernetes_cluster import KubernetesCluster
from services.refusing_proxy import refusing
from services.seaweedfs import SeaweedFS

import benchhouse
from benchhouse.processes.worker_copy import layer_for


def packages_of(lab: Lab, volume: Path) -> Path:
    """What the image has: benchhouse with all that a worker needs, and the laboratory's experiments."""
    made = lab.root / "packages"
    layer = layer_for(
        volume / ".benchhouse", "3.11", platform.machine(), "glibc {1}".format(*platform.libc_ver()), print
    )
    shutil.copytree(layer, made)
    shutil.copytree(Path(benchhouse.__file__).parent, made / "benchhouse", dirs_exist_ok=True)
    shutil.copytree(lab.root / "site", made, dirs_exist_ok=True)
    return made


@pytest.mark.slow("it adds an image to both nodes, and pods carry code and results through a bucket")
def test_a_restricted_pod_without_a_volume_runs_trials_by_a_bucket(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, seaweedfs: SeaweedFS
):
    given = settings(kubernetes)
    seaweedfs.bucket("pods")
    image = kubernetes_cluster.add_image("benchhouse:1", packages_of(kubernetes, Path(given["volume"]["path"])), 65534)
    kubernetes.variables |= seaweedfs.environment | {"AWS_ENDPOINT_URL": seaweedfs.url}
    with refusing(seaweedfs.url, kubernetes_cluster.gateway) as server:
        values = seaweedfs.environment | {"AWS_ENDPOINT_URL": server.url}
        literals = [f"--from-literal={name}={value}" for name, value in values.items()]
        kubernetes_cluster.kubectl(
            "create", "secret", "generic", "bucket", "--namespace", given["namespace"], *literals
        )
        by_bucket = {"bucket": "s3://pods/runs", "bucket_secret": "bucket", "code": "image", "restricted": True}
        site = json.loads((kubernetes.workspace / "site.yaml").read_text())
        site["kubernetes"] = {"namespace": given["namespace"], "image": image, **by_bucket}
        (kubernetes.workspace / "site.yaml").write_text(json.dumps(site))
        kubernetes.run("once", workload={"n": [0, 1]})
    trials = kubernetes.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 2
    assert all(trial.meta["placed"]["image"] == image for trial in trials)
    assert any(method == "PUT" for method, _ in server.asked), "pods have written to the bucket"
    assert not list(seaweedfs.bucket("pods").keys(""))
    labelled = ("--namespace", given["namespace"], "--selector", "app.kubernetes.io/managed-by=benchhouse")
    wait_until(lambda: not kubernetes_cluster.get("pods,jobs,configmaps", *labelled), "objects to go")
    assert kubernetes.damage() == []
