"""`bench evaluate --changed-since` of a made nexus of 200 packages and 800 benchmarks, of which changes are planted.

The packages are those of `packages_validate.py`, in a git repository. Planted: a scenario, a space, a model, a shared
benchmark that another package uses too, the code of an experiment package, and texts for people, which touch nothing.
The plan must have exactly the benchmarks that depend on them, in at most 3 CPU-seconds (git's included), and the run
after it must measure these and nothing else; asked once more, it must reuse all of them.

    python benchmarks/evaluate_changed.py [--rounds 5] [--packages 200] [--json]     exit code 1 when missed
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

from packages_validate import cpu_s, make, write

MOST_S = 3.0
INSTANCES = "benchmark_instances"


def git(root: Path, *words: str) -> None:
    own = ["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *own, *words], check=True, capture_output=True)


def plant(root: Path) -> set[str]:
    """Changes of all kinds; returns the benchmarks that depend on them."""
    space = "packages/pack-3/models/one/benchmark_instances/step-1/space.yaml"
    edits = {
        space: "# edited\n",
        "packages/pack-5/models/one/benchmark_instances/common/scenario.yaml": "description: edited\n",
        "packages/pack-7/models/one/model.yaml": "# edited\n",
        "packages/pack-11/benchmark_instances/common-11/benchmark.yaml": "description: edited\n",
        "packages/pack-13/benchmark_packages/eval/src/helper.py": "LIMIT = 1\n",
        "packages/pack-17/README.md": "More about it.\n",
        "packages/pack-19/models/one/usage.md": "How to use it.\n",
        "packages/pack-23/skills/plan.md": "How to plan.\n",
        "docs/overview.yaml": "title: Overview\n",
    }
    for name, line in edits.items():
        path = root / name
        write(path, (path.read_text() if path.is_file() else "") + line)
    of_model = {"step-1", "step-2", "common"}
    return (
        {"pack-3/one/step-1", "pack-5/one/common", "pack-11/one/common", "pack-2/one/borrowed"}
        | {f"pack-7/one/{name}" for name in of_model}
        | {f"pack-13/one/{name}" for name in of_model}
    )


def measure(rounds: int, packages: int) -> dict[str, Any]:
    taken = []
    with tempfile.TemporaryDirectory() as name:
        root, site = Path(name, "nexus"), Path(name, "site")
        make(root, site, packages)
        borrowed = "scenario: borrowed\nuses: pack-11/common-11\nworkload: {dataset: small}\n"
        write(root / f"packages/pack-2/models/one/{INSTANCES}/borrowed/scenario.yaml", borrowed)
        write(root / ".gitignore", ".bench/\nresults/\n")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            git(root, *words)
        planted = plant(root)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPATH": str(site), "BENCH_CACHE_DIR": str(Path(name, "cache"))}
        command = [sys.executable, "-m", "benchhouse", "evaluate", "--changed-since", "main", "--json"]
        for number in range(rounds + 1):
            seconds, out = cpu_s([*command, "--dry-run"], environ, root)
            touched = {item["benchmark"] for item in json.loads(out)["plan"]["benchmarks"]}
            if number:  # the first round warms bytecode and descriptions
                taken.append(seconds)
        ran = json.loads(cpu_s(command, environ, root)[1])["runs"]
        again = json.loads(cpu_s(command, environ, root)[1])
    complete = {item["benchmark"] for item in ran if item["state"] == "complete"}
    median = statistics.median(taken)
    right = touched == planted == complete and not again["runs"]
    return {
        "packages": packages, "rounds": rounds, "median_s": median, "min_s": min(taken), "at_most_s": MOST_S,
        "planted": sorted(planted), "missed": sorted(planted - touched), "beside": sorted(touched - planted),
        "not_run": sorted(planted - complete), "run_again": len(again["runs"]),
        "passed": right and median <= MOST_S,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Rounds that count.")
    parser.add_argument("--packages", type=int, default=200, help="Packages of the nexus, four benchmarks each.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(max(1, options.rounds), max(24, options.packages))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['packages']} packages: planned in {found['median_s']:.2f} s CPU (min {found['min_s']:.2f})")
        wrong = f"missed {found['missed']}, beside {found['beside']}, not run {found['not_run']}"
        print(f"planted {len(found['planted'])} benchmarks: {wrong}, run again {found['run_again']}")
        print(f"at most {MOST_S:g} s, and exactly what is planted: {'passed' if found['passed'] else 'MISSED'}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
