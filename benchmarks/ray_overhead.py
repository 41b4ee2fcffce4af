"""What our orchestration adds to trials on Ray: N no-op trials by `bench run --executor ray`, and N plain Ray tasks.

Each plain task starts our worker (`python -m benchhouse.worker FOLDER`) on a folder that was made before, which is what
one would write without us: the same evidence is sealed, but nobody plans, follows, retries, records or collects. Both
start a Ray cluster of their own on this machine, with the same cores, and end it; all of that is counted.

CPU seconds are those of a cgroup that holds the whole tree, as Ray's daemons reap their workers without a trace in any
rusage. Ours and the peer alternate; the figure is the median of the rounds' ratios, and is to be at most 1.3.

    python benchmarks/ray_overhead.py [--trials 500] [--parallel 2] [--rounds 3] [--json]      exits 1 when it is missed
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchhouse.evidence.request import make_folder
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.trial import TrialSpec

BAR = 1.3
CODE = "def noop(n: int = 0):\n    return {'x': n}\n"
PEER = """
import json, subprocess, sys
import ray

folders, parallel, home = json.load(sys.stdin)
for left in (2, 1, 0):  # on a busy machine Ray gives up the start of a cluster; ours tries as often
    try:
        ray.init(address="local", num_cpus=parallel, include_dashboard=False, log_to_driver=False, _temp_dir=home)
        break
    except Exception:
        ray.shutdown()
        if not left:
            raise

@ray.remote(num_cpus=1, max_retries=0)
def trial(folder):
    return subprocess.run([sys.executable, "-m", "benchhouse.worker", folder]).returncode

assert not any(ray.get([trial.remote(folder) for folder in folders]))
ray.shutdown()
"""


class Counted:
    """Runs commands in a cgroup of their own (v1 cpuacct or v2) and says what they used, daemons included."""

    def __init__(self) -> None:
        v1, v2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")
        self.home = v1 if v1.is_dir() else v2

    def run(self, command: list[str], environment: dict[str, str], given: str = "") -> tuple[float, float]:
        """CPU and wall seconds."""
        folder = self.home / f"ray-overhead-{os.getpid()}-{time.time_ns()}"
        folder.mkdir()
        enter = ["/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
        began = time.monotonic()
        done = subprocess.run([*enter, *command], env=environment, input=given, capture_output=True, text=True)
        wall_s = time.monotonic() - began
        if done.returncode:
            sys.exit(f"{command[:4]} ended with {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
        used = self._cpu_s(folder)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                for path in [*sorted(folder.glob("*/"), reverse=True), folder]:
                    path.rmdir()
                break
            except OSError:  # daemons that are still ending count as well
                used = self._cpu_s(folder)
                time.sleep(0.2)
        return used, wall_s

    def _cpu_s(self, folder: Path) -> float:
        if (folder / "cpuacct.usage").exists():
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6


def ours(root: Path, counted: Counted, environment: dict[str, str], trials: int, parallel: int) -> tuple[float, float]:
    scenario = {"scenario": "noop", "experiment": "noop", "executor": "ray", "repetitions": trials}
    (root / "noop.yaml").write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), "run", "--new", "--json"]
    return counted.run([*command, "--parallel", str(parallel), str(root / "noop.yaml")], environment)


def peer(root: Path, counted: Counted, environment: dict[str, str], parallel: int) -> tuple[float, float]:
    """The trials that ours has just sealed, once more."""
    folders = []
    for path in sorted((root / "results" / "noop").glob("*/trial.json")):
        spec = json.loads(path.read_bytes()) | {"final": str(root / "peer" / path.parent.name)}
        folder = TrialFolder(root / "peer" / ".partial" / path.parent.name)
        make_folder(folder, TrialSpec.model_validate_json(json.dumps(spec)))
        folders.append(str(folder.path))
    home = tempfile.mkdtemp(prefix="ray-peer-", dir="/tmp")
    try:
        found = counted.run([sys.executable, "-c", PEER], environment, json.dumps([folders, parallel, home]))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert len(list((root / "peer").glob("*/manifest.json"))) == len(folders)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    counted, rounds = Counted(), []
    if not os.access(counted.home, os.W_OK):
        sys.exit("CPU time of Ray's daemons is only to be had from a cgroup: run this as root")
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="ray-overhead-") as name:
            root = Path(name)
            info = root / "site" / "noop-1.0.dist-info"
            info.mkdir(parents=True)
            (root / "site" / "noop.py").write_text(CODE)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noop\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text("[benchhouse.experiments]\nnoop = noop:noop\n")
            environment = os.environ | {
                "PYTHONPATH": str(root / "site"),
                "BENCH_CACHE_DIR": str(root / "cache"),
                "RAY_AUTH_MODE": "disabled",  # of both; what a token costs is not the question
            }
            we = ours(root, counted, environment, given.trials, given.parallel)
            they = peer(root, counted, environment, given.parallel)
            rounds.append({"ours_cpu_s": we[0], "peer_cpu_s": they[0], "ours_wall_s": we[1], "peer_wall_s": they[1]})
    ratio = statistics.median(item["ours_cpu_s"] / item["peer_cpu_s"] for item in rounds)
    passed = ratio <= BAR
    if given.json:
        print(json.dumps({"trials": given.trials, "rounds": rounds, "ratio": ratio, "bar": BAR, "passed": passed}))
    else:
        for item in rounds:
            print(", ".join(f"{key} {value:.1f}" for key, value in item.items()))
        print(f"{'passed' if passed else 'missed'}: {ratio:.2f} times the CPU of plain Ray tasks, at most {BAR}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
