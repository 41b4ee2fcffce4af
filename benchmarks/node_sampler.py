"""What sampling costs on each node of a trial of four at 1 s, and how well the nodes' clocks are known.

The nodes are those of a real Slurm on this machine: one kernel, so their times of day are the same, and so is the
number of context switches that each of them reads. The cost is the CPU time of the whole sampler of a node while the
trial ran, as telemetry/summary.json has it; of the rounds, the cheapest counts: neighbours only ever add to it. Then
the monotonic clock of one node is set an hour ahead by a time namespace. Where its series lie is found by moving its
context switches along until they fit best to those that the experiment's node has counted.

    python benchmarks/node_sampler.py [--rounds 3] [--json]

Exit code 1 where a node costs more than 0.5% of a core, an offset or its uncertainty is stated above 5 ms, or a series
lies more than 5 ms from where it should, with the planted hour or without.
"""

import argparse
import json
import os
import signal
import sys
from bisect import bisect_left
from pathlib import Path
from typing import Any

import lockstep
import pyarrow.parquet as pq
from cluster import Cluster, cluster

from benchhouse.schema.telemetry import TelemetrySummary

BAR_CORES, BAR_S = 0.005, 0.005
AHEAD, AHEAD_S = "node02", 3600
FARTHEST_MS = 50.0
EVEN = {"seconds": 20, "work_s": 0.001, "every_s": 0.013}  # many small steps: between two samples little changes

Curve = tuple[list[float], list[float]]


def run(slurm: Cluster, name: str, repetitions: int, interval_s: float, workload: dict[str, float]) -> list[Path]:
    """The telemetry folders of its trials."""
    scenario = {
        "experiment": "lockstep", "resources": {"nodes": 4}, "parallel": 1, "repetitions": repetitions,
        "workload": workload, "monitors": {"interval": interval_s},
    }  # fmt: skip
    slurm.bench("run", slurm.scenario(name, scenario))
    return sorted((slurm.workspace / "results" / name).glob("*/telemetry"))


def read(folder: Path) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((folder / "summary.json").read_bytes())


def switches(folder: Path, scope: str) -> Curve:
    table = pq.read_table(folder / f"{scope}.parquet", columns=["time_s", "context_switches"])
    return table["time_s"].to_pylist(), table["context_switches"].to_pylist()


def misplaced_ms(own: Curve, other: Curve) -> float:
    """By how much the other must be moved to fit best; at most FARTHEST_MS."""
    edge_s = FARTHEST_MS / 1000
    inside = [(at, count) for at, count in zip(*other, strict=True) if own[0][0] + edge_s < at < own[0][-1] - edge_s]
    if not inside:
        return FARTHEST_MS
    places = [step / 2 - FARTHEST_MS for step in range(int(4 * FARTHEST_MS) + 1)]
    return min(places, key=lambda ms: (sum(abs(between(own, at + ms / 1000) - count) for at, count in inside), abs(ms)))


def between(curve: Curve, when_s: float) -> float:
    times, values = curve
    at = min(max(1, bisect_left(times, when_s)), len(times) - 1)
    share = (when_s - times[at - 1]) / (times[at] - times[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with cluster() as slurm:
        lockstep.install(slurm.workspace / "packages")
        rounds = [read(folder) for folder in run(slurm, "cost", given.rounds, 1.0, {"seconds": 20})]
        (plain,) = run(slurm, "plain", 1, 0.1, EVEN)
        os.kill(int((slurm.folder / "run" / f"slurmd.{AHEAD}.pid").read_text()), signal.SIGTERM)
        slurm.bring_back(AHEAD, AHEAD_S)
        (ahead,) = run(slurm, "ahead", 1, 0.1, EVEN)
        nodes = [node for summary in [*rounds, read(plain), read(ahead)] for node in summary.nodes]
        placed = {
            f"{folder.parent.parent.name} {node.name}": misplaced_ms(
                switches(folder, "node"), switches(folder, f"{node.name}.node")
            )
            for folder in (plain, ahead)
            for node in read(folder).nodes
        }
    costs = [max(node.cores or 1.0 for node in summary.nodes) for summary in rounds]
    figures: dict[str, Any] = {
        "nodes_sampled": len(nodes),
        "problems": [f"{node.name}: {node.problem}" for node in nodes if node.problem],
        "cores_of_the_dearest_node": min(costs),
        "cores_of_the_dearest_node_worst_round": max(costs),
        "largest_stated_offset_ms": max(abs(node.clock_ahead_s or 1.0) for node in nodes) * 1000,
        "largest_uncertainty_ms": max(node.clock_uncertainty_s or 1.0 for node in nodes) * 1000,
        "misplaced_ms": placed,
    }
    passed = (
        not figures["problems"]
        and any(name.endswith(AHEAD) for name in placed)
        and min(costs) <= BAR_CORES
        and max(figures["largest_stated_offset_ms"], figures["largest_uncertainty_ms"]) <= BAR_S * 1000
        and max(map(abs, placed.values())) <= BAR_S * 1000
    )
    if given.json:
        print(json.dumps(figures | {"passed": passed}, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:40} {value:.4g}" if isinstance(value, float) else f"{key:40} {value}")
        print(f"{'passed' if passed else 'missed'}: at most {BAR_CORES:.1%} of a core a node, and {BAR_S * 1000:g} ms")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
