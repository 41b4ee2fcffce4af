"""`bench packages validate --static` of a made nexus of 50 packages and 200 benchmarks: CPU seconds.

A package has a model and four benchmarks: two spaces of ado for the model, one benchmark of ours and a scenario for the
model that uses it. The experiments, one a package, are fakes that are installed (a module and a dist-info on
PYTHONPATH), so every parameter is checked against its experiment's inputs. At most 3 CPU-seconds; descriptions are
cached and bytecode is warm, the median counts. Beside it, as a floor, what it costs to read the same files with
PyYAML's safe loader in C and to import pydantic.

    python benchmarks/packages_validate.py [--rounds 5] [--packages 50] [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

MOST_S = 3.0
BENCHMARKS_EACH = 4
OURS = "bench packages validate --static"
FLOOR = "the same files read with PyYAML"
MODULE = """\
from benchhouse import Metric, experiment


@experiment("eval.{number}", version="1.0", metrics=[Metric(name="score", unit="1", direction="higher")])
def run(model: str, dataset: str = "small", batch: int = 1) -> dict[str, float]:
    "Experiment number {number}, which only has to be there."
    return {{"score": float(batch)}}
"""
SPACE = """\
entitySpace:
  - identifier: dataset
    propertyDomain: {{values: [small, medium, large]}}
  - identifier: batch
    propertyDomain: {{domainRange: [1, 9], interval: {step}, variableType: DISCRETE_VARIABLE_TYPE}}
experiments:
  - {{actuatorIdentifier: benchhouse, experimentIdentifier: eval.{number}, experimentVersion: "1.0"}}
"""
READ = """\
import sys, pydantic, yaml
from pathlib import Path
for path in Path(sys.argv[1]).rglob("*.yaml"):
    yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make(root: Path, site: Path, packages: int) -> None:
    """The nexus, and the experiments as pip would leave them."""
    for number in range(packages):
        home = root / "packages" / f"pack-{number}"
        python = f"./packages/pack-{number}/benchmark_packages/eval"
        listed = f"    - {{requirement_specifier: {python}, experiments: [eval.{number}]}}\n"
        write(home / "nexus.yaml", f"package:\n  name: pack-{number}\n  benchmark_packages:\n{listed}")
        project = f'[project]\nname = "eval-{number}"\nversion = "1.0"\ndependencies = ["benchhouse"]\n'
        write(home / "benchmark_packages" / "eval" / "pyproject.toml", project)
        model = home / "models" / "one"
        write(model / "model.yaml", f"model: {{id: org/model-{number}, owner: somebody}}\n")
        for step in (1, 2):
            write(model / "benchmark_instances" / f"step-{step}" / "space.yaml", SPACE.format(step=step, number=number))
        benchmark = f"benchmark: common-{number}\nexperiment: eval.{number}\nworkload: {{batch: [1, 2, 4]}}\n"
        write(home / "benchmark_instances" / f"common-{number}" / "benchmark.yaml", benchmark)
        scenario = f"scenario: one-{number}\nuses: pack-{number}/common-{number}\nworkload: {{dataset: large}}\n"
        write(model / "benchmark_instances" / "common" / "scenario.yaml", scenario)
        write(site / f"eval_{number}.py", MODULE.format(number=number))
        info = site / f"eval_{number}-1.0.dist-info"
        write(info / "METADATA", f"Metadata-Version: 2.1\nName: eval-{number}\nVersion: 1.0\n\nA fake.\n")
        write(info / "entry_points.txt", f"[benchhouse.experiments]\neval.{number} = eval_{number}:run\n")


def cpu_s(command: list[str], environ: dict[str, str], folder: Path) -> tuple[float, str]:
    """CPU seconds of the command and of all that it waited for, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, env=environ, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def measure(rounds: int, packages: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        root, site = Path(name, "nexus"), Path(name, "site")
        make(root, site, packages)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPATH": str(site), "BENCH_CACHE_DIR": str(Path(name, "cache"))}
        ours = [sys.executable, "-m", "benchhouse", "packages", "validate", "--static", "--json"]
        for number in range(rounds + 1):
            seconds, out = cpu_s(ours, environ, root)
            floor, _ = cpu_s([sys.executable, "-c", READ, str(root)], environ, root)
            proof = json.loads(out)
            wrong = [item for item in proof["findings"] if item["state"] != "good"]
            if wrong or (proof["packages"], proof["benchmarks"]) != (packages, packages * BENCHMARKS_EACH):
                raise SystemExit(f"the made nexus does not hold: {wrong[:2]}")
            if number:  # the first round warms bytecode and descriptions
                taken[OURS].append(seconds)
                taken[FLOOR].append(floor)
    found = {what: {"median_s": statistics.median(times), "min_s": min(times)} for what, times in taken.items()}
    passed = found[OURS]["median_s"] <= MOST_S
    figures = {"packages": packages, "benchmarks": packages * BENCHMARKS_EACH, "at_most_s": MOST_S}
    return {"rounds": rounds, **figures, "figures": found, "passed": passed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Rounds that count.")
    parser.add_argument("--packages", type=int, default=50, help="Packages of the nexus, four benchmarks each.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(max(1, options.rounds), options.packages)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['packages']} packages, {found['benchmarks']} benchmarks")
        for what, figure in found["figures"].items():
            print(f"{what:<34} median {figure['median_s']:.2f} s CPU, min {figure['min_s']:.2f} s")
        print(f"at most {MOST_S:g} s: {'passed' if found['passed'] else 'MISSED'}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
