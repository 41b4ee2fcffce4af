"""Planted truths of a training, beside what `training.run` reports of it.

Two gloo ranks of the tests' small trainer: every step takes a planted time; then one rank is slow, or waits for its
data, by a planted time, and the other one waits for it. FLOPs are torch's own count, MFU is computed by hand from the
records, and two trainings of one seed have one digest.

    python benchmarks/training_truth.py [--steps 20] [--json]

Exit code 1 when a time is more than 2% off, MFU more than 1%, or FLOPs or digests differ at all.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHON = Path.home() / ".cache" / "benchhouse-tests" / "trainer" / "bin" / "python"
LAB, GPT = HERE.parent / "tests" / "services" / "lab_trainer.py", HERE.parent / "examples" / "training" / "gpt.py"
STEP_S, FAULT_S = 0.5, 1.0
TIMES_WITHIN, MFU_WITHIN = 0.02, 0.01
PEAK = 35e9


@dataclass
class Trial:
    values: dict[str, list[float]]  # by metric, or metric@window: the median, or the only value
    facts: dict[str, Any]
    records: list[list[dict[str, Any]]]  # of each rank


def trial(argv: list[str], workload: dict[str, Any]) -> Trial:
    """By `bench run`, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = {"scenario": "truth", "experiment": "training.run", "target": {"argv": argv}, "workload": workload}
        (folder / "truth.yaml").write_text(json.dumps(scenario))
        line = [sys.executable, "-m", "benchhouse", "-C", name, "run", str(folder / "truth.yaml")]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        (kept,) = (folder / "results" / "truth").glob("*/metrics.json")
        rows = json.loads(kept.read_text())["benchhouse"]["measurements"]
        if not rows:
            sys.exit(f"no figures: {done.stderr[-800:]}")
        values: dict[str, list[float]] = {}
        for row in rows:
            if row["stat"] in ("value", "p50", "mean"):
                values.setdefault(f"{row['metric']}@{row['window']}".rstrip("@"), []).append(row["value"])
        facts = json.loads((kept.parent / "meta.json").read_text())["custom"]
        files = sorted((kept.parent / "artifacts").glob("steps.rank-*.jsonl"))
        records = [
            [record for line in file.read_text().splitlines() if "step" in (record := json.loads(line))]
            for file in files
        ]
        return Trial(values, facts, records)


def lab(steps: int, *options: str) -> Trial:
    argv = [str(PYTHON), str(LAB), "--steps", str(steps), *options]
    return trial(argv, {"ranks": 2, "warmup": 2, "timeout": "10m"})


def planted_times(steps: int) -> list[dict[str, Any]]:
    """A rank that is late makes the other one wait as long."""
    plain = lab(steps, "--step-s", str(STEP_S))
    rows = [off("step time", plain.values["step_time"][0] / 1e3, STEP_S)]
    for kind in ("slow", "data"):
        late = lab(steps, "--fault", f"{kind}:1:0:{FAULT_S}")
        on_time_s, late_s = (late.values[f"own_step_time@rank:{rank}"][0] / 1e3 for rank in (0, 1))
        rows.append(off(f"own time of the late rank ({kind}) above the other's", late_s - on_time_s, FAULT_S))
        both_s = 2 * late.values["step_time"][0] / 1e3
        rows.append(off(f"wait for it ({kind}), by comm_share", late.values["comm_share"][0] * both_s, FAULT_S))
    rows.append(off("wait for data, by data_share", late.values["data_share"][0] * both_s, FAULT_S))
    return rows


def off(what: str, reported: float, truth: float, within: float = TIMES_WITHIN) -> dict[str, Any]:
    error = abs(reported / truth - 1)
    return {"what": what, "reported": reported, "truth": truth, "off": error, "held": error <= within}


def flops_and_digest(steps: int) -> list[dict[str, Any]]:
    layers, width, tokens, words, batch = 2, 128, 128, 512, 2
    sizes = {"layers": layers, "width": width, "tokens": tokens, "vocabulary": words, "batch": batch, "steps": steps}
    options = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    workload = {"warmup": 2, "peak": {"flops": PEAK}, "flops": {"formula": "counted"}}
    argv = [str(PYTHON), str(GPT), *options, "--count"]
    first, again = trial(argv, workload), trial(argv, workload)
    other = trial([*argv, "--seed", "1"], workload)
    exact = (6 * (layers * 12 * width**2 + words * width) + 12 * layers * width * tokens) * batch * tokens
    records = first.records[0]
    took_s = records[-1]["t_end"] - records[2]["t_start"]
    by_hand = (len(records) - 2) * exact / took_s / PEAK
    same = first.facts["loss_digest"] == again.facts["loss_digest"] != other.facts["loss_digest"]
    return [
        off("FLOPs of a step", records[0]["flops"], exact, 0.0),
        off("MFU", first.values["mfu"][0], by_hand, MFU_WITHIN),
        {"what": "one seed one digest, another seed another", "held": same},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = planted_times(given.steps) + flops_and_digest(given.steps)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            numbers = f"{row['reported']:.6g} of {row['truth']:.6g}, {row['off']:.2%} off" if "off" in row else ""
            print(f"{'held' if row['held'] else 'MISSED':7} {row['what']}: {numbers}")
    return 0 if all(row["held"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
