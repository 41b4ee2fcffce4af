"""What 50 points of an experiment written for ado cost here, beside `ado create operation` on the same 50 points.

Each round runs one space file twice, in turns: by `bench run space.yaml` (planned, caged, sealed, collected, summed up)
and by `ado create operation --with space=space.yaml`, with a store of its own. The experiment's package is installed
once and does nothing. CPU time is user + system of whole process trees: both run below a process that adopts and reaps
what leaves its parent, as Ray's servers do. Discovery is done before, as it is kept between runs; it is told apart,
and so is `bench list experiments` with what it found.

    python benchmarks/ado_bridge.py [--points 50] [--rounds 3] [--json]

Exits 1 when ado needs less than 8 times our CPU time (median over the rounds), or `bench list experiments` more than
0.5 CPU seconds.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from noop_trials import ADO_NOOP, package

BAR = 8.0
LIST_BAR_S = 0.5
OPERATION = {
    "operation": {
        "module": {"operatorName": "random_walk", "operationType": "explore"},
        "parameters": {
            "numberEntities": "all", "batchSize": 10, "singleMeasurement": False,
            "samplerConfig": {"mode": "sequential", "samplerType": "generator"},
        },
    },
    "spaces": ["space"],
}  # fmt: skip


def cpu_of(command: list[str], root: Path, environment: dict[str, str]) -> float:
    """CPU seconds of the command and all that it started, wherever that went."""
    holder = [sys.executable, "-m", "benchhouse.executors.ado_operation"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    reader, writer = os.pipe()  # its input never ends
    try:
        done = subprocess.run(
            [*holder, *command], env=environment, stdin=reader, capture_output=True, cwd=root, text=True
        )
    finally:
        os.close(reader)
        os.close(writer)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def holder_s(root: Path, environment: dict[str, str]) -> float:
    """What the measuring itself costs; taken off both."""
    return cpu_of(["true"], root, environment)


def prepare(root: Path, points: int) -> dict[str, str]:
    package(root / "site", "ado_noop", ADO_NOOP, "[ado.custom_experiments]\nado_noop = ado_noop\n")
    space = {
        "sampleStoreIdentifier": "default",
        "entitySpace": [{"identifier": "n", "propertyDomain": {"domainRange": [0, points], "interval": 1}}],
        "experiments": [{"actuatorIdentifier": "custom_experiments", "experimentIdentifier": "noop"}],
    }
    (root / "space.yaml").write_text(json.dumps(space))
    (root / "operation.yaml").write_text(json.dumps(OPERATION))
    return os.environ | {
        "PYTHONPATH": str(root / "site"),
        "BENCH_CACHE_DIR": str(root / "cache"),
        "HOME": str(root),
        "XDG_CONFIG_HOME": str(root / "config"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def measure(root: Path, points: int, rounds: int) -> dict[str, Any]:
    environment = prepare(root, points)
    ado, bench = str(Path(sys.executable).with_name("ado")), [sys.executable, "-m", "benchhouse", "-C", str(root)]
    subprocess.run([ado, "context", "local"], env=environment, check=False, capture_output=True)
    holding = holder_s(root, environment)
    discovery = cpu_of([*bench, "list", "experiments"], root, environment) - holding
    lists, ours, theirs = [], [], []
    for _ in range(rounds):
        lists.append(cpu_of([*bench, "list", "experiments"], root, environment) - holding)
        ours.append(cpu_of([*bench, "run", "--new", "--json", "space.yaml"], root, environment) - holding)
        command = [ado, "create", "operation", "-f", "operation.yaml", "--with", "space=space.yaml"]
        theirs.append(cpu_of(command, root, environment) - holding)
    ratios = [theirs[index] / ours[index] for index in range(rounds)]
    return {
        "points": points,
        "rounds": rounds,
        "ours_s": statistics.median(ours),
        "ado_s": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 1) for ratio in ratios],
        "bar": BAR,
        "discovery_s": discovery,
        "list_s": statistics.median(lists),
        "list_bar_s": LIST_BAR_S,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), arguments.points, arguments.rounds)
    passed = result["ratio"] >= BAR and result["list_s"] <= LIST_BAR_S
    if arguments.json:
        print(json.dumps(result | {"passed": passed}, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<14} {value:.4g}" if isinstance(value, float) else f"{key:<14} {value}")
        words = f"{result['ratio']:.1f} times less CPU than ado, at least {BAR:g}; list {result['list_s']:.2f} s"
        print(f"{'passed' if passed else 'MISSED'}: {words}, at most {LIST_BAR_S:g}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
