"""What the `command` experiment adds to a program, beside hyperfine: same programs, same counts, alternating.

(a) Cost of one execution: CPU time of the tool's whole process tree, and its wall time, as the slope between few
    and many executions of `true`, so that start-up falls out. The program's own cost is in both tools' slopes.
    At most 1.2 times hyperfine's.
(b) What is reported: mean wall time of real programs, within 2% of hyperfine's (median over the rounds).

    python benchmarks/command_overhead.py [--rounds 11] [--json]     exit code 1 when missed, 2 without hyperfine
"""

import argparse
import contextlib
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

FEW, MANY = 10, 3000  # many: start-up varies by tens of milliseconds
ALTERNATIONS = 5  # of the real programs, within a round
MOST_OVERHEAD = 1.2
MOST_DISAGREEMENT = 0.02
INTERPRETER = os.path.realpath(sys.executable)  # not a version manager's shim
REAL = {"python3 -S -c pass": ([INTERPRETER, "-S", "-c", "pass"], 20), "sleep 0.05": (["sleep", "0.05"], 10)}
Tool = Callable[[list[str], int, Path], float]


def hyperfine(argv: list[str], executions: int, folder: Path) -> float:
    """Mean wall time, in ms. No shell, no progress bar: hyperfine at its leanest."""
    out = folder / "hyperfine.json"
    options = ["-N", "--style", "none", "--runs", str(executions), "--export-json", str(out)]
    subprocess.run(
        ["hyperfine", *options, shlex.join(argv)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return float(json.loads(out.read_text())["results"][0]["mean"]) * 1e3


def benchhouse(argv: list[str], executions: int, folder: Path) -> float:
    """Mean wall time, in ms, of one trial by `bench run`: planned, run, sealed and collected as every trial is."""
    scenario = {
        "scenario": "overhead",
        "experiment": "command",
        "target": {"argv": argv},
        "workload": {"executions": executions, "warmup": 0},
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    call = [sys.executable, "-m", "benchhouse", "-C", str(folder), "run", "--new", "--json", str(path)]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    points = json.loads(done.stdout)["points"]
    return float(next(row["mean"] for row in points if (row["metric"], row["stat"]) == ("wall_ms", "mean")))


TOOLS: dict[str, Tool] = {"hyperfine": hyperfine, "benchhouse": benchhouse}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=11, help="alternating rounds, at least 5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not shutil.which("hyperfine"):
        print("hyperfine is not installed: apt install hyperfine", file=sys.stderr)
        return 2
    with contextlib.suppress(PermissionError):
        # Both tools inherit it: neighbours on the machine disturb less. (Niceness would not reach beyond the session.)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    figures = measure(max(5, options.rounds))
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0 if figures["met"] else 1


def measure(rounds: int) -> dict[str, Any]:
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    means: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(rounds):
            order = list(TOOLS) if number % 2 else list(reversed(TOOLS))
            for tool in order:
                cpu_us, wall_us = slope(TOOLS[tool], folder)
                costs[tool, "cpu"].append(cpu_us)
                costs[tool, "wall"].append(wall_us)
            for label, (argv, executions) in REAL.items():
                parts: dict[str, list[float]] = defaultdict(list)
                for _ in range(ALTERNATIONS):
                    for tool in order:
                        parts[tool].append(TOOLS[tool](argv, executions, folder))
                for tool in order:
                    means[tool, label].append(statistics.fmean(parts[tool]))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    overhead = {kind: compare(costs, kind, "us") for kind in ("cpu", "wall")}
    agreement = {label: compare(means, label, "ms") for label in REAL}
    met = all(item["ratio"] <= MOST_OVERHEAD for item in overhead.values()) and all(
        abs(item["ratio"] - 1) <= MOST_DISAGREEMENT for item in agreement.values()
    )
    limits = {"overhead_ratio": MOST_OVERHEAD, "disagreement": MOST_DISAGREEMENT}
    return {
        "rounds": rounds,
        "executions": {"slope": [FEW, MANY], **{label: count * ALTERNATIONS for label, (_, count) in REAL.items()}},
        "overhead_per_execution": overhead,
        "mean_wall": agreement,
        "limits": limits,
        "met": met,
    }


def slope(tool: Tool, folder: Path) -> tuple[float, float]:
    """Microseconds of CPU and of wall time that one more execution of `true` costs."""
    cpu: dict[int, float] = {}
    wall: dict[int, float] = {}
    for executions in (FEW, MANY):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        tool(["true"], executions, folder)
        wall[executions] = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu[executions] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (cpu[MANY] - cpu[FEW]) / (MANY - FEW) * 1e6, (wall[MANY] - wall[FEW]) / (MANY - FEW) * 1e6


def compare(values: dict[tuple[str, str], list[float]], kind: str, unit: str) -> dict[str, Any]:
    ours, theirs = values["benchhouse", kind], values["hyperfine", kind]
    ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    return {
        "unit": unit,
        "benchhouse": statistics.median(ours),
        "hyperfine": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
    }


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'':34}{'benchhouse':>12}{'hyperfine':>12}{'ratio':>8}   range over {figures['rounds']} rounds"]
    rows = {f"one execution of true, {kind}": item for kind, item in figures["overhead_per_execution"].items()}
    rows |= {f"mean of {label}": item for label, item in figures["mean_wall"].items()}
    for label, item in rows.items():
        ours, theirs, (low, high) = item["benchhouse"], item["hyperfine"], item["ratio_range"]
        cells = f"{ours:9.1f} {item['unit']}{theirs:9.1f} {item['unit']}{item['ratio']:8.3f}"
        lines.append(f"{label:34}{cells}   {low:.3f} to {high:.3f}")
    return "\n".join(
        [*lines, f"limits: ratio 1.2 for the first two, 2% for the others: {'met' if figures['met'] else 'MISSED'}"]
    )


if __name__ == "__main__":
    sys.exit(main())
