"""What `training.run` costs a training: the same torchrun command bare and by `bench run`, same seed, alternating.

(a) Tokens/s of all ranks, by the trainer's own clock around its loop, records included: at least 0.99 of bare.
(b) A record: at most 20 microseconds a step and rank (median of the calls, worst rank).
The loss of the last step must be the same.

    python benchmarks/training_overhead.py [--rounds 7] [--steps 300] [--json]     exit code 1 when missed

Needs `scripts/install-trainer.sh`, or TRAINER: a folder with `python` and `torchrun` that have torch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import slowness

HERE = Path(__file__).resolve().parent
LEAST_SHARE, MOST_RECORD_US = 0.99, 20.0
RANKS = 2


def trainer_bin() -> Path:
    home = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache" / "benchhouse-tests"))
    return Path(os.environ.get("TRAINER", home / "trainer" / "bin"))


def argv(folder: Path, steps: int) -> list[str]:
    return [str(trainer_bin() / "python"), str(HERE / "training_loop.py"), str(folder), str(steps)]


def bare(folder: Path, steps: int) -> None:
    command = [str(trainer_bin() / "torchrun"), "--standalone", f"--nproc-per-node={RANKS}", "--no-python"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *argv(folder, steps)], env=environment, check=True, capture_output=True)


def ours(folder: Path, steps: int) -> None:
    scenario = {
        "scenario": "overhead",
        "experiment": "training.run",
        "target": {"argv": argv(folder, steps)},
        "workload": {"ranks": RANKS, "launcher": "torchrun"},
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "benchhouse", "-C", str(folder), "run", "--new", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench run ended with {done.returncode}: {done.stderr[-2000:]}")


def once(start: Any, steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        start(Path(name), steps)
        ranks = [json.loads((Path(name) / f"rank-{rank}.json").read_bytes()) for rank in range(RANKS)]
    return {
        "tokens_per_s": sum(rank["tokens_per_s"] for rank in ranks),
        "record_us": max(rank["record_us"] for rank in ranks),
        "loss": ranks[0]["loss"],
    }


def measure(rounds: int, steps: int) -> dict[str, Any]:
    pairs = []
    for number in range(rounds):
        order = (bare, ours) if number % 2 else (ours, bare)
        pairs.append({start.__name__: once(start, steps) for start in order})
    shares = [pair["ours"]["tokens_per_s"] / pair["bare"]["tokens_per_s"] for pair in pairs]
    share = statistics.median(shares)
    record_us = statistics.median(pair["ours"]["record_us"] for pair in pairs)
    same = len({pair[name]["loss"] for pair in pairs for name in pair}) == 1
    return {
        "tokens_per_s": {name: statistics.median(pair[name]["tokens_per_s"] for pair in pairs) for name in pairs[0]},
        "share_of_bare": share, "shares": shares, "record_us": record_us, "same_loss": same,
        "met": share >= LEAST_SHARE and record_us <= MOST_RECORD_US and same,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="alternating rounds")
    parser.add_argument("--steps", type=int, default=300, help="measured steps of a training")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    quiet = slowness()
    figures = measure(options.rounds, options.steps) | {"machine": str(quiet)}
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        rates = figures["tokens_per_s"]
        print(f"bare torchrun  {rates['bare']:10,.0f} tokens/s")
        print(f"training.run   {rates['ours']:10,.0f} tokens/s: {figures['share_of_bare']:.4f} of it (0.99 at least)")
        print(f"a record       {figures['record_us']:10.1f} us a step and rank (20 at most)")
        print(f"same loss      {figures['same_loss']}\n{quiet}")
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
