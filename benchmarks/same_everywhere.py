"""Is the same scenario the same everywhere: on local, Slurm, Kubernetes, Ray, Dask and Spark?

Slurm and Kubernetes are real clusters of several nodes on this machine (scripts/), the others are of the run's own.

Each round runs one sweep (two parameters, one of them failing at one point) on every executor, in another order each
time, and then asks the evidence and the report:

- one plan digest, and the same instance digests, in the evidence of all trials;
- the same outcome at each point;
- the same metrics: what is computed is equal, and of what is measured (a sleep) the 95% intervals overlap;
- one table in report.md, with `executor` as a column, and as many rows as points and executors;
- `bench compare` of two of them names the executor; of two that run on this very host it names nothing else, and does
  not call the comparison exploratory.

    python benchmarks/same_everywhere.py [--executors local slurm kubernetes ray dask] [--rounds 1] [--json]

Exits 1 where one of these does not hold.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import cluster
from kube import kubernetes

CODE = """
import time

def sweep(n: int, word: str):
    if n == 3:
        raise ValueError('three')
    began = time.perf_counter()
    time.sleep(0.1 * n)
    return {'x': n, 'slept_ms': (time.perf_counter() - began) * 1e3}
"""
SCENARIO = {
    "scenario": "same",
    "experiment": "sweep",
    "workload": {"n": [1, 2, 3], "word": ["a", "b"]},
    "repetitions": 4,
}
POINTS = 4  # that succeed
METRICS = 2
APART = ("slurm", "kubernetes")  # whose nodes are hosts of other names


@dataclass(frozen=True)
class Place:
    """A workspace that all executors see under the same name, and what finds their clusters."""

    root: Path
    clusters: dict[str, str]

    def bench(self, *words: str, code: int = 0) -> str:
        own = {"PYTHONPATH": str(self.root / "site"), "BENCH_CACHE_DIR": str(self.root / "cache")}
        command = [sys.executable, "-m", "benchhouse", "-C", str(self.root), *words]
        done = subprocess.run(
            command, env=os.environ | self.clusters | own, capture_output=True, text=True, check=False
        )
        if done.returncode != code:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def place(executors: list[str]) -> Iterator[Place]:
    """With the clusters that these need."""
    with contextlib.ExitStack() as stack:
        site: dict[str, Any] = {"site": "lab"}
        clusters = {}
        if "kubernetes" in executors:
            kube = stack.enter_context(kubernetes())
            root, clusters["KUBECONFIG"] = kube.workspace, kube.environment["KUBECONFIG"]
            site = json.loads((root / "site.yaml").read_text())
        else:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="same-everywhere-")))
        if "slurm" in executors:
            clusters["SLURM_CONF"] = stack.enter_context(cluster()).environment["SLURM_CONF"]
            site["slurm"] = {"partition": "all"}
        site["environment"] = {"PYTHONPATH": str(root / "site")}  # a pod has no variables of ours
        (root / "site.yaml").write_text(json.dumps(site))
        install(root)
        yield Place(root, clusters)


def install(root: Path) -> None:
    info = root / "site" / "sweep-1.0.dist-info"
    info.mkdir(parents=True)
    (root / "site" / "sweep.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sweep\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[benchhouse.experiments]\nsweep = sweep:sweep\n")
    (root / "same.yaml").write_text(json.dumps(SCENARIO))


def run_everywhere(here: Place, executors: list[str]) -> dict[str, str]:
    """The run of each executor; a point fails, so the exit code is 1."""
    runs = {}
    for executor in executors:
        told = here.bench("run", "--new", "--json", "--executor", executor, str(here.root / "same.yaml"), code=1)
        runs[executor] = json.loads(told)["run_id"]
    return runs


def different_metrics(here: Place, runs: dict[str, str]) -> list[str]:
    """Points whose numbers are not the same on two executors."""
    listed = ", ".join(f"'{run}'" for run in runs.values())
    sql = f"SELECT point, metric, executor, n, ci_low, ci_high FROM points WHERE run_id IN ({listed}) ORDER BY ALL"
    rows = json.loads(here.bench("query", "--json", sql))["rows"]
    different = [] if len(rows) == POINTS * METRICS * len(runs) else [f"{len(rows)} rows"]
    for a, b in itertools.combinations(rows, 2):
        if (a["point"], a["metric"]) == (b["point"], b["metric"]):
            apart = a["ci_low"] > b["ci_high"] or b["ci_low"] > a["ci_high"] or a["n"] != b["n"]
            different += [f"{a['metric']} at {a['point']}: {a}, {b}"] if apart else []
    return different


def look(here: Place, runs: dict[str, str]) -> dict[str, Any]:
    listed = ", ".join(f"'{run}'" for run in runs.values())
    sql = (
        "SELECT executor, plan_digest, instance_digest, repetition, outcome FROM trial_fact "
        f"WHERE run_id IN ({listed}) ORDER BY ALL"
    )
    rows = json.loads(here.bench("query", "--json", sql))["rows"]
    outcomes = {
        executor: {
            (row["instance_digest"], row["repetition"]): row["outcome"] for row in rows if row["executor"] == executor
        }
        for executor in runs
    }
    first = next(iter(outcomes.values()))
    here.bench("report", *runs.values())
    lines = (here.root / "reports" / "same" / "report.md").read_text().splitlines()
    rows_of = [line for line in lines if line.startswith("| n=") and any(f"| {name} |" in line for name in runs)]
    near = [name for name in runs if name not in APART]
    a, b = (runs[name] for name in (near if len(near) > 1 else [*runs])[:2])
    compared = json.loads(here.bench("compare", "--json", a, b))
    return {
        "plans": len({row["plan_digest"] for row in rows}),
        "instances": {name: len({digest for digest, _ in found}) for name, found in outcomes.items()},
        "same_instances_and_outcomes": all(found == first for found in outcomes.values()) and bool(first),
        "different_metrics": different_metrics(here, runs),
        "heads_with_executor": sum(line.startswith("| point | executor |") for line in lines),
        "rows": len(rows_of),
        "differences": [item["dimension"] for item in compared["differences"]],
        "exploratory": compared["exploratory"],
    }


def holds(found: dict[str, Any], executors: list[str]) -> bool:
    on_this_host = len(set(executors) - set(APART)) > 1
    return (
        found["plans"] == 1
        and found["same_instances_and_outcomes"]
        and not found["different_metrics"]
        and found["heads_with_executor"] == 1
        and found["rows"] == POINTS * len(executors)
        and "executor" in found["differences"]
        and (not on_this_host or (found["differences"] == ["executor"] and not found["exploratory"]))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", nargs="+", default=["local", "slurm", "kubernetes", "ray", "dask"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if len(given.executors) < 2:
        parser.error("one executor can't differ from itself")
    rounds = []
    with place(given.executors) as here:
        for at in range(given.rounds):
            turn = at % len(given.executors)
            rounds.append(look(here, run_everywhere(here, given.executors[turn:] + given.executors[:turn])))
    passed = all(holds(found, given.executors) for found in rounds)
    if given.json:
        print(json.dumps({"executors": given.executors, "rounds": rounds, "passed": passed}, indent=2))
    else:
        for found in rounds:
            print(", ".join(f"{key} {value}" for key, value in found.items()))
        print(f"{'holds' if passed else 'DOES NOT HOLD'} on {', '.join(given.executors)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
