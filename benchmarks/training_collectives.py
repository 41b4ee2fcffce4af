"""Collectives: our rounds beside a hand-written torch loop in the same ranks, in turns; and a delay that is planted.

Two gloo ranks do all_reduce of 1 KiB and of 4 MiB: round by round once by the program of `training.collectives`, whose
lines give figures as a trial's do, and once by a plain loop. Then a rank comes 20 ms late to each operation.

    python benchmarks/training_collectives.py [--rounds 40] [--python PYTHON] [--json]

PYTHON has torch; that of `scripts/install-trainer.sh` by default. Exit code 1 when missed.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchhouse.experiments.training.collectives import PROGRAM, read_ranks
from benchhouse.experiments.training.launch import run_here
from benchhouse.experiments.training.operation_rounds import bus_factor

WITHIN, LATE_WITHIN = 0.05, 0.02
ITERATIONS, LATE_S, RANKS = 20, 0.02, 2
CASES = {"latency of 1 KiB": 1024, "bus bandwidth of 4 MiB": 4 << 20}
BOTH = f"""
import argparse, json, sys, time
sys.path.insert(0, {str(PROGRAM.parent)!r})
import torch, torch.distributed as dist
import collectives
size, rounds, late = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
operation = collectives.CollectiveOperation("all_reduce", size, torch.float32, torch.device("cpu"))
options = argparse.Namespace(late=late, warmup=0, iterations={ITERATIONS}, rounds=1)
tensor = torch.zeros(size // 4)
for _ in range(20):
    dist.all_reduce(tensor)
ours, theirs = [], []
def by_program():
    ours.extend(collectives.measure_rounds(operation, options))
def by_hand():
    dist.barrier()
    began = time.perf_counter()
    for _ in range({ITERATIONS}):
        dist.all_reduce(tensor)
    theirs.append((time.perf_counter() - began) / {ITERATIONS})
for turn in range(rounds):
    for take in (by_program, by_hand) if turn % 2 else (by_hand, by_program):
        take()
lines = [{{"collective": "about", "rank": dist.get_rank(), "world": dist.get_world_size(), "clock": "here"}}]
lines += [{{"collective": "round", "begin_s": begin_s, "end_s": end_s}} for begin_s, end_s in ours]
lines += [{{"collective": "result", "bytes": operation.bytes, "wrong": operation.check(), "waited_s": 0.0}}]
for line in lines:
    print(json.dumps(line))
print(json.dumps({{"collective": "theirs", "seconds": theirs}}), flush=True)
dist.destroy_process_group()
"""


def measure(python: str, size: int, rounds: int, late: str = "") -> tuple[list[float], list[float], int]:
    """Seconds of an operation, round by round: by our lines and by the plain loop; and how many elements were wrong."""
    with tempfile.TemporaryDirectory(prefix="figures-") as folder:
        argv = [python, "-c", BOTH, str(size), str(rounds), late]
        ranks = run_here(argv, RANKS, {**os.environ, "OMP_NUM_THREADS": "1"}, Path(folder), 600)
    if failed := [rank for rank in ranks if rank.exit_code]:
        raise SystemExit(f"rank {failed[0].number} failed: {failed[0].last_lines()}")
    said = {rank.number: [json.loads(line) for _, line in rank.lines if line.startswith("{")] for rank in ranks}
    theirs = [line["seconds"] for lines in said.values() for line in lines if line["collective"] == "theirs"]
    measured = read_ranks(said, ITERATIONS, RANKS)
    return list(measured.seconds), [max(times) for times in zip(*theirs, strict=True)], measured.wrong or 0


def judged(name: str, size: int, ours: list[float], theirs: list[float], wrong: int) -> dict[str, Any]:
    """By the median of the pairs' ratios: neighbours on the machine hit both sides of a pair alike, not all pairs."""
    ratio = median(our / their for our, their in zip(ours, theirs, strict=True))
    factor = size / 1e9 * bus_factor("all_reduce", RANKS)
    bandwidth = name.startswith("bus")
    shown = [factor / median(times) if bandwidth else median(times) * 1e6 for times in (ours, theirs)]
    ratio = 1 / ratio if bandwidth else ratio
    return {
        "case": name, "unit": "GB/s" if bandwidth else "us", "ours": shown[0], "by_hand": shown[1], "ratio": ratio,
        "within": WITHIN, "wrong": wrong, "passed": abs(ratio - 1) <= WITHIN and not wrong,
    }  # fmt: skip


def planted(python: str, rounds: int) -> dict[str, Any]:
    """What we say, against the planted delay and what the operation takes without it."""
    ours, theirs, wrong = measure(python, 1024, rounds, f"1:{LATE_S}:each")
    expected_s = LATE_S + median(theirs)
    ratio = fmean(ours) / expected_s
    return {
        "case": "20 ms late to each operation", "unit": "us", "ours": fmean(ours) * 1e6, "by_hand": expected_s * 1e6,
        "ratio": ratio, "within": LATE_WITHIN, "wrong": wrong, "passed": abs(ratio - 1) <= LATE_WITHIN and not wrong,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache" / "benchhouse-tests"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--python", default=str(cache / "trainer" / "bin" / "python"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = [judged(name, size, *measure(options.python, size, options.rounds)) for name, size in CASES.items()]
    figures.append(planted(options.python, max(2, options.rounds // 8)))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for each in figures:
            print(
                f"{each['case']:<28} {each['ours']:>10,.3f} against {each['by_hand']:>10,.3f} {each['unit']}: "
                f"{each['ratio']:.3f}  [within {each['within']:.0%}] {'passed' if each['passed'] else 'MISSED'}"
            )
    return 0 if all(each["passed"] for each in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
