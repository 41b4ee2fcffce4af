"""On a real Slurm cluster: why a run waited, said after it is over; and repetitions until sure, one look a collect."""

import json
import time

from laboratory import Lab
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm
from services.slurm_cluster import slurm as slurm

pytestmark = needs_slurm
ONLY = "gpu02"  # one node, so that the rest of the cluster is left to other tests
LONG_ENOUGH_S = 12.0


def collect(lab: Lab) -> dict:
    return json.loads(lab.bench("collect", "@last", "--json").stdout)


def settled(lab: Lab) -> dict:
    deadline = time.monotonic() + 240
    while (said := collect(lab))["under_way"]:
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    return said


def test_a_full_partition_is_named_as_the_reason_after_the_run_is_over(slurm, cluster):
    scenario = slurm.scenario("once", repetitions=4, partition="gpu", slurm={"flags": [f"--nodelist={ONLY}"]})
    base = json.loads(slurm.bench("submit", scenario, "--json").stdout)["run_id"]
    settled(slurm)
    blocker = cluster.call(
        "sbatch", "--parsable", "--partition=gpu", f"--nodelist={ONLY}", "--exclusive", "--output=/dev/null",
        "--wrap=sleep 600",
    ).strip()  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while cluster.call("squeue", "-h", "-j", blocker, "-o", "%T").strip() != "RUNNING":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        run = json.loads(slurm.bench("submit", scenario, "--json").stdout)["run_id"]
        began = time.monotonic()
        while time.monotonic() < began + LONG_ENOUGH_S:  # the playbook does not speak of less than 10 s
            time.sleep(LONG_ENOUGH_S / 2)
            assert collect(slurm)["under_way"] == 4  # as a cron job would look: what Slurm says then is kept
    finally:
        cluster.call("scancel", blocker)
    settled(slurm)
    found = json.loads(slurm.bench("why", run, "--vs", base, "--json").stdout)
    assert found["pending"].get("Resources") or found["pending"].get("Priority"), found["pending"]
    (said,) = [one for point in found["points"] for one in point["diagnoses"]]
    assert (said["playbook"], said["cause"], said["certainty"]) == ("scheduler_backpressure", "capacity", "moderate")
    assert {one["scope"] for one in said["evidence"]} == {"scheduler"}
    assert "the batch system said" in said["evidence"][0]["says"]
    assert "queue_s" in said["symptoms"][0]


def test_repetitions_until_sure_take_one_look_a_collect(slurm):
    until = {"until": {"ci": "20%", "metric": "peak_rss_mb", "min": 3, "max": 6}}
    scenario = slurm.scenario(
        "command", target={"name": "true", "argv": ["true"]}, workload={"executions": 1}, monitors=False,
        repetitions=until,
    )  # fmt: skip
    first = json.loads(slurm.bench("submit", scenario, "--json").stdout)
    assert first["under_way"] == 3
    assert settled(slurm)["trials"] == 5  # known after 3, confirmed up to the next look, as on a laptop; never 6
    submissions = sorted((slurm.workspace / ".bench" / "runs" / slurm.run_id() / "jobs").glob("*/job.sh"))
    assert len(submissions) == 2  # the first look's three, and what it asked for
    assert json.loads(slurm.bench("status", "@last", "--json").stdout)["state"] == "finished"
    slurm.is_tidy()
