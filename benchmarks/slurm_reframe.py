"""What a trivial trial costs on Slurm beside a test of ReFrame's: 50 of each, `true`, on four virtual nodes.

ReFrame: 50 tests by its `squeue` scheduler and asynchronous policy, from start to exit. Ours: `bench run` of 50 trials,
in four tasks (`slurm: {pack: 13, together: 8}`), from start to exit with evidence sealed and collected; and once more
with a task for each trial, which is told without a bar: there each task starts a Python. Wall time a test is what is
compared; both may have as many jobs at a time as the cluster takes. Rounds alternate.

    scripts/install-peers.sh reframe
    python benchmarks/slurm_reframe.py [--rounds 3] [--json]

Exit code 1 when ours is not at least 3 times less (median of the rounds' ratios), 2 without ReFrame.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cluster import Cluster, cluster

TESTS = 50
LEAST = 3.0
CACHE = Path(os.environ.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")
REFRAME = CACHE / "peers" / "reframe" / "bin" / "reframe"
SETTINGS = """
site_configuration = {
    "systems": [{
        "name": "lab", "hostnames": [".*"], "modules_system": "nomod",
        "partitions": [{
            "name": "all", "scheduler": "squeue", "launcher": "local", "access": ["-p all"], "environs": ["builtin"],
            "max_jobs": 100,
        }],
    }],
    "environments": [{"name": "builtin"}],
    "logging": [{"handlers": [{"type": "file", "name": "reframe.log", "level": "info", "format": "%(message)s"}]}],
}
"""
TEST = f"""
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Trivial(rfm.RunOnlyRegressionTest):
    number = parameter(range({TESTS}))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "true"

    @sanity_function
    def good(self):
        return sn.assert_true(True)
"""


def theirs(slurm: Cluster, number: int) -> float:
    folder = slurm.workspace / f"reframe-{number}"
    folder.mkdir()
    (folder / "settings.py").write_text(SETTINGS)
    (folder / "trivial.py").write_text(TEST)
    began = time.monotonic()
    done = subprocess.run(
        [REFRAME, "-C", "settings.py", "-c", "trivial.py", "--exec-policy=async", "-r"], cwd=folder,
        env=slurm.environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    taken = time.monotonic() - began
    if done.returncode or f"Ran {TESTS}/{TESTS} test case(s)" not in done.stdout:
        raise SystemExit(f"ReFrame ended with {done.returncode}: {done.stdout[-1500:]} {done.stderr[-500:]}")
    return taken


def ours(slurm: Cluster, name: str, settings: dict[str, int]) -> float:
    work = {"experiment": "command", "target": {"argv": ["true"]}, "workload": {"executions": 1, "warmup": 0}}
    path = slurm.scenario(name, work | {"repetitions": TESTS, "slurm": settings})
    began = time.monotonic()
    said = json.loads(slurm.bench("run", path, "--json"))
    taken = time.monotonic() - began
    if said["outcomes"] != {"succeeded": TESTS}:
        raise SystemExit(f"ours ended with {said['outcomes']}")
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not REFRAME.exists():
        print("ReFrame is not installed: scripts/install-peers.sh reframe", file=sys.stderr)
        return 2
    their_s, our_s, alone_s = [], [], []
    with cluster() as slurm:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            their_s.append(theirs(slurm, number))
            slurm.wait_empty()
            our_s.append(ours(slurm, f"packed-{number}", {"pack": 13, "together": 8}))
            slurm.wait_empty()
            alone_s.append(ours(slurm, f"alone-{number}", {}))
            slurm.wait_empty()
    ratios = [theirs / mine for theirs, mine in zip(their_s, our_s, strict=True)]
    found = {
        "reframe_s_a_test": statistics.median(their_s) / TESTS,
        "ours_s_a_trial": statistics.median(our_s) / TESTS,
        "ours_unpacked_s_a_trial": statistics.median(alone_s) / TESTS,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "passed": statistics.median(ratios) >= LEAST,
    }
    if options.json:
        print(json.dumps(found))
    else:
        spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
        print(f"ReFrame {found['reframe_s_a_test']:.2f} s a test, ours {found['ours_s_a_trial']:.2f} s a trial")
        print(f"ours with a task for each trial: {found['ours_unpacked_s_a_trial']:.2f} s a trial")
        print(f"{found['ratio']:.1f} times less ({spread}); at least {LEAST:g}")
        print("passed" if found["passed"] else "MISSED")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
