"""The same scenario on this machine and, in a container, on a real Slurm cluster: equal in kind."""

import json

import pytest
from services.containers import apptainer as apptainer
from services.containers import images as images
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm

pytestmark = [needs_slurm, pytest.mark.slow]


def test_slurm_with_a_container_gives_what_the_laptop_gives(lab, cluster, images):
    lab.variables["SLURM_CONF"] = cluster.conf
    common = {"workload": {"n": [1, 2], "values": 50}}
    common |= {"artifacts": {"container": str(images.python)}, "environment": {"LAB": str(lab.marks)}}
    common["binds"] = [f"{lab.root / 'site'}:/usr/local/lib/python3.11/dist-packages:ro", f"{lab.marks}:{lab.marks}"]
    (lab.workspace / "site.yaml").write_text("site: test\nslurm: {poll: 2s, partition: all}\n")
    path = lab.scenario("certified", **common)
    plans = []
    for where in ((), ("--executor", "slurm", "--runtime", "apptainer")):
        plans.append(json.loads(lab.bench("plan", path, "--json", *where).stdout)["plan_digest"])
        lab.bench("run", "--new", path, *where)
    assert plans[0] == plans[1]
    trials = lab.trials()
    inside = {trial.spec["instance_digest"]: trial for trial in trials if trial.meta["container_digest"]}
    outside = {trial.spec["instance_digest"]: trial for trial in trials if not trial.meta["container_digest"]}
    assert inside.keys() == outside.keys() and len(inside) == 2
    for digest, trial in inside.items():
        assert trial.outcome == outside[digest].outcome == "succeeded"
        assert rows(trial) == rows(outside[digest])
        assert trial.meta["slurm_job_id"] and trial.meta["container_enter_s"] > 0


def rows(trial):
    found = trial.metrics["benchhouse"]["measurements"]
    return sorted((row["metric"], row["stat"], row["unit"], row["scope"], row["window"]) for row in found)
