"""What it costs to start: CPU seconds of `bench --help`, and of `bench list experiments` with 200 installed packages.

The packages are fakes (a module and a dist-info each) in a folder on PYTHONPATH, so nothing is downloaded. Warm: the
descriptions are cached, as for every call but the first after an install. Cold: all 200 modules are imported, apart.
At most 0.25 s for the help and 0.5 s for the warm list; bytecode is warm, the calls alternate, the median counts.

    python benchmarks/startup.py [--rounds 9] [--packages 200] [--json]     exit code 1 when missed
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
from collections import defaultdict
from pathlib import Path
from typing import Any

MOST_S = {"bench --help": 0.25, "bench list experiments, warm": 0.5}
COLD = "bench list experiments, cold"
MODULE = '''\
"""A fake experiment."""

from benchhouse import Metric, experiment


@experiment("fake.{number}", version="1.0", metrics=[Metric(name="n", unit="1", direction="higher")])
def run(size: int = 10) -> dict[str, float]:
    """Experiment number {number}, which only has to be there."""
    return {{"n": float(size)}}
'''


def install(folder: Path, count: int) -> None:
    """`count` packages of one experiment each, as pip would leave them."""
    for number in range(count):
        (folder / f"fake_{number}.py").write_text(MODULE.format(number=number))
        info = folder / f"fake_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{number}\nVersion: 1.0\n\nA fake.\n")
        (info / "entry_points.txt").write_text(f"[benchhouse.experiments]\nfake.{number} = fake_{number}:run\n")


def cpu_s(command: list[str], environ: dict[str, str], folder: Path) -> float:
    """CPU seconds of the command and of all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environ, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(rounds: int, packages: int) -> dict[str, Any]:
    bench = [sys.executable, "-m", "benchhouse"]
    taken: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        site, cache, empty = Path(name, "site"), Path(name, "cache"), Path(name, "empty")
        site.mkdir()
        empty.mkdir()
        install(site, packages)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPATH": str(site), "BENCH_CACHE_DIR": str(cache)}
        listing = [*bench, "list", "experiments"]
        for number in range(rounds + 1):
            shutil.rmtree(cache, ignore_errors=True)
            figures = {
                "bench --help": cpu_s([*bench, "--help"], environ, empty),
                COLD: cpu_s(listing, environ, empty),
                "bench list experiments, warm": cpu_s(listing, environ, empty),
            }
            for what, seconds in figures.items() if number else ():  # the first round warms the bytecode
                taken[what].append(seconds)
    passed = all(statistics.median(taken[what]) <= most for what, most in MOST_S.items())
    found = {
        what: {"median_s": statistics.median(times), "min_s": min(times), "at_most_s": MOST_S.get(what)}
        for what, times in taken.items()
    }
    return {"rounds": rounds, "packages": packages, "figures": found, "passed": passed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="Rounds that count, at least 7.")
    parser.add_argument("--packages", type=int, default=200, help="Fake packages.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(max(7, options.rounds), options.packages)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for what, figure in found["figures"].items():
            most = f"at most {figure['at_most_s']:g} s" if figure["at_most_s"] else "no bar"
            print(f"{what:<32} median {figure['median_s']:.3f} s CPU, min {figure['min_s']:.3f} s  ({most})")
        print("passed" if found["passed"] else "MISSED")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
