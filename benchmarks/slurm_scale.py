"""Ten thousand instances: what `bench submit` costs, and how often a run that waits for them asks Slurm.

The jobs are held, so that nothing runs. CPU is user + system of `bench submit` and its children (sbatch). Then
`bench run --resume` follows them for --seconds; Slurm's own statistics (sdiag) tell how many questions it was asked.
While nothing happens the time between two of them grows to the site's `poll`, here 5 s.

    python benchmarks/slurm_scale.py [--instances 10000] [--rounds 3] [--seconds 40] [--json]

Exit code 1 when a submit costs more than 1.5 CPU-seconds (the least of the rounds: the work is the same in each, and
neighbours only ever add to it), or when Slurm is asked more than once an interval.
"""

import argparse
import json
import math
import re
import resource
import signal
import subprocess
import sys
import time

from cluster import Cluster, cluster

MOST_CPU_S = 1.5
POLL_S = 5.0
FIRST_S = (2.0, 3.0, 4.5)  # the first intervals are shorter


def submit_cpu_s(slurm: Cluster, path: object) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    slurm.bench("submit", "--new", path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def questions(slurm: Cluster, seconds: float) -> int:
    """REQUEST_JOB_INFO and its kin that Slurm's controller was sent while a run was followed."""
    slurm.call("sdiag", "--reset")
    command = [sys.executable, "-m", "benchhouse", "run", "--resume", "@last"]
    process = subprocess.Popen(
        command, cwd=slurm.workspace, env=slurm.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    said = slurm.call("sdiag")
    process.send_signal(signal.SIGKILL)
    process.wait()
    return sum(int(count) for count in re.findall(r"REQUEST_JOB_(?:INFO|USER_INFO|INFO_SINGLE).*?count:(\d+)", said))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with cluster() as slurm:
        (slurm.workspace / "site.yaml").write_text(f"site: lab\nexecutor: slurm\nslurm: {{poll: {POLL_S:g}s}}\n")
        values = {"range": {"from": 1, "to": options.instances, "step": 1}}
        work = {"experiment": "command", "target": {"argv": ["true"]}, "workload": {"executions": values}}
        path = slurm.scenario("many", work | {"slurm": {"flags": ["--hold"]}})
        costs = []
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            costs.append(submit_cpu_s(slurm, path))
            if number + 1 < options.rounds:
                slurm.bench("stop", "@last")
        print(f"following for {options.seconds:g} s", file=sys.stderr, flush=True)
        asked = questions(slurm, options.seconds)
        slurm.bench("stop", "@last")
    allowed = 2 + len(FIRST_S) + math.ceil(max(0.0, options.seconds - sum(FIRST_S)) / POLL_S)
    passed = min(costs) <= MOST_CPU_S and asked <= allowed
    found = {"submit_cpu_s": min(costs), "rounds_cpu_s": costs, "asked": asked, "allowed": allowed, "passed": passed}
    if options.json:
        print(json.dumps(found))
    else:
        rounds = ", ".join(f"{cost:.2f}" for cost in costs)
        print(f"bench submit of {options.instances:,}: {min(costs):.2f} CPU-s (rounds {rounds}); at most {MOST_CPU_S}")
        print(f"questions to Slurm in {options.seconds:g} s: {asked}; at most {allowed}")
        print("passed" if passed else "MISSED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
