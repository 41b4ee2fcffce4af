"""On a real Slurm cluster: the reason for which a run waited is known after its end."""

import json
import time

import pytest
from laboratory import wait_until
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import collect, collect_until_done, needs_slurm, submit
from services.slurm_cluster import slurm as slurm

pytestmark = needs_slurm
ONLY = "gpu02"  # one node, so that other tests can use the rest of the cluster
LONG_ENOUGH_S = 12.0  # `bench why` does not blame the queue for less than 10 s


@pytest.mark.slow("waits 12 s in the queue, because `bench why` ignores shorter waits")
def test_a_full_partition_is_the_reason_that_is_given_after_the_run(slurm, cluster):
    scenario = slurm.scenario("once", repetitions=4, partition="gpu", slurm={"flags": [f"--nodelist={ONLY}"]})
    base = submit(slurm, scenario)["run_id"]
    collect_until_done(slurm, cluster)
    blocker = cluster.call(
        "sbatch", "--parsable", "--partition=gpu", f"--nodelist={ONLY}", "--exclusive", "--output=/dev/null",
        "--wrap=sleep 600",
    ).strip()  # fmt: skip
    try:
        wait_until(
            lambda: cluster.call("squeue", "-h", "-j", blocker, "-o", "%T").strip() == "RUNNING", "the blocking job"
        )
        run = submit(slurm, scenario)["run_id"]
        time.sleep(LONG_ENOUGH_S)
        assert collect(slurm)["under_way"] == 4  # as a cron job does; the reason that Slurm gives now is recorded
    finally:
        cluster.call("scancel", blocker)
    collect_until_done(slurm, cluster)
    found = json.loads(slurm.bench("why", run, "--vs", base, "--json").stdout)
    assert found["pending"].get("Resources") or found["pending"].get("Priority"), found["pending"]
    (diagnosis,) = [one for point in found["points"] for one in point["diagnoses"]]
    parts = (diagnosis["playbook"], diagnosis["cause"], diagnosis["certainty"])
    assert parts == ("scheduler_backpressure", "capacity", "moderate")
    assert {one["scope"] for one in diagnosis["evidence"]} == {"scheduler"}
    assert "queue_s" in diagnosis["symptoms"][0]
