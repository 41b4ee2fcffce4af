"""What the orchestrator adds to trials of ten seconds.

One `bench run` carries N trials (--trials), one after the other, whose experiment sleeps and notes, by the system's
monotonic clock, when its sleep began and ended. Wall time of the run then falls into parts that add up:

- gap_ms: from the end of one trial's sleep to the beginning of the next one's: result written, evidence sealed and
  synced, ledger told, next worker forked and caged, experiment imported. Median of the N - 1 gaps: it is wall time,
  and one hiccup of a shared machine would decide a mean; gap_worst_ms and load_average tell how quiet it was.
- steady_overhead = gap / sleep. This is the figure with the bar: below 1% a trial.
- start_up_s: from the command to the first sleep (imports, planning, worker host); ending_s: from the last sleep to the
  prompt (sealing, collecting, summary). Both are paid once a run, whatever N.
- whole_overhead: wall / (N * sleep) - 1, all of the above included.
- cpu_share: CPU time of orchestrator, host and workers (the experiments only sleep) by wall time of the run.

    python benchmarks/orchestrator_overhead.py [--trials 6] [--sleep 10] [--json]       exits 1 when the bar is missed
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 0.01
CODE = """
import time

def rest(seconds: float, n: int = 0):
    began = time.monotonic()
    time.sleep(seconds)
    return {"began": began, "ended": time.monotonic()}
"""


def run(root: Path, trials: int, sleep_s: float) -> dict[str, float]:
    workload = {"seconds": sleep_s, "n": list(range(trials))}
    path = root / "rest.yaml"
    path.write_text(json.dumps({"scenario": "rest", "experiment": "rest", "workload": workload}))
    environment = os.environ | {"PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache")}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "benchhouse", "-C", str(root), "run", "--new", "--json", str(path)],
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    spans = sleeps(root, json.loads(done.stdout)["run_id"])
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(spans)]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "trials": len(spans),
        "sleep_s": sleep_s,
        "wall_s": ended - began,
        "start_up_s": spans[0][0] - began,
        "ending_s": ended - spans[-1][1],
        "gap_ms": statistics.median(gaps) * 1e3 if gaps else 0.0,
        "gap_worst_ms": max(gaps) * 1e3 if gaps else 0.0,
        "steady_overhead": statistics.median(gaps) / sleep_s if gaps else 0.0,
        "whole_overhead": (ended - began) / (trials * sleep_s) - 1,
        "cpu_s": cpu_s,
        "cpu_share": cpu_s / (ended - began),
        "load_average": os.getloadavg()[0],
    }


def sleeps(root: Path, run_id: str) -> list[tuple[float, float]]:
    """When each trial of the run slept, in order."""
    found = []
    for path in (root / "results" / "rest").glob("*/metrics.json"):
        extras = json.loads(path.read_bytes())["benchhouse"]
        values = {row["metric"]: row["value"] for row in extras["measurements"]}
        if extras["run_id"] == run_id:
            found.append((values["began"], values["ended"]))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--sleep", type=float, default=10.0, help="Seconds that a trial sleeps.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.trials < 2:
        parser.error("--trials is at least 2: what counts is the gap between trials")
    with tempfile.TemporaryDirectory(prefix="orchestrator-overhead-") as name:
        root = Path(name)
        info = root / "site" / "rest-1.0.dist-info"
        info.mkdir(parents=True)
        (root / "site" / "rest.py").write_text(CODE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rest\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[benchhouse.experiments]\nrest = rest:rest\n")
        run(root, 1, 0.01)  # the catalog's cache is warm
        figures = run(root, given.trials, given.sleep)
    passed = figures["steady_overhead"] < BAR
    if given.json:
        print(json.dumps(figures | {"bar": BAR, "passed": passed}, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:18} {value:.4g}")
        print(f"{'passed' if passed else 'missed'}: {figures['steady_overhead']:.3%} a trial, below {BAR:.0%}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
