"""Is the same scenario the same everywhere: on local, Ray, Dask and Spark, each a cluster of the run's own?

Each round runs one sweep (two parameters, one of them failing at one point) on every executor, in another order each
time, and then asks the evidence and the report:

- one plan digest, and the same instance digests, in the evidence of all trials;
- the same outcome at each point;
- one table in report.md, with `executor` as a column, and as many rows as points and executors;
- `bench compare` of two of them names the executor, and does not call the comparison exploratory.

    python benchmarks/same_everywhere.py [--executors local ray dask] [--rounds 1] [--json]

Exits 1 where one of these does not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CODE = """
def sweep(n: int, word: str):
    if n == 3:
        raise ValueError('three')
    return {'x': n}
"""
SCENARIO = {
    "scenario": "same",
    "experiment": "sweep",
    "workload": {"n": [1, 2, 3], "word": ["a", "b"]},
    "repetitions": 2,
}
POINTS = 4  # that succeed


def bench(root: Path, *words: str, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache")}
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def install(root: Path) -> None:
    info = root / "site" / "sweep-1.0.dist-info"
    info.mkdir(parents=True)
    (root / "site" / "sweep.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sweep\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[benchhouse.experiments]\nsweep = sweep:sweep\n")
    (root / "same.yaml").write_text(json.dumps(SCENARIO))


def run_everywhere(root: Path, executors: list[str]) -> dict[str, str]:
    """The run of each executor; a point fails, so the exit code is 1."""
    runs = {}
    for executor in executors:
        told = bench(root, "run", "--new", "--json", "--executor", executor, str(root / "same.yaml"), code=1)
        runs[executor] = json.loads(told)["run_id"]
    return runs


def look(root: Path, runs: dict[str, str]) -> dict[str, Any]:
    listed = ", ".join(f"'{run}'" for run in runs.values())
    sql = (
        "SELECT executor, plan_digest, instance_digest, repetition, outcome FROM trial_fact "
        f"WHERE run_id IN ({listed}) ORDER BY ALL"
    )
    rows = json.loads(bench(root, "query", "--json", sql))["rows"]
    outcomes = {
        executor: {
            (row["instance_digest"], row["repetition"]): row["outcome"] for row in rows if row["executor"] == executor
        }
        for executor in runs
    }
    first = next(iter(outcomes.values()))
    bench(root, "report", *runs.values())
    lines = (root / "reports" / "same" / "report.md").read_text().splitlines()
    table = [line for line in lines if any(f"({run})" in line and f"| {name} |" in line for name, run in runs.items())]
    a, b = list(runs.values())[:2]
    compared = json.loads(bench(root, "compare", "--json", a, b))
    return {
        "plans": len({row["plan_digest"] for row in rows}),
        "instances": {name: len({digest for digest, _ in found}) for name, found in outcomes.items()},
        "same_instances_and_outcomes": all(found == first for found in outcomes.values()) and bool(first),
        "heads_with_executor": sum(line.startswith("| point | executor |") for line in lines),
        "rows": len(table),
        "differences": [item["dimension"] for item in compared["differences"]],
        "exploratory": compared["exploratory"],
    }


def holds(found: dict[str, Any], executors: int) -> bool:
    return (
        found["plans"] == 1
        and found["same_instances_and_outcomes"]
        and found["heads_with_executor"] == 1
        and found["rows"] == POINTS * executors
        and found["differences"] == ["executor"]
        and not found["exploratory"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", nargs="+", default=["local", "ray", "dask"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if len(given.executors) < 2:
        parser.error("one executor can't differ from itself")
    rounds = []
    with tempfile.TemporaryDirectory(prefix="same-everywhere-") as name:
        root = Path(name)
        install(root)
        for at in range(given.rounds):
            turn = at % len(given.executors)
            rounds.append(look(root, run_everywhere(root, given.executors[turn:] + given.executors[:turn])))
    passed = all(holds(found, len(given.executors)) for found in rounds)
    if given.json:
        print(json.dumps({"executors": given.executors, "rounds": rounds, "passed": passed}, indent=2))
    else:
        for found in rounds:
            print(", ".join(f"{key} {value}" for key, value in found.items()))
        print(f"{'holds' if passed else 'DOES NOT HOLD'} on {', '.join(given.executors)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
