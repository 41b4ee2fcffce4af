"""`training.dataloader` beside a loop written by hand over the same files, and against planted times.

python benchmarks/training_dataloader.py --python PYTHON [--rounds 3] [--samples 2048] [--workers 2] [--json]

PYTHON has torch. In turns: `bench run` of files that are in the page cache, and a bare loop over torch's DataLoader
that reads as many files of the same size and counts from the first batch of each worker on. Then a sleep a sample is
planted: the truth is workers / sleep samples a second, and with a planted computation the accelerator utilisation
follows by hand. Exits 1 when the ratio of the medians is not within 3% of 1, or a truth is missed by more than 2%.
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

from benchhouse.experiments.training.samples import IN_FOLDER, make_files

RATIO_BAR, TRUTH_BAR = 0.03, 0.02
SIZE, BATCH = 114_660, 32
SLEEP_S, SLEEP_BATCH, SLEEP_BATCHES = 0.05, 4, 40
BY_HAND = f"""
import random, sys, time, torch
from torch.utils.data import DataLoader
class Files:
    def __getitem__(self, index):
        with open(f"{{sys.argv[1]}}/{{index // {IN_FOLDER}:06d}}/{{index:08d}}.bin", "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
samples, workers = int(sys.argv[2]), int(sys.argv[3])
order = list(range(samples))
for epoch in range(2):  # the first brings the files into the page cache
    random.Random(epoch).shuffle(order)
    ends = []
    for batch in DataLoader(Files(), sampler=order, batch_size={BATCH}, num_workers=workers):
        ends.append(time.monotonic())
rounds = len(ends) // workers * workers
print((rounds - workers) * {BATCH} / (ends[rounds - 1] - ends[workers - 1]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {"ours": [], "by_hand": []}
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder) / "samples", asked.samples, SIZE, 0)
        for number in range(asked.rounds):
            turns = ["ours", "by_hand"]
            for name in reversed(turns) if number % 2 else turns:
                rates[name].append(ours(asked) if name == "ours" else by_hand(asked, f"{folder}/samples"))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    truths = [planted(asked.python, workers, compute_s) for workers, compute_s in ((1, 0.0), (2, 0.05), (2, 0.15))]
    ratio = medians["ours"] / medians["by_hand"]
    worst = max(abs(row[name] / row[f"true_{name}"] - 1) for row in truths for name in ("rate", "share") if row[name])
    ok = abs(ratio - 1) <= RATIO_BAR and worst <= TRUTH_BAR
    answer = {
        "samples_per_s": medians, "all": rates, "ratio": ratio, "ratio_bar": RATIO_BAR,
        "planted": truths, "worst_error": worst, "truth_bar": TRUTH_BAR, "ok": ok,
    }  # fmt: skip
    if asked.json:
        print(json.dumps(answer, indent=2))
    else:
        beside = f"by hand {medians['by_hand']:.0f}: {ratio:.3f} (bar within {RATIO_BAR:.0%})"
        print(f"samples/s from the page cache: ours {medians['ours']:.0f}, {beside}")
        for row in truths:
            share = f", utilisation {row['share']:.4f} of {row['true_share']:.4f}" if row["share"] else ""
            print(f"{row['workers']} workers: {row['rate']:.2f} samples/s of {row['true_rate']:.2f}{share}")
        print(f"worst error {worst:.2%} (bar {TRUTH_BAR:.0%})")
        print("all bars met" if ok else "MISSED")
    return 0 if ok else 1


def ours(asked: argparse.Namespace) -> float:
    """The files are in the cache of Benchhouse, and of the kernel: they were just made, or read the time before."""
    shape = {"samples": asked.samples, "sample_size": SIZE, "batch": BATCH, "workers": asked.workers, "cache": "keep"}
    return trial(asked.python, shape)["samples_per_s"]


def by_hand(asked: argparse.Namespace, folder: str) -> float:
    line = [asked.python, "-c", BY_HAND, folder, str(asked.samples), str(asked.workers)]
    return float(subprocess.run(line, check=True, capture_output=True, text=True, env=one_thread()).stdout)


def planted(python: str, workers: int, compute_s: float) -> dict[str, Any]:
    """Beside what was measured, what must come out: all workers begin together and deliver in turns."""
    done, ends, batch_s = 0.0, [], SLEEP_S * SLEEP_BATCH
    for number in range(SLEEP_BATCHES):
        done = max(done, (number // workers + 1) * batch_s) + compute_s
        ends.append(done)
    shape = {
        "kind": "memory", "samples": SLEEP_BATCH * SLEEP_BATCHES, "sample_size": 64, "batch": SLEEP_BATCH,
        "workers": workers, "sample_time": SLEEP_S, "compute": compute_s,
    }  # fmt: skip
    measured = trial(python, shape)
    return {
        "workers": workers, "compute_s": compute_s, "rate": measured["samples_per_s"],
        "true_rate": min(workers / SLEEP_S, SLEEP_BATCH / compute_s if compute_s else float("inf")),
        "share": measured.get("accelerator_utilization"),
        "true_share": (SLEEP_BATCHES - 1) * compute_s / (ends[-1] - ends[0]),
    }  # fmt: skip


def trial(python: str, workload: dict[str, Any]) -> dict[str, float]:
    """Metrics of one trial by `bench run`."""
    target = {"python": python}
    scenario = {"scenario": "figure", "experiment": "training.dataloader", "target": target, "workload": workload}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "figure.yaml").write_text(json.dumps(scenario))
        line = [sys.executable, "-m", "benchhouse", "run", "figure.yaml", "--json"]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=one_thread())
    if done.returncode:
        sys.exit(done.stderr)
    return {row["metric"]: row["mean"] for row in json.loads(done.stdout)["points"] if row["mean"] is not None}


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
