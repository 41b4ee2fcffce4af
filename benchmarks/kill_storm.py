"""Kill -9 a sweep at random moments, half the time its orchestrator, half the time a worker or an experiment.

After each killed orchestrator the sweep is resumed at once, while what it left is still dying. Whenever a folder has
been seen sealed, its manifest's digest is noted. At the end the last run is resumed to its end, and then

- every folder under results/ is verified, byte by byte (corrupt_folders),
- every folder that was ever seen sealed is still there with the same manifest (lost_trials),
- every planned trial of every run has succeeded (missing_trials), and nothing is left running (left_running).

    python benchmarks/kill_storm.py --kills 200 --seed 7 [--json]

Exits 1 unless all four are 0. The same seed gives the same victims and waits; the machine decides what they hit.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.evidence.folder import read_manifest, sealed_outcome
from benchhouse.evidence.verify import manifest_digest, verify
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder

SCENARIO = {
    "scenario": "storm",
    "experiment": "nap",
    "workload": {"n": {"range": {"from": 1, "to": 200, "step": 1}}},
    "parallel": 2,
    "retries": {"max_retries": 100, "backoff": 0.01, "factor": 1},
}
CODE = """
import os, subprocess, time

def nap(n: int):
    child = subprocess.Popen(["sleep", "0.05"])
    time.sleep(0.05)
    child.wait()
    return {"n_seen": n}
