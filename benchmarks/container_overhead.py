"""What a container costs: no-op trials inside an Apptainer image, beside the same outside.

Each round runs one `bench run` of 1 trial and one of N trials, in turn inside and outside. The difference of the short
ones is what entering costs a worker (once for each worker, not for each trial); the slope over N is what a trial costs.
CPU time is user + system of all ended descendants. `container_enter_s` of meta.json is the wall time of the same.

    python benchmarks/container_overhead.py IMAGE.sif [--trials 100] [--rounds 5] [--json]

Without IMAGE the image of the tests is made (scripts/make-test-images.sh). Exits 1 when a trial inside costs more than
1.25 times one outside, 2 where there is no Apptainer.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BAR = 1.25
_SCRIPTS = Path(__file__).parents[1] / "scripts"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse-tests"


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bench(root: Path, *words: str) -> str:
    environment = os.environ | {"BENCH_CACHE_DIR": str(root / "cache")}
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def run(root: Path, image: Path | None, trials: int) -> tuple[float, float]:
    """CPU seconds of a run of so many no-op trials, and what entering cost as its evidence says."""
    name = f"{'inside' if image else 'outside'}{trials}"
    scenario: dict[str, Any] = {"scenario": name, "experiment": "command", "target": {"argv": ["true"]}}
    scenario |= {"workload": {"executions": 1, "warmup": 0}, "repetitions": trials, "monitors": False}
    if image:
        scenario["runtime"] = {"kind": "apptainer", "image": str(image)}
    path = root / f"{name}.yaml"
    path.write_text(json.dumps(scenario))
    before = cpu_s()
    done = json.loads(bench(root, "run", "--new", "--json", str(path)))
    used = cpu_s() - before
    assert done["outcomes"] == {"succeeded": trials}, done
    metas = sorted((root / "results" / name).glob("*/meta.json"), key=lambda item: item.stat().st_mtime)
    return used, json.loads(metas[-1].read_text())["container_enter_s"] or 0.0


def measure(image: Path, trials: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy = root / "image.sif"
        shutil.copyfile(image, copy)
        bench(root, "images", "add", str(copy))
        places = {"outside": None, "inside": copy}
        for place in places.values():
            run(root, place, 1)  # what is made once is made now
        one: dict[str, list[float]] = {name: [] for name in places}
        each: dict[str, list[float]] = {name: [] for name in places}
        entered: list[float] = []
        for _ in range(rounds):
            for name, place in places.items():
                short, _ = run(root, place, 1)
                long, enter_s = run(root, place, trials)
                one[name].append(short)
                each[name].append((long - short) / (trials - 1))
                entered += [enter_s] if place else []
    enter = min(one["inside"]) - min(one["outside"])
    figures = {name: statistics.median(values) for name, values in each.items()}
    return {
        "enter_cpu_s": enter,
        "enter_wall_s_in_evidence": statistics.median(entered),
        "trial_cpu_s_outside": figures["outside"],
        "trial_cpu_s_inside": figures["inside"],
        "ratio": figures["inside"] / figures["outside"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", type=Path)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ["PATH"] += f"{os.pathsep}{_CACHE / 'apptainer' / 'prefix' / 'bin'}"
    if not shutil.which("apptainer"):
        print("there is no apptainer: scripts/get-apptainer.sh", file=sys.stderr)
        return 2
    if asked.image is None:
        made = subprocess.run([_SCRIPTS / "make-test-images.sh"], stdout=subprocess.PIPE, text=True, check=False)
        if made.returncode:
            return 2
        asked.image = Path(made.stdout.strip()) / "python.sif"
    found = measure(asked.image, asked.trials, asked.rounds)
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        enter_s = found["enter_wall_s_in_evidence"]
        print(f"entering: {found['enter_cpu_s']:.3f} CPU-s a worker; {enter_s:.2f} s of wall time by its evidence")
        outside, inside = found["trial_cpu_s_outside"] * 1000, found["trial_cpu_s_inside"] * 1000
        print(f"a trial: {outside:.1f} CPU-ms outside, {inside:.1f} inside, {found['ratio']:.2f}x (bar {BAR})")
    return 1 if found["ratio"] > BAR else 0


if __name__ == "__main__":
    sys.exit(main())
