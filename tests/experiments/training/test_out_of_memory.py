"""A rank that the kernel really kills, because the trial's cgroup has no more memory."""

import pytest
from experiments.training.test_faults import planted
from services.trainer import trainer_bin

FILLS = """
def strike(step):
    print("about to fill its memory", flush=True)
    held = []
    while True: held.append(bytearray(os.urandom(1 << 20) * 32))
"""
LIMIT = "1GB"  # torchrun itself needs a third


def run(lab, launcher, tmp_path, code=0, **workload):
    target, given = planted(tmp_path, FILLS, launcher=launcher, **workload)
    if launcher == "torchrun":
        target["torchrun"] = str(trainer_bin() / "torchrun")
    lab.run("training.run", code=code, target=target, workload=given, limits={"memory": LIMIT})
    lab.is_tidy()
    (trial,) = lab.trials()
    if "cgroup" not in trial.meta["limits"]["enforced_by"]["memory"]:
        pytest.skip("without cgroups the memory of a rank is its own, and no kernel kills it")
    return trial


def test_a_training_that_went_on_after_an_oom_kill_has_succeeded_and_names_the_rank(lab, tmp_path):
    trial = run(lab, "torchrun", tmp_path, first="0 if attempt == 0 else 3", max_restarts=1, warmup=0)
    assert trial.outcome == "succeeded" and trial.meta["usage"]["oom_kills"] == 1
    (told,) = trial.meta["custom"]["interrupts"]
    assert (told["kind"], told["ranks"], told["certain"]) == ("memory", [1], True)
    assert f"rank 1 (node {trial.meta['host']}) ran out of memory (signal 9 (SIGKILL)) after step 4" in told["message"]
    assert told["message"].endswith("about to fill its memory")
    measured = {row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"]}
    assert measured["restarts"] == 1 and measured["lost_steps"] == 2 and 0 < measured["goodput"] < 1


def test_a_training_that_an_oom_kill_ended_says_which_rank_it_was(lab, tmp_path):
    trial = run(lab, "processes", tmp_path, code=1)
    assert (trial.outcome, trial.code) == ("out_of_memory", "memory_limit")
    says = trial.meta["failure"]["message"]
    assert says.startswith("the limit is 1000000000 bytes; rank 1 (node ") and says.endswith(
        ": about to fill its memory"
    )
    assert trial.metrics["benchhouse"]["measurements"] == []