"""


@dataclass
class Storm:
    root: Path
    dice: random.Random
    kills: int
    seen: dict[tuple[str, int], str] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=lambda: {"orchestrator": 0, "worker": 0, "experiment": 0})
    process: "subprocess.Popen[bytes] | None" = None
    exits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        site = self.root / "site"
        info = site / "nap-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "nap.py").write_text(CODE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nap\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[benchhouse.experiments]\nnap = nap:nap\n")
        for name in ("ws", "tmp"):
            (self.root / name).mkdir()
        (self.root / "ws" / "storm.yaml").write_text(json.dumps(SCENARIO))
        self.mark = f"BENCH_STORM={self.root}"

    @property
    def workspace(self) -> WorkspaceFolder:
        return WorkspaceFolder(self.root / "ws")

    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return os.environ | {
            "PYTHONPATH": str(self.root / "site"),
            "BENCH_CACHE_DIR": str(self.root / "cache"),
            "TMPDIR": str(self.root / "tmp"),
            name: value,
        }

    @property
    def arguments(self) -> list[str]:
        return ["run", "storm.yaml"]

    def start(self) -> None:
        with (self.root / "bench.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchhouse", *self.arguments],
                cwd=self.root / "ws", env=self.environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def ensure_running(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                self.exits.append(self.process.returncode)
            self.start()
        assert self.process is not None
        return self.process

    def sealed(self) -> list[Path]:
        home = self.workspace.results / "storm"
        return [path for path in home.iterdir() if not path.name.startswith(".")] if home.is_dir() else []

    def look(self) -> None:
        """Note every sealed folder by name and inode: the folder of a failed attempt is renamed, its bytes stay."""
        for path in self.sealed():
            with contextlib.suppress(FileNotFoundError):  # renamed this very moment: seen next time
                key = path.name, path.stat().st_ino
                if key not in self.seen:
                    self.seen[key] = manifest_digest(TrialFolder(path))

    def strike_orchestrator(self) -> bool:
        process = self.ensure_running()
        time.sleep(self.dice.uniform(0.0, 2.0))
        self.look()
        if process.poll() is not None:
            return False
        process.kill()
        process.wait()
        self.process = None
        self.hits["orchestrator"] += 1
        self.ensure_running()
        return True

    def strike_below(self) -> bool:
        process = self.ensure_running()
        self.pause(0.3)
        workers = [worker for host in children(process.pid) for worker in children(host)]
        experiments = [pid for worker in workers for pid in children(worker)]
        kind = self.dice.choice(["worker", "experiment"])
        return self.hit(kind, workers if kind == "worker" else experiments)

    def pause(self, most_s: float) -> None:
        time.sleep(self.dice.uniform(0.0, most_s))

    def hit(self, kind: str, victims: list[int]) -> bool:
        """Kill one of them; False when nobody is there."""
        if not victims:
            return False
        self.look()
        try:
            os.kill(self.dice.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.hits[kind] += 1
        return True

    def rage(self) -> None:
        targets = ["orchestrator", "below"] * (self.kills // 2) + ["below"] * (self.kills % 2)
        self.dice.shuffle(targets)
        for target in targets:
            strike = self.strike_orchestrator if target == "orchestrator" else self.strike_below
            while not strike():
                pass

    def calm(self) -> None:
        """Let the last run end, then resume whatever an unlucky moment left unfinished."""
        process = self.ensure_running()
        self.exits.append(process.wait())
        self.process = None
        for run_id in list_runs(self.workspace):
            command = [sys.executable, "-m", "benchhouse", "run", "--resume", run_id, "--json", *self.arguments[2:]]
            done = subprocess.run(command, cwd=self.root / "ws", env=self.environment(), capture_output=True)
            self.exits.append(done.returncode)

    def left_running(self) -> int:
        """Of what still runs after ten seconds: what was killed last may be dying yet on a busy machine."""
        until = time.monotonic() + 10
        while (running := self.running()) and time.monotonic() < until:
            time.sleep(0.1)
        return running

    def running(self) -> int:
        mark, found = self.mark.encode(), 0
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                with contextlib.suppress(OSError):
                    found += mark in (path / "environ").read_bytes().split(b"\0")
        return found

    def judge(self) -> dict[str, Any]:
        self.look()
        folders = {path.name: TrialFolder(path) for path in self.sealed()}
        corrupt = [name for name, folder in folders.items() if verify(folder)]
        kept = {manifest_digest(folder) for folder in folders.values()}
        runs = list_runs(self.workspace)
        good: dict[str, int] = dict.fromkeys(runs, 0)
        for name, folder in folders.items():
            if ".attempt-" not in name and sealed_outcome(folder) == "succeeded":
                good[read_manifest(folder).run_id] += 1
        planned = {run_id: Ledger(self.workspace.run(run_id)).record.trials for run_id in runs}
        cgroups = list(Path("/sys/fs/cgroup").glob("**/benchhouse-*"))
        ids = {name[:8] for name in folders}
        return {
            "kills": sum(self.hits.values()),
            "hits": self.hits,
            "runs": len(runs),
            "planned_trials": sum(planned.values()),
            "sealed_folders": len(folders),
            "corrupt_folders": len(corrupt),
            "lost_trials": len(set(self.seen.values()) - kept),
            "missing_trials": sum(planned[run_id] - good[run_id] for run_id in runs),
            "left_running": self.left_running(),
            "left_cgroups": sum(path.name.split("-")[1] in ids for path in cgroups),
            "left_temporary": len(list((self.root / "tmp").iterdir())),
            "left_unfinished": len(list((self.workspace.results / "storm").glob(".partial/*"))),
        }


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def main(kind: type[Storm] = Storm, kills: int = 200, about: str = __doc__ or "") -> int:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="Work in this new folder and leave it.")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kill-storm-")))
        root.mkdir(exist_ok=True)
        began = time.monotonic()
        storm = kind(root.absolute(), random.Random(given.seed), given.kills)
        try:
            storm.rage()
            storm.calm()
        finally:
            if storm.process is not None and storm.process.poll() is None:
                storm.process.kill()
                storm.process.wait()
        figures = storm.judge() | {"seed": given.seed, "seconds": round(time.monotonic() - began, 1)}
    bars = [name for name in figures if name.startswith(("corrupt", "lost", "missing", "left"))]
    bad = [name for name in bars if figures[name]]
    if given.json:
        print(json.dumps(figures | {"passed": not bad}, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:18} {value}")
        print(f"missed: {', '.join(bad)}" if bad else f"{figures['kills']} kills: nothing corrupt, lost or left")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
