"""What `bench list experiments` costs with ado installed, once the descriptions are cached: CPU seconds.

Beside our own there is a package of ado's kind, found as any user's is, by its line under `ado.custom_experiments`. The
first call describes everything, which takes an import of ado; it is not counted, only told. At most
0.5 CPU-seconds for each call after it, of the process and of all that it waited for. The peer, in the same rounds, is
ado's own list, `ado get experiments`. Bytecode is warm, the calls alternate, the median counts.

    python benchmarks/list_experiments.py [--rounds 5] [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MOST_S = 0.5
OURS, PEER = "bench list experiments, cached", "ado get experiments"
MODULE = '''\
"""An experiment of ado's kind."""

from ado.modules.actuators.custom_experiments import custom_experiment
from ado.schema.domain import PropertyDomain
from ado.schema.property import ConstitutiveProperty


@custom_experiment(
    required_properties=[ConstitutiveProperty(identifier="size", propertyDomain=PropertyDomain(values=[1, 2]))],
    output_property_identifiers=["n"],
)
def made_for_the_figure(size: int) -> dict[str, float]:
    return {"n": float(size)}
'''


def install(folder: Path) -> None:
    """The package, as pip would leave it."""
    (folder / "ado_figure.py").write_text(MODULE)
    info = folder / "ado_figure-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ado-figure\nVersion: 1.0\n\nOne experiment.\n")
    (info / "entry_points.txt").write_text("[ado.custom_experiments]\nfigure = ado_figure\n")


def cpu_s(command: list[str], environ: dict[str, str], folder: Path) -> tuple[float, str]:
    """CPU seconds of the command and of all that it waited for, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, env=environ, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def measure(rounds: int) -> dict[str, Any]:
    listing = [sys.executable, "-m", "benchhouse", "list", "experiments"]
    peer = [str(Path(sys.executable).with_name("ado")), "get", "experiments"]
    taken: dict[str, list[float]] = {OURS: [], PEER: []}
    with tempfile.TemporaryDirectory() as name:
        site, empty = Path(name, "site"), Path(name, "empty")
        site.mkdir()
        empty.mkdir()
        install(site)
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environ |= {"PYTHONPATH": str(site), "BENCH_CACHE_DIR": str(Path(name, "cache")), "COLUMNS": "200"}
        environ |= {"HOME": str(empty), "XDG_CONFIG_HOME": str(empty), "RAY_DISABLE_IMPORT_WARNING": "1"}
        cold, shown = cpu_s(listing, environ, empty)
        cpu_s(peer, environ, empty)  # warms its bytecode, makes its folder
        for _ in range(rounds):
            seconds, shown = cpu_s(listing, environ, empty)
            taken[OURS].append(seconds)
            taken[PEER].append(cpu_s(peer, environ, empty)[0])
    found = {what: {"median_s": statistics.median(times), "min_s": min(times)} for what, times in taken.items()}
    listed = "made_for_the_figure" in shown
    passed = listed and found[OURS]["median_s"] <= MOST_S
    return {"rounds": rounds, "figures": found, "cold_s": cold, "at_most_s": MOST_S, "listed": listed, "passed": passed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Rounds that count, at least 3.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(max(3, options.rounds))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0 if found["passed"] else 1
    for what, figure in found["figures"].items():
        print(f"{what:<32} median {figure['median_s']:.3f} s CPU, min {figure['min_s']:.3f} s")
    print(f"{'the first call, which describes':<32} {found['cold_s']:.3f} s CPU")
    if not found["listed"]:
        print("the experiment of ado's kind is not listed: what was measured is not what was asked for")
    print(f"at most {MOST_S} s: {'passed' if found['passed'] else 'MISSED'}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
