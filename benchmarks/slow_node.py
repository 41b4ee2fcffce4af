"""A node that is slowed in half of the trials of four nodes: is it named, and is none named in the others?

The nodes are those of a real Slurm on this machine, each held to a third of a core by a cgroup of its own. A trial
does the same work on all of them in lock-step; in half of the trials, a process of somebody else runs on one node and
uses what that node has. Named is what `abnormal` in telemetry/summary.json says, which is a warning of the trial.

    python benchmarks/slow_node.py [--trials 40] [--json]

Exit code 1 where fewer than 19 of 20 slowed nodes are named, or any other node is.
"""

import argparse
import json
import sys

import lockstep
from cluster import cluster

BAR = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40, help="half of them slowed; a multiple of 8")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quarter = given.trials // 8
    with cluster(cores=0.35) as slurm:
        lockstep.install(slurm.workspace / "packages")
        work = {"experiment": "lockstep", "resources": {"nodes": 4}, "parallel": 1}
        healthy = slurm.scenario("healthy", work | {"repetitions": 4 * quarter})
        slowed = slurm.scenario("slowed", work | {"repetitions": quarter, "workload": {"hog": [0, 1, 2, 3]}})
        for path in (healthy, slowed):
            slurm.bench("run", path, timeout_s=3600)
        trials = []
        for path in sorted(slurm.workspace.glob("results/*/*/meta.json")):
            meta, folder = json.loads(path.read_text()), path.parent
            summary = json.loads((folder / "telemetry" / "summary.json").read_text())
            abnormal = summary.get("abnormal") or {}
            trials.append((meta["custom"]["slowed"], abnormal.get("node"), abnormal.get("says", "")))
    planted = [trial for trial in trials if trial[0]]
    others = [trial for trial in trials if not trial[0]]
    named = sum(slow == name for slow, name, _ in planted)
    wrong = [f"{says}; slowed: {slow}" for slow, name, says in trials if name and name != slow]
    passed = named >= BAR * len(planted) and not wrong and min(len(planted), len(others)) == 4 * quarter
    if given.json:
        figures = {"slowed": len(planted), "named": named, "healthy": len(others), "wrong": wrong, "passed": passed}
        print(json.dumps(figures, indent=2))
    else:
        print(f"slowed nodes named   {named} of {len(planted)}")
        print(f"wrongly named        {len(wrong)} of {len(trials)} trials")
        for says in wrong:
            print(f"  {says}")
        print(f"{'passed' if passed else 'missed'}: at least {BAR:.0%} are named, and never another one")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
