"""A sweep on Slurm beside a hand-written `sbatch --array` of the same commands, on a cluster of four virtual nodes.

200 trials that sleep for a second. By hand: one array, a task each, `sleep 1` and a file that says that it is done; the
time is from `sbatch` to the last file. Ours: `bench run`, from start to exit, with evidence sealed and collected; the
trials in four tasks, eight at a time (`slurm: {pack: 50, together: 8}`), as a node has eight cores. Rounds alternate.
With --unpacked one round with a task for each trial is told as well, without a bar: there each task starts a Python.

    python benchmarks/slurm_sweep.py [--rounds 3] [--unpacked] [--json]

Exit code 1 when ours takes more than 1.10 times as long (median of the rounds' ratios).
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from cluster import Cluster, cluster

TRIALS = 200
MOST = 1.10
BY_HAND = """#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --partition=all
#SBATCH --output=/dev/null
sleep 1
touch {folder}/$SLURM_ARRAY_TASK_ID
"""


def by_hand(slurm: Cluster, number: int) -> float:
    folder = slurm.workspace / f"hand-{number}"
    folder.mkdir()
    script = slurm.workspace / f"hand-{number}.sh"
    script.write_text(BY_HAND.format(last=TRIALS - 1, folder=folder))
    began = time.monotonic()
    slurm.call("sbatch", script)
    while len(list(folder.iterdir())) < TRIALS:
        time.sleep(0.02)
    return time.monotonic() - began


def ours(slurm: Cluster, number: int, settings: dict[str, Any]) -> float:
    work = {"experiment": "command", "target": {"argv": ["sleep", "1"]}, "workload": {"executions": 1, "warmup": 0}}
    path = slurm.scenario(f"sweep-{number}-{len(settings)}", work | {"repetitions": TRIALS, "slurm": settings})
    began = time.monotonic()
    said = json.loads(slurm.bench("run", path, "--json"))
    taken = time.monotonic() - began
    if said["outcomes"] != {"succeeded": TRIALS}:
        raise SystemExit(f"ours ended with {said['outcomes']}")
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unpacked", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hand_s, ours_s = [], []
    with cluster() as slurm:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            hand_s.append(by_hand(slurm, number))
            slurm.wait_empty()
            ours_s.append(ours(slurm, number, {"pack": 50, "together": 8}))
            slurm.wait_empty()
        unpacked_s = ours(slurm, 0, {}) if options.unpacked else None
    ratios = [mine / theirs for mine, theirs in zip(ours_s, hand_s, strict=True)]
    found = {
        "hand_s": statistics.median(hand_s),
        "ours_s": statistics.median(ours_s),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "unpacked_s": unpacked_s,
        "passed": statistics.median(ratios) <= MOST,
    }
    if options.json:
        print(json.dumps(found))
    else:
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"by hand {found['hand_s']:.1f} s, ours {found['ours_s']:.1f} s: {found['ratio']:.2f} ({spread})")
        if unpacked_s is not None:
            print(f"ours with a task for each trial: {unpacked_s:.1f} s")
        print("passed" if found["passed"] else f"MISSED: at most {MOST}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
