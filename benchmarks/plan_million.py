"""`bench plan` of a grid of 1000 x 1000 typed instances: memory beyond that of a plan of one point, and CPU time.

Every instance is validated, its defaults filled in, digested and counted; none is kept.
At most 50 MB of memory more than a plan of one point needs, and 60 CPU-seconds; the aim is 30. CPU time
varies with how busy the machine is, so look at the load before believing a change.

    python benchmarks/plan_million.py [--side 1000] [--json]     exit code 1 when missed
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MOST_GROWTH_MB = 50.0
MOST_CPU_S = 60.0
SCENARIO = """\
scenario: million
experiment: command
target: {{name: t, argv: ["true"]}}
workload:
  executions: {{range: {{from: 1, to: {side}, step: 1}}}}
  timeout: {{range: {{from: 1, to: {side}, step: 1}}}}
"""


def plan(folder: Path, side: int) -> tuple[dict[str, Any], float, float]:
    """The plan of side x side points, its peak memory in MB and its CPU seconds."""
    path = folder / f"{side}.yaml"
    path.write_text(SCENARIO.format(side=side))
    command = [sys.executable, "-m", "benchhouse", "-C", str(folder), "plan", str(path), "--json", "--points", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        described: dict[str, Any] = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return described, usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime


def measure(side: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan(folder, 1)  # warms the caches
        _, small_mb, small_s = plan(folder, 1)
        described, peak_mb, cpu_s = plan(folder, side)
    assert described["points"] == side * side
    return {
        "points": described["points"],
        "plan_digest": described["plan_digest"],
        "one_point_mb": small_mb,
        "peak_mb": peak_mb,
        "growth_mb": peak_mb - small_mb,
        "one_point_cpu_s": small_s,
        "cpu_s": cpu_s,
        "us_per_point": (cpu_s - small_s) / described["points"] * 1e6,
        "passed": peak_mb - small_mb <= MOST_GROWTH_MB and cpu_s <= MOST_CPU_S,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1000, help="Values of each of the two axes.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args()
    found = measure(options.side)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['points']:,} points, {found['us_per_point']:.1f} us each")
        growth = f"{found['growth_mb']:+.1f} MB over one point (at most {MOST_GROWTH_MB:g})"
        print(f"memory  {found['peak_mb']:.1f} MB, {growth}")
        print(f"CPU     {found['cpu_s']:.1f} s (at most {MOST_CPU_S:g})")
        print("passed" if found["passed"] else "MISSED")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
