"""What it costs to know an experiment that is installed only in an environment of its own.

A package with a pin that nothing here has is described through the `venv` runtime. The first time its environment is
made and looked at; the figure is each time after that, as `bench plan` and `bench list experiments` do it: from the
requirement to the experiments of its environment, ready to plan with. At most 20 ms, the median of all rounds.

    python benchmarks/isolated_describe.py [--rounds 20] [--json]     exit code 1 when missed
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchhouse.runs.isolated_environments import experiments_in
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings

MOST_MS = 20.0
MODULE = """\
import iniconfig
from benchhouse import Metric, experiment


@experiment("figure.isolated", version="1.0", metrics=[Metric(name="n", unit="1")])
def run(ctx, size: int = 10, how: str = "quick"):
    ctx.emit("n", size)
"""


def make_wheel(folder: Path) -> str:
    """The package, as pip installs it without a build."""
    info = "bench_figure-1.0.dist-info"
    about = "Metadata-Version: 2.1\nName: bench-figure\nVersion: 1.0\nRequires-Dist: iniconfig==1.1.1\n"
    files = {
        "bench_figure_isolated.py": MODULE,
        f"{info}/METADATA": about,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[benchhouse.experiments]\nfigure = bench_figure_isolated:run\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    wheel = folder / "bench_figure-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(wheel)


def describe(spec: RuntimeSettings, place: RuntimeContext) -> tuple[float, list[str]]:
    """Milliseconds, and the inputs of the one experiment there is."""
    begun = time.perf_counter()
    (experiment,) = experiments_in(spec, place)
    inputs = list(experiment.code().workload_model.model_fields)
    return (time.perf_counter() - begun) * 1000, inputs


def measure(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        spec = RuntimeSettings(kind="venv", requirements=[make_wheel(Path(name))])
        place = RuntimeContext(Path(name, "cache"))
        first_ms, inputs = describe(spec, place)
        later = [describe(spec, place) for _ in range(rounds)]
    same = inputs == ["size", "how"] and all(seen == inputs for _, seen in later)
    apart = find_spec("bench_figure_isolated") is None
    median_ms = statistics.median(taken for taken, _ in later)
    return {
        "rounds": rounds,
        "first_ms": first_ms,
        "later_median_ms": median_ms,
        "later_max_ms": max(taken for taken, _ in later),
        "at_most_ms": MOST_MS,
        "same_description": same,
        "not_in_the_parent": apart,
        "passed": same and apart and median_ms <= MOST_MS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="Later looks, at least 3.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    figures = measure(max(3, options.rounds))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"the first time, its install    {figures['first_ms']:.0f} ms")
        print(f"later, median of {figures['rounds']:<4}          {figures['later_median_ms']:.2f} ms")
        print(f"later, the longest             {figures['later_max_ms']:.2f} ms")
        if not (figures["same_description"] and figures["not_in_the_parent"]):
            print("the description is not what it should be: what was measured is not what was asked for")
        print(f"at most {MOST_MS:g} ms: {'passed' if figures['passed'] else 'MISSED'}")
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
